"""A function's right result reported in another way: axes permuted, another argument's gradient in
its place, a factor, a part left out.

Checked by: tests/check/test_function_mistakes.py.
"""

from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from refnet.batch import Array, Params
from refnet.exact.functions import CertifiedFunction
from refnet.exact.running import parts, run_on

__all__ = ["of_one", "of_several", "other_cotangents", "sizes"]

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


def of_one(name: str, right: Array, certified: CertifiedFunction) -> Edits:
    """Edits of the value, or of one gradient, without a free constant."""
    what = "the value" if name == "value" else name
    yield f"{what} has the wrong sign", -right
    yield f"{what} is doubled", 2 * right
    yield f"{what} is halved", right / 2
    if name == "value":
        for text, size in sizes(certified).items():
            yield f"the value is {size} = {text} times the right one", size * right
            yield f"the value is 1 / {size} = 1 / {text} times the right one", right / size
        return
    yield f"the gradient {name} is missing (zero)", np.zeros_like(right)
    given = certified.params[name[1:]]
    if given.dtype.kind == "c":
        yield f"{name} is conjugated, which is JAX's convention", right * np.array([1.0, -1.0])
    yield from _of_the_axes(name, right)
    yield from _of_the_matrix(name, right)
    yield from _of_the_others(name, right, certified)


def _of_the_axes(name: str, right: Array) -> Edits:
    if 1 < right.ndim <= AXES:
        for order in permutations(range(right.ndim)):
            if order != tuple(range(right.ndim)):
                how = "is transposed" if right.ndim == 2 else f"has its axes in the order {order}"
                yield f"{name} {how}", right.transpose(order)
        label = f"{name} is stored in the other memory order (column by column)"
        yield label, right.ravel(order="F").reshape(right.shape)
    for axis, size in enumerate(right.shape):
        if size < 2:
            continue
        along = f"along axis {axis}"
        yield f"{name} is reversed {along}", np.flip(right, axis)
        for label, by in (("later", 1), ("earlier", -1)):
            yield f"{name} is shifted by one {along} ({label})", np.roll(right, by, axis)
            first = np.arange(size) == (0 if by > 0 else size - 1)
            edge = np.expand_dims(first, tuple(range(1, right.ndim - axis)))
            shifted = np.where(edge, 0, np.roll(right, by, axis))
            yield f"{name} is shifted by one {along} ({label}), with zeros", shifted
            end = "first" if by > 0 else "last"
            yield f"{name} has the {end} entry {along} alone", np.where(edge, right, 0)
            yield f"{name} lacks the {end} entry {along}", np.where(edge, 0, right)
        mean = np.broadcast_to(right.mean(axis=axis, keepdims=True), right.shape)
        yield f"{name} has its mean {along} in every entry", mean
        yield f"{name} has its sum {along} in every entry", mean * size
        yield f"{name} is summed up {along}", np.cumsum(right, axis)


def _of_the_matrix(name: str, right: Array) -> Edits:
    if right.ndim != 2 or right.shape[0] != right.shape[1]:
        return
    yield f"{name} has its lower triangle alone", np.tril(right)
    yield f"{name} has its upper triangle alone", np.triu(right)
    yield f"{name} has its diagonal alone", np.diag(np.diag(right))
    yield f"{name} is made symmetric: (G + G') / 2", (right + right.T) / 2
    yield f"{name} is made skew-symmetric: (G - G') / 2", (right - right.T) / 2
    yield f"{name} is made skew-symmetric: G - G'", right - right.T


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
        results = run_on(certified.function, certified.arguments, weight, _floats)
        yield label, {name: np.asarray(value, float) for name, value in results.items()}


def _floats(array: Array, name: str) -> Array:
    return np.array(array, float)
