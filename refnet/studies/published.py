"""Every published number beside ours: which protocol comes nearest, and what its runs say.

Checked by: tests/studies/test_published.py.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from refnet.runs.rows import table
from refnet.studies.study import Published, spread

__all__ = ["RULE", "by_number", "compared", "place_of", "published", "verdict"]

RULE = """*Reproduced*: our mean is within one percentage point, .05 bits, ten steps of a length, or
.1 of a ratio or of the orthogonalisation's steps; *beaten* and *not reached*: it is better or worse
by more. Of several studies of a number, the row shows the nearest one that reaches it or, if none
does, the nearest."""


def place_of(title: str) -> str:
    """The table that a study's title names.

    >>> place_of("Table 3 of Vorontsov et al. under the protocol of their released code: letters")
    'Table 3 of Vorontsov et al.'
    """
    match = re.match(r"(Table \w+).*? of (Manchev & Spratling|Vorontsov et al\.)", title)
    return f"{match[1]} of {match[2]}" if match else title.partition(":")[0]


def verdict(number: Published) -> str:
    """What the runs say of the printed number.

    >>> verdict(Published("Table I", "SRNN", 90, (120,), "table-i", 10, form=".0f"))
    'beaten by 30'
    """
    if not number.values:
        return "not run"
    ahead = number.ahead
    if abs(ahead) <= number.within * (1 + 1e-9):  # 97.03 - 96.03 is a little more than 1
        return "reproduced"
    amount = f"{abs(ahead):{number.form}}"
    if ahead > 0:
        return f"beaten by {amount}"
    return f"not reached, by {amount}: " + (number.cause or "cause not found")


def by_number(numbers: Iterable[Published]) -> dict[tuple[str, str], list[Published]]:
    """The numbers of all studies by what is printed."""
    known: dict[tuple[str, str], list[Published]] = {}
    for number in numbers:
        known.setdefault((number.place, number.what), []).append(number)
    return known


def _distance(number: Published) -> tuple[bool, float]:
    """The order of studies: those that reach the number first, and among these the nearest."""
    if not number.values:
        return True, float("inf")
    return verdict(number).startswith("not reached"), abs(number.ahead)


def _ours(number: Published) -> str:
    return number.ours or spread([*number.values], number.form)


def published(numbers: Iterable[Published], label: Callable[[str], str] = str) -> str:
    """A row a printed number, from the study that comes nearest, whose name ``label`` replaces."""
    rows = []
    for (place, what), known in by_number(numbers).items():
        best = min(known, key=_distance)
        said = verdict(best) if best.values else f"not run: `refnet study {best.study}`"
        rows.append(
            [place, what, f"{best.printed:{best.form}}", _ours(best), label(best.study), said]
        )
    counts = Counter(re.split(",? by |: ", row[-1])[0] for row in rows)
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"Of {len(rows)} published numbers: {said}.\n\n" + table(
        ["table", "number", "printed", "ours", "study: protocol", "verdict"], rows
    )


def compared(numbers: Iterable[Published]) -> str:
    """A row a printed number that several studies have, a column a study, with verdicts, and last
    the studies that reach it or, of what none reaches, the cause."""
    known = {what: row for what, row in by_number(numbers).items() if len(row) > 1}
    studies = list(dict.fromkeys(number.study for row in known.values() for number in row))
    rows = []
    for (_, what), row in known.items():
        verdicts = {number.study: verdict(number) for number in row}
        cells = {
            number.study: _ours(number)
            + f": {verdicts[number.study].partition(':')[0]}" * bool(number.values)
            for number in row
        }
        reach = [name for name, said in verdicts.items() if not said.startswith("not")]
        rows.append(
            [
                what,
                f"{row[0].printed:{row[0].form}}",
                *(cells.get(name, "-") for name in studies),
                ", ".join(reach) or f"none: {row[0].cause or 'cause not found'}",
            ]
        )
    return table(["number", "printed", *studies, "reached by"], rows)
