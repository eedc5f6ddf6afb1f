"""Published numbers beside ours: verdicts, the study that is shown, and that none is missing."""

import re

import pytest

from refnet.studies.catalogue import STUDIES
from refnet.studies.ladder import PRINTED
from refnet.studies.published import by_number, compared, place_of, published, verdict
from refnet.studies.study import Published, View


def number(*values, printed=90.0, study="a", **options):
    return Published("Table 1", "net", printed, values, study, 1.0, **options)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ((), {}, "not run"),
        ((89.0,), {}, "reproduced"),
        ((92.0, 90.0), {}, "reproduced"),
        ((91.01,), {}, "beaten by 1.01"),
        ((88.99,), {}, "not reached, by 1.01: cause not found"),
        ((80.0,), {"cause": "the rate"}, "not reached, by 10.00: the rate"),
        ((80.0,), {"higher": False}, "beaten by 10.00"),
        ((100.0,), {"higher": False, "form": ".0f"}, "not reached, by 10: cause not found"),
    ],
)
def test_verdicts(values, options, said):
    assert verdict(number(*values, **options)) == said


def test_the_nearest_study_that_reaches_the_number_is_shown():
    rows = [number(85.0, study="near"), number(120.0, study="far"), number(study="none")]
    text = published(rows)
    assert "Of 1 published numbers: 1 beaten." in text
    assert "| far " in text
    assert "| near " not in text
    assert "| near " in published([rows[0], rows[2]])
    line = compared(rows).splitlines()[-1]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        "net",
        "90.00",
        "85.00 (one seed): not reached, by 5.00",
        "120.00 (one seed): beaten by 30.00",
        "not run",
        "far",
    ]
    assert compared([number(85.0, study="a"), number(study="b")]).endswith(
        "| none: cause not found |\n"
    )
    assert "not run: `refnet study none`" in published(rows[2:])


def test_every_printed_number_has_a_row():
    """Those in the tables that nothing has been run for: what is a number there is one here."""
    known = by_number(n for study in STUDIES.values() for n in study.published(View()))
    ladders = sum(map(len, PRINTED.values()))
    assert sum(place == "Table I of Manchev & Spratling" for place, _ in known) == ladders
    for study in STUDIES.values():
        lines = [line.split("|")[1:-1] for line in study.table(View()).splitlines() if "|" in line]
        columns = [n for n, name in enumerate(lines[0]) if name.strip() == "printed"]
        cells = [line[n].strip() for line in lines[2:] for n in columns if n < len(line)]
        numbers = [cell for cell in cells if re.fullmatch(r"\d*\.?\d+", cell)]
        if study.name not in ("table-5", "causes"):  # ratios alone; a study of several tables
            assert len(study.published(View())) == len(numbers), study.name
    assert {place_of(study.title) for study in STUDIES.values() if study.published(View())} == {
        place for place, _ in known
    }
