"""The entries of a wrong result by their axes, and how they follow from the certified ones.

Checked by: tests/check/test_where.py.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.check.judgement import LIMITS
from refnet.check.noise import Certificate
from refnet.exact.enclose import Certified
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import plain

__all__ = ["Axis", "Wrong", "axes_of", "either", "plural", "relation", "value", "wrong_of"]


class Axis(NamedTuple):
    """What an axis counts; ``names`` of its indices, if they have some."""

    noun: str
    names: tuple[str, ...] = ()


AXES = {
    "Why": ("class", "unit"),
    "by": ("class",),
    "x": ("step", "example", "input"),
    "h0": ("example", "unit"),
    "h": ("step", "example", "unit"),
    "c": ("step", "example", "unit"),
    "outputs": ("step", "example", "class"),
    "Whr": ("unit", "column"),
}
"""What the last axes of a net's arrays count, by the array's name without d."""
STACKED = {"Whh": "column", "Wxh": "input", "bh": "", "bhh": ""}
"""The arrays whose rows are those of all gates, and what their columns count."""


def axes_of(name: str, certified: Certificate, shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """The axes of a result; the rows of several gates are two, the gate and its unit."""
    if isinstance(certified, Certified):
        net, stem = certified.net, plain(name)
        stem = stem.removeprefix("d").split(".")[0]
        if isinstance(net, RecurrentNet) and stem in STACKED and shape[0] % len(net.gates) == 0:
            gates = net.gates if len(net.gates) * net.hidden == shape[0] else ()
            columns = [STACKED[stem]] * (len(shape) - 1)
            return (
                *((Axis("gate", net.gates), Axis("unit")) if len(gates) > 1 else (Axis("row"),)),
                *map(Axis, columns),
            )
        if isinstance(net, FeedforwardNet) and stem[:1] in "Wbh" and stem[1:].isdecimal():
            names = {"W": ("row", "column"), "b": ("unit",)}
            return tuple(map(Axis, names.get(stem[0], ("example", "unit"))))
        nouns = AXES.get(stem, ("unit",))[-len(shape) :]
        if isinstance(net, FeedforwardNet) and stem == "x":
            nouns = ("example", "input")
        if len(nouns) < len(shape):
            nouns = ("part (h, c)", *nouns)
        if len(nouns) == len(shape):
            return tuple(map(Axis, nouns))
    known, usual = getattr(certified, "axes", {}), {1: ("entry",), 2: ("row", "column")}
    nouns = usual.get(len(shape), tuple(f"index of axis {n}," for n in range(len(shape))))
    leads = [known.get(size, noun) for size, noun in zip(shape[:-1], nouns)]
    return tuple(map(Axis, (*leads, *nouns[len(shape) - 1 : len(shape)])))


class Wrong(NamedTuple):
    """A wrong result by its axes: theirs, the certified values, their sigmas, what is off."""

    name: str
    axes: tuple[Axis, ...]
    theirs: Array
    true: Array
    sigma: Array

    @property
    def off(self) -> Array:
        """Whether an entry is more than rounding, or not finite."""
        return ~self.fits(self.true)

    def each(self, change: Callable[[Array], Array]) -> "Wrong":
        """With theirs, the certified values and their sigmas as ``change`` makes them."""
        theirs, true, sigma = map(change, (self.theirs, self.true, self.sigma))
        return self._replace(theirs=theirs, true=true, sigma=sigma)

    def fits(self, values: Array) -> Array:
        """Whether theirs are ``values`` but for rounding, entry by entry."""
        room = LIMITS[0] * np.maximum(self.sigma, np.spacing(abs(values)) / 2)
        with np.errstate(invalid="ignore"):
            return np.asarray(
                abs(self.theirs - values) <= np.where(np.isfinite(room), room, np.inf)
            )


def wrong_of(name: str, theirs: Array, true: Array, sigma: Array, certified: Certificate) -> Wrong:
    """A result with its axes, the rows of gates as an axis of their own."""
    axes = axes_of(name, certified, true.shape)
    part = Wrong(name, axes, theirs, true, sigma)
    if not axes or not axes[0].names:
        return part
    shape = len(axes[0].names), -1, *true.shape[1:]
    return part.each(methodcaller("reshape", shape))


def relation(part: Wrong, box: Sequence[Array]) -> str:
    """How the wrong entries follow from the certified ones (all zero, a factor, another order, a
    number added), or ""."""
    inside = part.each(itemgetter(np.ix_(*box)))
    theirs = inside.theirs
    infinite = ~np.isfinite(theirs)
    if infinite.any():
        return f"{int(infinite.sum())} entries are not finite"
    if not theirs.any():
        return "zero there"
    if theirs.size == 1:
        return value(inside.each(np.squeeze))
    factor = _factor(inside)
    if factor is not None and (times := f"{factor:.6g}") != "1":
        return f"{times} times the certified ones"
    for axis in range(theirs.ndim):
        for text in (_moved(part, box, axis), _scaled(inside, box, axis)):
            if text:
                return text
    gap = theirs - inside.true
    if np.ptp(gap) <= 1e-3 * abs(gap).max() and inside.fits(inside.true + gap.mean()).all():
        return f"{gap.mean():.6g} is added to all"
    return ""


def value(part: Wrong) -> str:
    """A number of theirs beside the certified one, and their ratio."""
    theirs, true = float(part.theirs), float(part.true)
    ratio = f"{theirs / true:.6g}" if true and theirs and np.isfinite(theirs) else ""
    ratio = f", off by {theirs - true:.2g}" if ratio == "1" else f", {ratio} times" * bool(ratio)
    return f"{theirs:.9g} for {true:.9g}{ratio}"


def _factor(part: Wrong) -> float | None:
    """The factor between the certified values and theirs, if there is one and it shows."""
    weight = part.true / np.maximum(part.sigma, np.finfo(float).tiny)
    with np.errstate(all="ignore"):
        factor = float(
            (weight * part.theirs / np.maximum(part.sigma, np.finfo(float).tiny)).sum()
            / (weight * weight).sum()
        )
    if not np.isfinite(factor) or np.count_nonzero(abs(weight) > 10 * LIMITS[1]) < 2:
        return None
    return factor if _widened(part, abs(factor)).fits(factor * part.true).all() else None


def _widened(part: Wrong, factor: float) -> Wrong:
    """The same with the rounding that a factor enlarges."""
    return part._replace(sigma=part.sigma * max(1.0, factor))


def _scaled(part: Wrong, box: Sequence[Array], axis: int) -> str:
    """A factor for every index of an axis."""
    size = part.true.shape[axis]
    if not 1 < size <= 64 or part.true.size < 3 * size:
        return ""
    factors = []
    for n in range(size):
        row = part.each(partial(np.take, indices=n, axis=axis))
        factor = 1.0 if row.fits(row.true).all() else _factor(row)
        if factor is None:
            return ""
        factors.append(factor)
    axis_of, chosen = part.axes[axis], box[axis]
    shown = [
        f"{axis_of.names[n] if axis_of.names else n}: {factor:.4g}"
        for n, factor in zip(chosen, factors)
    ]
    return f"a factor for each {axis_of.noun}: {', '.join(shown[:8])}{', ...' * (size > 8)}"


def _moved(part: Wrong, box: Sequence[Array], axis: int) -> str:
    """Slices along an axis that stand in each other's place."""
    chosen = box[axis]
    at = np.ix_(*box[:axis], np.arange(part.true.shape[axis]), *box[axis + 1 :])
    inside = part.each(itemgetter(at)).each(partial(np.moveaxis, source=axis, destination=0))
    size = len(inside.true)
    if not 1 < len(chosen) <= size <= 128 or inside.true.size < 2 * size:
        return ""
    known = (abs(inside.true) > 100 * inside.sigma).reshape(size, -1).sum(axis=1) > 1
    places = []
    for n in chosen:
        row = inside._replace(theirs=inside.theirs[n : n + 1])
        equal = np.flatnonzero(row.fits(inside.true).reshape(size, -1).all(axis=1) & known)
        if len(equal) != 1 or equal[0] == n:
            return ""
        places.append(int(equal[0]))
    by = np.asarray(places) - chosen
    noun, names = part.axes[axis].noun, part.axes[axis].names
    if len(places) == 2 and places[::-1] == chosen.tolist():
        first, second = (names[n] if names else n for n in chosen)
        return f"{plural(noun)} {first} and {second} change places"
    if len(by) > 2 and (by == by[0]).all():
        return f"each {noun} is that of {abs(by[0])} {'later' if by[0] > 0 else 'earlier'}"
    order = ", ".join(str(names[m] if names else m) for m in places[:8])
    return f"the {plural(noun)} there are {order}{', ...' * (len(places) > 8)} of the certified"


def either(names: Iterable[str]) -> str:
    """One name of what explains the same: of several, each is possible.

    >>> either(["x is reversed"]), either(["perhaps x is reversed", "x is shifted"])
    ('x is reversed', 'perhaps x is reversed, or x is shifted')
    """
    first, *others = names
    every = (name.removeprefix("perhaps ") for name in (first, *others))
    return f"perhaps {', or '.join(every)}" if others else first


def plural(noun: str) -> str:
    """The noun of several.

    >>> plural("step"), plural("class"), plural("entry")
    ('steps', 'classes', 'entries')
    """
    return f"{noun}es" if noun.endswith("s") else re.sub("ys$", "ies", f"{noun}s")
