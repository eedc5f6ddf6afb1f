"""The text that a failed assertion shows: what is wrong, by how much, where it starts, and the
smallest sizes at which it still shows.

Checked by: tests/check/test_judge_calls.py.
"""

from collections.abc import Iterator
from operator import attrgetter

from refnet.check.judgement import LIMITS, NOT_ROUNDING, SUSPICIOUS, TAILS, UNJUDGED, Judgement
from refnet.check.verdict import AS_WRITTEN, Verdict

__all__ = ["quantities", "report"]


def report(verdict: Verdict) -> str:
    """The text about a verdict that is not explained by rounding."""
    are = "" if verdict.verdict == UNJUDGED else "are "
    lines = [
        f"gradients in {verdict.dtype} {are}{verdict.verdict}",
        *quantities(verdict),
        f"z = |theirs - certified| / sigma: up to {LIMITS[0]} is rounding, above "
        f"{LIMITS[1]} is not; {TAILS} times as much where rounding explains zeros, too",
    ]
    if verdict.note and not verdict.worst.note:
        lines.append(verdict.note)
    if AS_WRITTEN in verdict.rule and verdict.verdict != UNJUDGED:
        lines.append(AS_WRITTEN.strip())
    if verdict.convention:
        lines.append(f"the mistake that explains it: {verdict.convention}")
    lines += verdict.where
    return "\n".join(lines)


def quantities(verdict: Verdict) -> Iterator[str]:
    """A line for every quantity that was judged, the worst first."""
    parts = sorted(verdict.parts, key=attrgetter("z"), reverse=True)
    width = max(len(part.name) for part in parts)
    for part in parts:
        yield f"  {part.name:{width}}  z = {part.z:<9.3g} {part.verdict}{_entry(part)}"


def _entry(part: Judgement) -> str:
    if part.note:
        return f": {part.note}"
    if part.verdict not in (SUSPICIOUS, NOT_ROUNDING) or part.index is None:
        return ""
    return (
        f", worst at {list(part.index)}: theirs {part.theirs:.9g}, certified "
        f"{part.certified:.9g}, sigma {part.sigma:.2g}"
    )
