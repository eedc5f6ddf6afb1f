"""Every directive of a chapter, and every way in which one can be wrong."""

import re

import pytest

from refnet.book.chapter import Chapter
from refnet.book.sources import cut
from refnet.cells import rnn
from support.arguments import refused

pytestmark = pytest.mark.needs("mdit_py_plugins", "latex2mathml", "pygments", "matplotlib", "flint")


def page(folder, text):
    path = folder / "01-test.md"
    path.write_text(f"# A title\n\n{text}\n")
    return Chapter(path, {}).page()


def words(html):
    return " ".join(re.sub("<[^>]*>", "", html).split())


FIGURE = """```python figure The caption $x^2$
from matplotlib.figure import Figure
figure = Figure()
figure.subplots().plot([1, 2])
```
"""


@pytest.mark.parametrize(
    "text, shown",
    [
        ("```python compute\nprint(2 ** 10)\n```", "1024"),
        ("```python compute\nx = 3\n```\n\nHere is {{x * 2}}.", "Here is 6."),
        ("Here is {{3e-7:.1e}}.", "Here is 3.0 \N{MULTIPLICATION SIGN} 10\N{MINUS SIGN}7."),
        ("Here is $x = {{2 * 3}}$.", "Here is x&#x0003D;6."),
        ('Here is {{"a_b_c <"}}.', "Here is a_b_c &lt;."),
        ("Here is {{ {'a': 1}['a'] }}.", "Here is 1."),
        ("```source refnet.cells.rnn:backward\n```", "carry = matmul(da[t], p["),
        ("```source refnet.maths.dual:Dual.__neg__\n```", "return Dual(-self.x, -self.d)"),
        ("```python check One is one\nholds = 1 == 1\n```", "Check 1.1. One is one. It holds."),
        ("```erratum 2\n```", "Erratum 2: Manchev &amp; Spratling"),
        ("$$ a = b $$ (mine)\n\nSee [](eq:mine).", "See (1.1)."),
        ("$$ a $$ (vorontsov:3)\n\n[](eq:vorontsov:3)", "Vorontsov et al. (3)"),
        (FIGURE, "Figure 1.1. The caption"),
        ("```text\n{{x}}\n```", "{{x}}"),
    ],
)
def test_what_a_directive_shows(text, shown, tmp_path):
    assert shown in words(page(tmp_path, text))


def test_mathematics_is_mathml(tmp_path):
    html = page(tmp_path, "In $x^2$ and\n\n$$ \\frac{a}{b} $$ (orhan:1)")
    assert html.count("<math") == 2 and "<mfrac>" in html and "<msup>" in html
    assert 'id="eq-orhan-1"' in html and 'href="equations.html#eq-orhan-1"' in html


def test_a_slider_has_its_frames(tmp_path):
    html = page(tmp_path, "```slider margin\n```")
    assert '"frames": [{"lines"' in html and "<math" in html


def test_two_figures_share_no_name(tmp_path):
    html = page(tmp_path, FIGURE + "\n" + FIGURE)
    names = re.findall(r'\bid="(.*?)"', html)
    assert len(names) > 20 and len(names) == len(set(names))
    for target in re.findall(r'(?:xlink:href="#|url\(#)(.*?)[")]', html):
        assert target in names


WRONG = [
    ("```python check Two is one\nholds = 2 == 1\n```", 3, "does not hold: Two is one"),
    ("```python check All of them\nholds = np.array([True, True])\n```", 3, "does not hold"),
    ("```python check No outcome\nhold = True\n```", 3, "leaves no 'holds'"),
    (
        "```python check One\nholds = True\n```\n\n```python check Its outcome again\n1\n```",
        7,
        "leaves no 'holds'",
    ),
    ("```python figure None\nx = 1\n```", 3, "leaves no 'figure'"),
    ("```python compute\nx = 1\n\ny = x / 0\n```", 6, "ZeroDivisionError"),
    ("```python compute\nx = 1\ny = = 2\n```", 5, "SyntaxError"),
    ("One line\nand {{unknown}} in the next", 4, "NameError"),
    ("```source refnet.cells.rnn:backwards\n```", 3, "refnet.cells.rnn:backwards is no"),
    ("```source refnet.cells.run:backward\n```", 3, "refnet.cells.run:backward is no"),
    (
        '```source refnet.cells.rnn:backward\nfrom "carries" to "carry"\n```',
        3,
        "no line with 'carries'",
    ),
    ("```source refnet.cells.rnn:backward\nall\n```", 3, 'need: from "..." to "..."'),
    ("```python chekc One\nholds = True\n```", 3, "no directive is called 'chekc'"),
    ("```slider gradient\n```", 3, "no slider is called 'gradient'"),
    ("```erratum 99\n```", 3, "no erratum '99'"),
    ("One\n\n$$ \\unknowncommand{x} $$", 5, "\\unknowncommand"),
    ("A $a & b$ without a table", 3, "<mi>&<"),
    ("$$ a $$ (nobody:3)", 3, "papers.toml has no 'nobody'"),
    ("See [there](eq:nobody:3).", 3, "no equation has the label 'nobody:3'"),
]


@pytest.mark.parametrize("text, line, message", WRONG)
def test_what_is_wrong_is_said_with_its_line(text, line, message, tmp_path):
    with refused(f"01-test.md, line {line}: ") as error:
        page(tmp_path, text)
    assert message in str(error.value)


def test_a_stale_source_is_an_error(monkeypatch):
    assert cut("refnet.cells.rnn:init")[1].endswith('return {"bh": np.zeros(hidden)}')
    assert '"""' not in cut("refnet.cells.rnn:Tape")[1]
    monkeypatch.delattr(rnn, "init")
    with refused("refnet.cells.rnn:init is no package.module:function of today"):
        cut("refnet.cells.rnn:init")
