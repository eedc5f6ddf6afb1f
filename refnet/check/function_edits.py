"""A right result reported in another way: axes permuted, another argument's gradient in its place,
a factor, a part left out.

Checked by: tests/check/test_function_mistakes.py.
"""

from collections.abc import Callable, Iterator
from itertools import combinations, permutations

import numpy as np

from refnet.batch import Array, Params
from refnet.check.entries import axes_of, plural
from refnet.check.noise import Certificate
from refnet.check.programs.notation import formula
from refnet.exact.enclose import Certified
from refnet.exact.functions import CertifiedFunction
from refnet.exact.recorder import Operand
from refnet.exact.running import parts, run_on
from refnet.nets.stacked import plain

__all__ = ["of_a_function", "of_one", "of_the_matrix", "of_several", "other_cotangents", "sizes"]

Edits = Iterator[tuple[str, Array]]
AXES = 4
"""The most axes that are permuted."""


def sizes(certified: CertifiedFunction) -> dict[str, int]:
    """The numbers that a result is often divided by, by what they are."""
    named: dict[str, int] = {}
    for name, value in certified.params.items():
        named |= {f"{name}.shape[{axis}]": size for axis, size in enumerate(value.shape)}
        named[f"{name}.size"] = value.size
    return {name: size for name, size in named.items() if size > 1}


def of_one(name: str, right: Array, certified: Certificate, sizes: dict[str, float]) -> Edits:
    """Edits of the value or the loss, or of one gradient, without a free constant; ``sizes``: the
    numbers that it may be divided by."""
    gradient = name.startswith("d")
    what = name if gradient else f"the {name}"
    bias = plain(name) == "dbh"
    yield f"{what} has the wrong sign", -right
    if gradient:
        yield f"the gradient {name} is missing (zero)", np.zeros_like(right)
    yield from _of_the_axes(name, right, certified)
    if right.ndim == 2 and len({*right.shape}) == 1:
        yield from ((f"{name} {how}", value) for how, value in of_the_matrix(right))
    known: dict[float, list[str]] = {}
    for text, size in sizes.items() if not gradient else ():
        known.setdefault(size, []).append(text)
        known.setdefault(1 / size, []).append(f"1 / ({text})" if " " in text else f"1 / {text}")

    def times(factor: float) -> str:
        number = f"{factor:g}" if factor > 1 else f"1 / {1 / factor:g}"
        return f"{number} = {' = '.join(known[factor])} times the right one"

    more, less = (f", or {times(factor)}" if factor in known else "" for factor in (2, 0.5))
    more += ": the gradients of two biases are added" * bias
    less += ": the gradient is shared by two biases" * bias
    yield f"{what} is doubled{more}", 2 * right
    yield f"{what} is halved{less}", right / 2
    for factor in known:
        yield f"{what} is {times(factor)}", factor * right


def of_a_function(name: str, right: Array, certified: CertifiedFunction) -> Edits:
    """More edits of a function's gradient."""
    if name.startswith("d"):
        if certified.params[name[1:]].dtype.kind == "c":
            label = f"{name} is conjugated, which is JAX's convention"
            yield label, right * np.array([1.0, -1.0])
        yield from _of_the_others(name, right, certified)


ALONG = {
    "is reversed {}": "flip(a, n)",
    "is shifted by one {} (later)": "roll(a, 1, n)",
    "is shifted by one {} (later), with zeros": "where(first, 0, roll(a, 1, n))",
    "has the first entry {} alone": "where(first, a, 0)",
    "lacks the first entry {}": "where(first, 0, a)",
    "is summed up {} from the first on": "a.cumsum(n)",
    "is shifted by one {} (earlier)": "roll(a, -1, n)",
    "is shifted by one {} (earlier), with zeros": "where(last, 0, roll(a, -1, n))",
    "has the last entry {} alone": "where(last, a, 0)",
    "lacks the last entry {}": "where(last, 0, a)",
    "is summed up {} from the last on": "flip(flip(a, n).cumsum(n), n)",
    "has its mean {} in every entry": "a.mean(n, keepdims=True) + 0 a",
    "has its sum {} in every entry": "a.sum(n, keepdims=True) + 0 a",
}
"""What may be done along an axis n of a result a, in words and as formulas."""


def _of_the_axes(name: str, right: Array, certified: Certificate) -> Edits:
    if 1 < right.ndim <= AXES:
        for order in permutations(range(right.ndim)):
            if order != tuple(range(right.ndim)):
                how = "is transposed" if right.ndim == 2 else f"has its axes in the order {order}"
                yield f"{name} {how}", right.transpose(order)
        if right.ndim == 2:
            label = f"{name} is stored in the other memory order (column by column)"
            yield label, right.ravel(order="F").reshape(right.shape)
    for axis, size in enumerate(right.shape):
        if size < 2:
            continue
        along = _along(axis, name, right, certified)
        for how, text in ALONG.items():
            yield f"{name} {how.format(along)}", along_axis(text, axis)(right)


def along_axis(text: str, axis: int) -> Callable[[Operand], Operand]:
    """What a formula of ``ALONG`` says, along an axis."""

    def edit(a: Operand) -> Operand:
        size = a.shape[axis]
        place = np.expand_dims(np.arange(size), tuple(range(1, a.ndim - axis)))
        return formula(text, "a, n, first, last")(a, axis, place == 0, place == size - 1)

    return edit


def _along(axis: int, name: str, right: Array, certified: Certificate) -> str:
    """An axis in words."""
    axes = axes_of(name, certified, right.shape) if isinstance(certified, Certified) else ()
    known = len(axes) == right.ndim and axes[axis].noun
    return f"along the {plural(axes[axis].noun)}" if known else f"along axis {axis}"


OF_THE_MATRIX = {
    "is transposed": "G.T",
    "has its lower triangle alone": "tril(G)",
    "has its upper triangle alone": "triu(G)",
    "has its lower triangle alone, without the diagonal": "tril(G, -1)",
    "has its upper triangle alone, without the diagonal": "triu(G, 1)",
    "has its diagonal alone": "diag(diag(G))",
    "has zeros on its diagonal": "G - diag(diag(G))",
    "is that of a symmetric matrix: G + G' - diag(G)": "G + G.T - diag(diag(G))",
    "is that of the lower triangle of a symmetric matrix": "tril(G + G.T) - diag(diag(G))",
    "is that of the upper triangle of a symmetric matrix": "triu(G + G.T) - diag(diag(G))",
    "is made symmetric: (G + G') / 2": "(G + G.T) / 2",
    "is made skew-symmetric: (G - G') / 2": "(G - G.T) / 2",
    "is made skew-symmetric: G - G'": "G - G.T",
}


def of_the_matrix(G: Array) -> Edits:
    """Edits of a square matrix."""
    yield from ((name, formula(text, "G")(G)) for name, text in OF_THE_MATRIX.items())


def _of_the_others(name: str, right: Array, certified: CertifiedFunction) -> Edits:
    for other, enclosure in certified.named().items():
        gradient = enclosure.value
        if other not in ("value", name):
            yield f"{name} holds the gradient {other}", gradient
            if gradient.ndim == 2:
                yield f"{name} holds the gradient {other}, transposed", gradient.T
    for other, value in certified.params.items():
        argument = parts(value).astype(float)
        if argument.shape == right.shape and right.ndim and np.ptp(argument):
            yield f"{name} is multiplied by {other}", right * argument
            yield f"{name} is divided by {other}", right / argument


def of_several(right: Params) -> Iterator[tuple[str, Params]]:
    """Two gradients that stand in each other's place, and all of them doubled or halved."""
    names = [name for name in right if name != "value"]
    for a, b in combinations(names, 2):
        if right[a].shape == right[b].shape:
            yield f"{a} and {b} stand in each other's place", {a: right[b], b: right[a]}
        elif right[a].shape == right[b].T.shape:
            label = f"{a} and {b} stand in each other's place, transposed"
            yield label, {a: right[b].T, b: right[a].T}
    for label, factor in (("doubled", 2.0), ("halved", 0.5)):
        yield f"every gradient is {label}", {name: factor * right[name] for name in names}


def other_cotangents(certified: CertifiedFunction) -> Iterator[tuple[str, Params]]:
    """The gradients of other sums of the result than the one that was asked for."""
    if certified.cotangent is None or not certified.cotangent.ndim:
        return
    for label, cotangent in (
        ("the cotangent is ignored: the gradients are those of the result's sum", 1.0),
        ("the gradients are those of the result's mean", 1 / max(certified.cotangent.size, 1)),
        ("the gradients are those of half the sum of the result's squares", None),
    ):
        if cotangent is None:
            value = certified.value.value
            weight = value if value.dtype == certified.cotangent.dtype else value.real
        else:
            weight = np.full(certified.cotangent.shape, cotangent)
        results = run_on(certified.function, certified.arguments, weight, floats)
        yield label, {name: np.asarray(value, float) for name, value in results.items()}


def floats(array: Array, name: str) -> Array:
    """A copy in float64, for a run of the function."""
    return np.array(array, float)
