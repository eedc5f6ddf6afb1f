"""The errata as a page to read: all of them in a table, then one by one with their checks."""

from textwrap import wrap

from refnet.explain.errata import ERRATA
from refnet.explain.errata.base import Erratum, as_text
from refnet.runs.rows import table

HEAD = """# Errata

This page lists what the papers that refnet follows print wrong, with the correct form and the
reason for each. refnet implements the correct forms; where a paper's released code differs from its
text, both have a name. The checks run refnet's own functions where they exist.
`refnet errata NUMBER` repeats one check, `refnet errata --check` all of them. A dash in a check
means that the printed form says nothing there, or the same as the correct one. If a whole check has
dashes, the factors of the printed form do not fit each other (3, 5), or it is true but lacks a
condition (33, 35).

`refnet errata --markdown` writes this page.
"""


def listing(width: int = 96) -> str:
    """All of them for a terminal: the place, the printed and the correct form."""
    lines = []
    for e in ERRATA:
        lines.append(f"{e.number:3}  {e.source}, {e.where}")
        for name, form in (("printed", e.printed), ("correct", e.correct)):
            lines += wrap(form, width, initial_indent=f"     {name}: ", subsequent_indent=" " * 14)
    return "\n".join(lines) + "\n"


def _overview() -> str:
    return table(
        ["number", "text", "where", "printed", "correct"],
        [[e.number, e.source, e.where, _cell(e.printed), _cell(e.correct)] for e in ERRATA],
    )


def details(erratum: Erratum, seed: int = 0) -> str:
    """One erratum whole, with what its check finds."""
    e = erratum
    lines = [
        f"## Erratum {e.number}: {e.source}, {e.where}",
        "",
        f"- Printed: {e.printed}",
        f"- Correct: {e.correct}",
        "",
        e.why,
        "",
    ]
    comparisons = e.comparisons(seed)
    if not comparisons:
        return "\n".join([*lines, "This erratum concerns wording alone.", ""])
    rows = [
        [
            _cell(c.what),
            as_text(c.measured),
            as_text(c.printed) + ("" if c.printed is None else _verdict(not c.printed_fails)),
            as_text(c.correct) + _verdict(c.correct_holds),
        ]
        for c in comparisons
    ]
    return "\n".join([*lines, table(["", "measured", "printed", "correct"], rows)])


def _verdict(holds: bool) -> str:
    return " (holds)" if holds else " (fails)"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page(seed: int = 0) -> str:
    """The whole page, in Markdown."""
    return "\n".join([HEAD, _overview(), *(details(e, seed) for e in ERRATA)])
