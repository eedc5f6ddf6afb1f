"""The pages' tables and figures are what the records say, and what the README shows works."""

import re

import pytest

from benchmarks.figures import FIGURES, RESULTS, stamp
from benchmarks.readme import PAGES, ROOT, TABLES, generate
from support.figures import faults

pytestmark = pytest.mark.needs("matplotlib")

README = ROOT / "README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_tables_are_generated_from_the_records(page):
    assert generate(page.read_text()) == page.read_text()


def test_every_table_stands_in_a_page():
    assert {
        name for page in PAGES for name in re.findall(r"<!-- ([a-z0-9-]+) -->", page.read_text())
    } == set(TABLES)


def test_an_edited_number_would_be_found():
    text = (ROOT / "refnet" / "training" / "README.md").read_text()
    edited = re.sub(r"(<!-- temporal-order -->.*?)\d", r"\g<1>7.7", text, count=1, flags=re.DOTALL)
    assert edited != text and generate(edited) == text


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_is_stale(name):
    """Each holds the digest of the records that it was drawn from, and of its labels."""
    make, data = FIGURES[name]
    figure = make(data)
    assert not faults(figure)
    assert stamp(figure, data).encode() in (RESULTS / name).read_bytes(), (
        "stale; draw it again with: python -m benchmarks.readme"
    )


def test_a_figure_of_other_rows_or_with_another_label_is_stale():
    make, rows = FIGURES["copy-200-by-margin.png"]
    known = stamp(make(rows), rows)
    assert known == stamp(make(rows), rows)
    fewer = dict([*rows.items()][1:])
    renamed, drawn_anew = make(rows), make(rows)
    renamed.axes[0].set_ylabel("another label")
    drawn_anew.axes[0].lines[0].set_linewidth(3)
    assert stamp(make(fewer), fewer) != known != stamp(renamed, rows)
    assert stamp(drawn_anew, rows) == known


def test_the_readme_is_one_page():
    assert len(README.read_bytes()) <= 9000


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "refnet" / "README.md"],
    ids=lambda page: f"{page.parent.name}/{page.name}",
)
def test_links_lead_somewhere(page):
    for place in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / place).exists(), place


@pytest.mark.needs("flint")
def test_the_examples_of_the_readme_run(capsys):
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(code, scope)
    shown = re.search(r"```\n(not rounding.*?)```", README.read_text(), re.DOTALL).group(1)
    assert capsys.readouterr().out == shown
