"""Gradients that are finite differences of the loss: their step and order.

A difference of order 1, ``(f(w + e) - f(w)) / e``, is off by ``e f'' / 2``; one of order 2,
``(f(w + e) - f(w - e)) / 2e``, by ``e^2 f''' / 6``. Where the step is so small that rounding is
larger, all entries are multiples of the spacing of the losses, divided by how far apart these are.

Checked by: tests/check/test_fitted_names.py::test_finite_differences_are_named.
"""

import numpy as np

from refnet.batch import Array, Params
from refnet.check.noise import Certificate

__all__ = ["of_differences"]

SAMPLE, STEP = 24, 4e-3
"""The entries whose second and third derivatives are measured, and the step at which they are."""
SMALL = 0.05
"""The largest error of a difference that is looked for, in parts of the gradient."""
STEPS = [m * e for e in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 2.0**-26) for m in (1, 2)]
STEPS += [m * 10.0**-k for k in range(7, 0, -1) for m in (1, 2)]


def of_differences(
    certified: Certificate, given: Params, true: Params, names: list[str], u: float
) -> str:
    """What kind of difference the gradients of these ``names`` are, or "". ``u``: the unit
    roundoff."""
    theirs, right = (np.concatenate([a[name].ravel() for name in names]) for a in (given, true))
    gap, weight = theirs - right, getattr(certified, "cotangent", None)
    if not 0 < np.linalg.norm(gap) < SMALL * np.linalg.norm(right):
        return ""
    places = [(name[1:], index) for name in names for index in np.ndindex(true[name].shape)]
    chosen = np.argsort(-abs(right), kind="stable")[:SAMPLE]

    def loss(place: tuple[str, tuple[int, ...]], by: float) -> float:
        """With the entry at a place moved."""

        def shifted(array: Array, name: str) -> Array:
            array = np.array(array, float)
            if name == place[0]:
                array[place[1]] += by
            return array

        results = certified.run(shifted)
        value = results["loss" if "loss" in results else "value"]
        return float((value * (1 if weight is None else weight)).sum())

    at, off = loss(places[0], 0.0), gap[chosen]
    above, below = (np.array([loss(places[n], e) for n in chosen]) for e in (STEP, -STEP))
    second = (above - 2 * at + below) / STEP**2 / 2
    third = ((above - below) / 2 / STEP - right[chosen]) / STEP**2
    e = _multiple(second, off)
    if e:
        return f"(f(w + e) - f(w)) / e with e = {e:.3g}"
    square = _multiple(third, off)
    if square > 0:
        return f"(f(w + e) - f(w - e)) / 2e with e = {square**0.5:.3g}"
    apart = _spacing(
        theirs, 2.0 ** np.floor(np.log2(abs(at))), true.get("dx", right).shape[-2:-1], u
    )
    return apart and f"(f(w + e) - f(w - d)) / (d + e) with d + e = {apart:.3g} or near" or ""


def _multiple(basis: Array, off: Array) -> float:
    """The number times ``basis`` that ``off`` is, or 0."""
    k = float(basis @ off) / (float(basis @ basis) or 1.0)
    return k if np.linalg.norm(off - k * basis) <= 0.05 * np.linalg.norm(off) else 0.0


def _spacing(theirs: Array, size: float, B: tuple[int, ...], u: float) -> float:
    """The sum of the steps, if all of ``theirs`` are multiples of an eighth of the spacing of
    losses of this ``size``, divided by it and perhaps by ``B``; or 0. Numbers of half precision,
    of at most 11 bits, are multiples of a spacing, too."""
    entries = abs(theirs[theirs != 0])
    bits = np.frexp(entries)[0] * 2**11
    if (bits == np.round(bits)).all():
        return 0.0
    for divisor in (1, *B) if len(entries) >= 16 else ():
        for apart in STEPS:
            count = entries * (apart * divisor / (size * u / 4))
            close = abs(count - np.round(count)) < 0.05 + 4 * u * count
            if close.all() and 8 < np.median(count) and count.max() < 0.02 / u:
                return apart * max(8 // int(np.gcd.reduce(np.round(count).astype(int))), 1)
    return 0.0
