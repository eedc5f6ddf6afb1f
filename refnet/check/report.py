"""The text that a failed assertion shows: what is wrong, by how much, where it starts, and the
smallest sizes at which it still shows.

Checked by: tests/check/test_judge_calls.py.
"""

from collections.abc import Iterator
from operator import attrgetter

import numpy as np

from refnet.batch import Array, Params
from refnet.check.given import Results, numbers
from refnet.check.judgement import LIMITS, NOT_ROUNDING, SUSPICIOUS, TAILS, UNJUDGED, Judgement
from refnet.check.shrink import Shrunk
from refnet.check.verdict import AS_WRITTEN, Verdict
from refnet.exact.enclose import Certified
from refnet.exact.functions import CertifiedFunction
from refnet.nets.recurrent import RecurrentNet

__all__ = ["report"]


def report(
    verdict: Verdict,
    theirs: Results,
    certified: Certified | CertifiedFunction,
    sigma: Params,
    smallest: Shrunk | None,
) -> str:
    """The text about a verdict that is not explained by rounding."""
    are = "" if verdict.verdict == UNJUDGED else "are "
    lines = [
        f"gradients in {verdict.dtype} {are}{verdict.verdict}",
        *_quantities(verdict),
        f"z = |theirs - certified| / sigma: up to {LIMITS[0]} is rounding, above "
        f"{LIMITS[1]} is not; {TAILS} times as much where rounding explains zeros, too",
    ]
    if verdict.note and not verdict.worst.note:
        lines.append(verdict.note)
    if isinstance(certified, CertifiedFunction) and verdict.verdict != UNJUDGED:
        lines.append(AS_WRITTEN.strip())
    if verdict.convention:
        lines.append(f"the mistake that explains it: {verdict.convention}")
    lines += _parting(verdict, theirs, certified, sigma)
    if smallest is not None:
        lines += [
            f"the smallest sizes at which it still shows, of {smallest.tried} tried: "
            f"{smallest.sizes}",
            *_quantities(smallest.verdict),
        ]
    return "\n".join(lines)


def _quantities(verdict: Verdict) -> Iterator[str]:
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


def _parting(
    verdict: Verdict, theirs: Results, certified: Certified | CertifiedFunction, sigma: Params
) -> list[str]:
    """The first step, forward in time for states and outputs and backward for dx, at which a
    recurrent net's part from what is certified."""
    if not isinstance(certified, Certified) or not isinstance(certified.net, RecurrentNet):
        return []
    limit = LIMITS[verdict.verdict == NOT_ROUNDING]
    steps, true = len(certified.batch.x), certified.named()
    lines = []
    for name in (*certified.states, "outputs", "dx"):
        values = numbers(theirs[name]) if name in theirs else None
        if (
            values is None
            or values.shape != true[name].value.shape
            or (values.shape[:1] not in ((steps,), (steps + 1,)))
            or (name == "outputs" and certified.net.readout == "last")
        ):
            continue
        off = _off(values, true[name].value, sigma[name], limit)
        if off.any() and name == "dx":
            lines.append(
                f"going back in time, dx parts first at dx[{np.flatnonzero(off)[-1]}], "
                f"of {steps} steps"
            )
        elif off.any():
            order = ", in the order in which it runs" if name.endswith("_reverse") else ""
            lines.append(
                f"going forward in time, {name} parts first at "
                f"{name}[{np.flatnonzero(off)[0]}]{order}, of {steps} steps"
            )
    return lines


def _off(theirs: Array, true: Array, sigma: Array, limit: float) -> Array:
    """Of every step, whether an entry is more than ``limit`` sigma off, or not finite."""
    with np.errstate(all="ignore"):
        off = ~(abs(theirs - true) <= limit * sigma)
    return np.asarray(off.any(axis=tuple(range(1, off.ndim))))
