"""Products of recorded arrays, each made of matrix products.

Checked by: tests/exact/test_recorder.py.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from refnet.batch import Array
from refnet.exact.elementwise import both
from refnet.exact.recorder import Operand, Recorded, derived, rearranged
from refnet.exact.reductions import regrouped, sum_of
from refnet.maths import numeric


def swapped(v: Array) -> Array:
    """Each matrix transposed."""
    return np.swapaxes(v, -1, -2)


def matmul_raw(a: Array, b: Array) -> Array:
    """Products of the last two axes, one for each place on the others."""
    if a.dtype.kind == b.dtype.kind == "f":
        return np.asarray(a @ b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (
        np.broadcast_to(m, lead + m.shape[-2:]).reshape(prod(lead), *m.shape[-2:]) for m in (a, b)
    )
    parts = [numeric.matmul(left[n], right[n]) for n in range(len(left))]
    shape = *lead, a.shape[-2], b.shape[-1]
    return np.stack(parts).reshape(shape) if parts else np.empty(shape, object)


def matmul(a: Operand, b: Operand) -> Operand:
    """``np.matmul``, recorded."""
    a, b = both(a, b)
    if a.ndim == 1:
        return matmul(a[None], b)[..., 0, :] if b.ndim > 1 else sum_of(a * b)
    if b.ndim == 1:
        return matmul(a, b[:, None])[..., 0]
    u, v = a.node, b.node
    return derived(
        a,
        matmul_raw(u.raw, v.raw),
        "np.matmul",
        (u, lambda g: matmul_raw(g, swapped(v.raw))),
        (v, partial(matmul_raw, swapped(u.raw))),
    )


def tensordot(a: Operand, b: Operand, axes: Operand = 2) -> Operand:
    """``np.tensordot``, recorded."""
    left, right = (
        ([*range(np.ndim(a) - axes, np.ndim(a))], [*range(axes)])
        if isinstance(axes, int)
        else ([*np.atleast_1d(side)] for side in axes)
    )
    first = [chr(97 + n) for n in range(np.ndim(a))]
    second = [chr(97 + np.ndim(a) + n) for n in range(np.ndim(b))]
    for i, j in zip(left, right):
        second[j] = first[i]
    gone = {first[i] for i in left}
    out = "".join(c for c in first + second if c not in gone)
    return einsum(f"{''.join(first)},{''.join(second)}->{out}", a, b)


def dot(a: Operand, b: Operand, out: None = None) -> Operand:
    """``np.dot``, recorded."""
    if not (np.ndim(a) and np.ndim(b)):
        return a * b
    return tensordot(a, b, (-1, -1 if np.ndim(b) == 1 else -2))


def inner(a: Operand, b: Operand) -> Operand:
    """``np.inner``, recorded."""
    return tensordot(a, b, (-1, -1)) if np.ndim(a) and np.ndim(b) else a * b


def einsum(rule: str, *operands: Operand, optimize: object = False) -> Operand:
    """``np.einsum``, recorded."""
    if not isinstance(rule, str):
        raise TypeError(
            "np.einsum with lists of axes is not recorded; write them as a rule, such "
            "as 'ij,jk->ik'"
        )
    shapes = [np.shape(operand) for operand in operands]
    terms, out = _written_out(rule.replace(" ", ""), [len(shape) for shape in shapes])
    diagonals = [_diagonals(x, term) for x, term in zip(both(*operands), terms)]
    if len(terms) == len(operands):
        operands = tuple(x for x, _ in diagonals)
        terms = [term for _, term in diagonals]
        shapes = [np.shape(operand) for operand in operands]
    sizes = {pair for term, shape in zip(terms, shapes) for pair in zip(term, shape)}
    if (
        any(len(set(term)) < len(term) for term in (*terms, out))
        or [*map(len, terms)] != [*map(len, shapes)]
        or len(sizes) > len(dict(sizes))
        or not set(out) <= set(dict(sizes))
    ):
        raise TypeError(
            f"np.einsum {rule!r} of the shapes {shapes} is not recorded; known: rules "
            "with a letter for each axis, of one size"
        )
    (x, *others), letters, rest = both(*operands), terms[0], terms[1:]
    for n, (y, term) in enumerate(zip(others, rest)):
        later = set(out).union(*rest[n + 1 :])
        (x, letters), (y, term) = (
            _summed(x, letters, set(term) | later),
            _summed(y, term, set(letters) | later),
        )
        x, letters = _pair(x, letters, y, term, later)
    x, letters = _summed(x, letters, set(out))
    order = [letters.index(c) for c in out]
    return rearranged(x, "np.einsum", np.ndarray.transpose, order)


def _written_out(rule: str, axes: list[int]) -> tuple[list[str], str]:
    """The terms and the result, with letters for ``...``."""
    left, arrow, out = rule.partition("->")
    terms, most = left.split(","), 0
    for n, (term, ndim) in enumerate(zip(terms, axes)):
        if "..." in term:
            more = max(ndim - len(term) + 3, 0)
            most = max(most, more)
            terms[n] = term.replace("...", ELLIPSIS[len(ELLIPSIS) - more :])
    every = ELLIPSIS[len(ELLIPSIS) - most :]
    if not arrow:
        letters = "".join(terms)
        out = "..." + "".join(c for c in sorted({*letters} - {*every}) if letters.count(c) == 1)
    return terms, out.replace("...", every)


def _diagonals(x: Recorded, term: str) -> tuple[Operand, str]:
    """x with each letter once: of two axes alike the diagonal."""
    for c in term:
        while term.count(c) > 1 and len(term) == x.ndim:
            first, second = term.index(c), term.rindex(c)
            if x.shape[first] != x.shape[second]:
                break
            x = np.diagonal(x, 0, first, second)  # type: ignore[assignment]
            term = "".join(d for n, d in enumerate(term) if n not in (first, second)) + c
    return x, term


ELLIPSIS = "ZYXWVUTS"
"""The letters that stand for the axes of ``...``, the last ones last."""


def _summed(x: Recorded, letters: str, keep: set[str]) -> tuple[Operand, str]:
    axes = tuple(n for n, c in enumerate(letters) if c not in keep)
    return (sum_of(x, axes) if axes else x), "".join(c for c in letters if c in keep)


def _pair(x: Recorded, left: str, y: Operand, right: str, later: set[str]) -> tuple[Operand, str]:
    """The product of two terms, summed over the letters that both have and none needs later."""
    batch = [c for c in left if c in right and c in later]
    inner = [c for c in left if c in right and c not in later]
    left_only, right_only = [c for c in left if c not in right], [c for c in right if c not in left]
    sizes = {**dict(zip(left, x.shape)), **dict(zip(right, y.shape))}

    def as_matrices(z: Operand, letters: str, *groups: list[str]) -> Operand:
        order = [letters.index(c) for c in batch + groups[0] + groups[1]]
        shape = [sizes[c] for c in batch] + [prod(sizes[c] for c in group) for group in groups]
        return rearranged(z, "np.einsum", regrouped, order, shape)

    product = matmul(
        as_matrices(x, left, left_only, inner), as_matrices(y, right, inner, right_only)
    )
    letters = batch + left_only + right_only
    shape = [sizes[c] for c in letters]
    return rearranged(product, "np.einsum", np.ndarray.reshape, shape), "".join(letters)
