"""What may be done to a sequence by mistake: another step or example, an order, a sum, a factor.

Each is linear, and has its transpose. A place of a net's computation is a sequence (T, B, ...), or
one value for each example as (1, B, ...).

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.check.programs.notation import formula

__all__ = [
    "SAME",
    "Move",
    "bent",
    "gathered",
    "largest",
    "moves",
    "of_examples",
    "scaled",
    "scalings",
]

Map = Callable[[Array], Array]
SIDES = ("comes from the step before", "comes from the next step")
LONGEST = 200
"""The most steps of which sums are tried."""


class Move(NamedTuple):
    """What is done to a sequence: its predicate in a name, and the maps forward and transposed.
    ``picks``: each value is one of the old ones; ``linear``: the transposed map does not depend on
    the values; ``scales``: it is a factor, ``uniform`` if the same for all; ``dual``: the predicate
    of the transposed move, if it is another."""

    name: str
    there: Map
    back: Map
    picks: bool = False
    linear: bool = True
    scales: bool = False
    uniform: bool = False
    dual: str = ""

    @property
    def transposed(self) -> str:
        """The predicate of what happens to the gradient."""
        return self.dual or self.name

    def after(self, first: "Move") -> "Move":
        """This move of what the move ``first`` gives."""
        return self._replace(
            there=lambda v: self.there(first.there(v)), back=lambda d: first.back(self.back(d))
        )

    def only(self, old: "Move", some: Array) -> "Move":
        """This move where ``some``, (1, B) or (T, 1), is true, and the old one elsewhere."""

        def there(v: Array) -> Array:
            new = self.there(v)
            return np.where(_column(some, new), new, old.there(v))

        def back(d: Array) -> Array:
            here = _column(some, d)
            return np.asarray(self.back(np.where(here, d, 0)) + old.back(np.where(here, 0, d)))

        return self._replace(there=there, back=back)

    def before(self, later: "Move") -> "Move":
        """The move ``later`` of what this move gives."""
        return self._replace(
            there=lambda v: later.there(self.there(v)), back=lambda d: self.back(later.back(d))
        )


SAME = Move("is right", lambda v: v, lambda d: d, True)


def _column(some: Array, like: Array) -> Array:
    return some.reshape(*some.shape, *(1,) * (like.ndim - 2))


def _pick(v: Array, t: Array, b: Array, inside: Array) -> Array:
    picked = v[t, b]
    return np.where(_column(inside, v), picked, 0 * picked)


def _put(d: Array, t: Array, b: Array, inside: Array, rows: int) -> Array:
    out = np.zeros((rows, *d.shape[1:]), d.dtype)
    np.add.at(out, (t, b), np.where(_column(inside, d), d, 0))
    return out


def gathered(
    name: str, t: Array, b: Array | None = None, rows: int | None = None, dual: str = ""
) -> Move:
    """The move to value (t, b) of other steps ``t`` and examples ``b``, arrays (T, B); 0 where
    there is no such step among the ``rows``."""
    rows = len(t) if rows is None else rows
    inside = (t >= 0) & (t < rows)
    at = np.clip(t, 0, rows - 1)
    b = np.broadcast_to(np.arange(t.shape[1]) if b is None else b, t.shape)
    where = {"t": at, "b": b, "inside": inside}
    return Move(name, partial(_pick, **where), partial(_put, **where, rows=rows), True, dual=dual)


def _mixed(name: str, dual: str, M: Array) -> Move:
    """Each step is a sum of steps."""
    there, back = (partial(np.tensordot, matrix, axes=1) for matrix in (M, M.T))
    return Move(name, there, back, dual=dual)


def scaled(name: str, k: Array | float) -> Move:
    """The move that multiplies by a factor, or by one (T, B) for each value."""

    def times(v: Array) -> Array:
        more = (1,) * (v.ndim - np.ndim(k)) if np.ndim(k) else ()
        return np.asarray(v * np.reshape(k, (*np.shape(k), *more)))

    return Move(name, times, times, scales=True, uniform=np.ndim(k) == 0)


def bent(name: str, value: Map, slope: Map) -> Move:
    """The move that is a function of each value; backward it takes the slope where it was last."""
    seen = {}

    def there(v: Array) -> Array:
        seen["v"] = v
        return value(v)

    return Move(name, there, lambda d: d * slope(seen["v"]), linear=False)


def largest() -> Move:
    """The move to the largest of each unit's states (T + 1, ...) so far, the first one left out."""
    seen = {}

    def there(v: Array) -> Array:
        top = np.maximum.accumulate(v[1:])
        n = np.arange(1, len(v)).reshape(-1, *(1,) * (v.ndim - 1))
        seen["at"] = np.maximum.accumulate(np.where(v[1:] == top, n, 1))
        return np.concatenate([v[:1], top])

    def back(d: Array) -> Array:
        out, at = np.zeros_like(d), seen["at"]
        np.add.at(out, (at, *np.indices(at.shape)[1:]), d[1:])
        out[0] += d[0]
        return out

    return Move("is the largest of the steps so far", there, back, linear=False)


def moves(lengths: Array, T: int, first: int = 0) -> Iterator[Move]:
    """All moves of a sequence of T rows; row ``first`` belongs to the first step, and ``lengths``
    has the steps of each example."""
    B = len(lengths)
    t, b = np.indices((T, B))
    if T - first > 1:
        yield from _of_steps(t, lengths + first, first)
    if B > 1:
        yield from of_examples(T, B)
    order = np.argsort(-lengths, kind="stable")
    if (order != np.arange(B)).any():
        names = ["is sorted by length, the longest first", "is put back from an order by length"]
        for there, (name, dual) in ((order, names), (np.argsort(order), names[::-1])):
            yield gathered(name, t, there[b], dual=dual)
    if T - first > 1 and B > 1:
        n, u = T - first, t - first
        back, there = u * B + b, b * n + u
        yield gathered("is read as if stored by example, (B, T)", there // B + first, there % B)
        yield gathered("is stored by example and read as (T, B)", back % n + first, back // n)
        if T - first == B:
            yield gathered("has batch and time exchanged", b + first, u)
    for name, k in (("is zero", 0), ("counts twice", 2), ("is halved", 0.5)):
        yield scaled(name, k)
    if B > 1:
        yield scaled("is divided by the batch B", 1 / B)
        yield scaled("counts B times", B)
    yield scaled("has the wrong sign", -1)


def _of_steps(t: Array, ends: Array, first: int) -> Iterator[Move]:
    """``ends``: the row after the last step of each example."""
    T, last = len(t), np.broadcast_to(ends - 1, t.shape)
    n = T - first
    for by, name, dual, end, start in (
        (-1, *SIDES, "first", "last"),
        (1, *SIDES[::-1], "last", "first"),
    ):
        yield gathered(f"{name} (zero at the {end})", t + by, dual=f"{dual} (zero at the {start})")
        yield gathered(
            f"{name} (its own at the {end})",
            np.clip(t + by, first, T - 1),
            dual=f"{dual} (its own more at the {end})",
        )
        yield gathered(
            f"{name} (around at the {end})",
            (t + by - first) % n + first,
            dual=f"{dual} (around at the {start})",
        )
    yield gathered("is reversed in time", T - 1 - t + first)
    inside = t < ends
    if (ends < T).any():
        order = np.where(inside, ends - 1 - t + first, t)
        yield gathered("is reversed within each sequence", order)
        yield gathered(
            "is that of each sequence's last step, at every step",
            last,
            dual="is summed into each sequence's last step",
        )
        yield scaled("is zero after each sequence's end", inside)
        yield scaled("is zero before each sequence's end", ~inside)
        yield scaled("is zero but at each sequence's last step", t == last)
        yield scaled("is zero at each sequence's last step", t != last)
        shortest = np.full_like(t, ends.min() - 1)
        yield gathered(
            "is that of the shortest sequence's last step, at every step",
            shortest,
            dual="is summed into the shortest sequence's last step",
        )
    for name, at in (("first", first), ("last", T - 1)):
        yield gathered(
            f"is that of the {name} step, at every step",
            np.full_like(t, at),
            dual=f"is summed into the {name} step",
        )
        yield scaled(f"is zero but at the {name} step", t == at)
        yield scaled(f"is zero at the {name} step", t != at)
        yield scaled(f"counts twice at the {name} step", 1.0 + (t == at))
    if first:
        yield scaled("is zero at the start", t >= first)
    yield scaled("is divided by the number of steps so far", 1 / np.maximum(t - first + 1, 1))
    yield scaled("is divided by the steps T", 1 / n)
    yield scaled("counts T times", n)
    if n <= LONGEST:
        yield from _sums(T, first)


def _sums(T: int, first: int) -> Iterator[Move]:
    """Each step is a sum of steps."""
    eye, t = np.eye(T), np.arange(T)
    every = np.ones((T, 1)) * (t >= first)
    sums = np.tril(every)
    number = np.maximum(sums.sum(axis=1, keepdims=True), 1)
    names = ["that of the step before", "that of the next step"]
    for by, (name, dual), end in ((-1, names, "first"), (1, names[::-1], "last")):
        usual, stay = np.eye(T, k=by), eye[np.clip(t + by, first, T - 1)]
        for side, more in ((usual, f"zero at the {end}"), (stay, f"its own at the {end}")):
            for how, k, M in (
                ("adds", 1, eye + side),
                ("is the mean with", 2, eye + side),
                ("leaves off", 1, eye - side),
            ):
                yield _mixed(f"{how} {name} ({more})", f"{how} {dual}", M / k)
    so_far, to_come = "is the sum of the steps so far", "is the sum of the steps to come"
    yield _mixed(so_far, to_come, sums)
    yield _mixed(to_come, so_far, sums.T)
    yield _mixed(
        "is the mean of the steps so far",
        "is the sum of the steps to come, each by its number",
        sums / number,
    )
    yield _mixed("is the sum over the steps", "is the sum over the steps", every)
    yield _mixed("is the mean over the steps", "is the mean over the steps", every / (T - first))
    yield _mixed(
        "leaves off the mean over the steps",
        "leaves off the mean over the steps",
        eye - every / (T - first),
    )
    if first:
        name = "is the mean over the steps and the start"
        yield _mixed(name, name, np.ones((T, T)) / T)


SCALED = {
    "less its mean": "t - t.mean({0})",
    "standardized": "(t - t.mean({0})) / maximum(t.std({0}), 1e-30)",
    "standardized, with 1e-5 added to the deviation,": "(t - t.mean({0})) / (t.std({0}) + 1e-5)",
    "standardized, with 1e-5 added to the variance,": "(t - t.mean({0})) / sqrt(t.var({0}) + 1e-5)",
    "standardized, with 1e-8 added to the deviation,": "(t - t.mean({0})) / (t.std({0}) + 1e-8)",
    "divided by its deviation": "t / maximum(t.std({0}), 1e-30)",
    "divided by its largest size": "t / maximum(abs(t).max({0}), 1e-30)",
    "divided by its norm": "t / maximum(sqrt((t^2).sum({0})), 1e-30)",
    "scaled to 0 .. 1": "(t - t.min({0})) / maximum(t.max({0}) - t.min({0}), 1e-30)",
    "scaled to -1 .. 1": "2 (t - t.min({0})) / maximum(t.max({0}) - t.min({0}), 1e-30) - 1",
}
"""Arrays (T, B, D), over the axes {0}."""


def scalings(all_values: str) -> Iterator[tuple[str, Map]]:
    """What is made of inputs and targets beforehand, in words and as a map."""
    axes = {all_values: "None", "the steps and the batch": "(0, 1)", "the batch": "1"}
    for over, axis in (axes | {"the steps": "0", "its channels": "2"}).items():
        for name, text in SCALED.items():
            if name != "less its mean" or axis not in ("0", "1"):  # these are linear moves
                yield (
                    f"{name} over {over}",
                    formula(text.format(f"axis={axis}, keepdims=True"), "t"),
                )


def of_examples(T: int, B: int) -> Iterator[Move]:
    """The moves that leave each step where it is."""
    t, b = np.indices((T, B))
    for name, at in (("example 0", 0), ("the last example", B - 1)):
        dual = f"is summed into {name}"
        yield gathered(f"is that of {name}, in every example", t, 0 * b + at, dual=dual)
    names = ["comes from the example before", "comes from the next example"]
    for by, (name, dual) in ((-1, names), (1, names[::-1])):
        yield gathered(name, t, (b + by) % B, dual=dual)
    yield gathered("has its examples reversed", t, B - 1 - b)
    for name, k in (("sum", 1.0), ("mean", 1 / B)):

        def over(v: Array, k: float = k) -> Array:
            return np.broadcast_to(k * v.sum(axis=1, keepdims=True), v.shape)

        yield Move(f"is the {name} over the examples", over, over)
        if name == "mean":

            def less(v: Array) -> Array:
                return np.asarray(v - v.mean(axis=1, keepdims=True))

            yield Move("leaves off the mean over the examples", less, less)
    yield scaled("is zero but in example 0", b == 0)
