"""Layers written in PyTorch are judged by certified functions: right ones are explained by
rounding, planted bugs are not."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import (
    cosine_similarity,
    layer_norm as shipped_norm,
    scaled_dot_product_attention,
)

from refnet.check.calls import judge
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.exact import certify_function, stop
from support.marks import both_dtypes

pytestmark = pytest.mark.needs("torch", "flint")

EPS = 2.0**-10


def layer_norm(x, w, b, c):
    d = x - x.mean(axis=-1, keepdims=True)
    variance = (d * d).mean(axis=-1, keepdims=True)
    return (c * (d / np.sqrt(variance + EPS) * w + b)).sum()


def attention(q, k, v, c):
    """q, k, v: (B, T, heads, D)."""
    scores = np.einsum("bthd,bshd->bhts", q, k) / 2  # the root of D = 4
    scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -1000)
    e = np.exp(scores - stop(scores.max(axis=-1, keepdims=True)))
    return (c * np.einsum("bhts,bshd->bthd", e / e.sum(axis=-1, keepdims=True), v)).sum()


def cosine(a, b, c):
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (c * ((a * b).sum(axis=1) / norms)).sum()


def sinkhorn(S, c):
    """Two steps that bring the rows and columns of exp(S) to sums of 1, by their logarithms."""
    for _ in range(2):
        for axis in (1, 0):
            top = stop(S.max(axis=axis, keepdims=True))
            S = S - top - np.log(np.exp(S - top).sum(axis=axis, keepdims=True))
    return (c * np.exp(S)).sum()


def arrays(*shapes):
    rng = np.random.default_rng(4)
    return [rng.normal(size=shape) for shape in shapes]


INPUTS = {
    layer_norm: arrays((5, 8), 8, 8, (5, 8)),
    attention: arrays(*[(2, 6, 2, 4)] * 4),
    cosine: arrays((4, 6), (4, 6), 4),
    sinkhorn: arrays((4, 4), (4, 4)),
}


# In PyTorch: ``bug`` is one line that is wrong.


def their_layer_norm(bug, x, w, b, c):
    mean = x.mean(-1, keepdim=True)
    d = x - (mean.detach() if bug == "mean not differentiated" else mean)
    variance = (d * d).mean(-1, keepdim=True) * (8 / 7 if bug == "unbiased variance" else 1)
    if bug == "variance not differentiated":
        variance = variance.detach()
    root = variance.sqrt() + EPS if bug == "eps outside the root" else (variance + EPS).sqrt()
    y = (d / root + b) * w if bug == "bias before the scale" else d / root * w + b
    return (c * y).sum()


def their_attention(bug, q, k, v, c):
    scores = torch.einsum("bthd,bshd->bhts", q, k) / (4 if bug == "no root" else 2)
    causal = np.tri(6, k=-1 if bug == "mask off by one" else 0)
    causal[0, 0] = 1
    causal = torch.tensor(causal, dtype=q.dtype)
    masked = scores * causal if bug == "mask as a factor" else scores - 1000 * (1 - causal)
    p = masked.softmax(2 if bug == "softmax over queries" else 3)
    if bug == "probabilities not differentiated":
        p = p.detach()
    return (c * torch.einsum("bhts,bshd->bthd", p, v)).sum()


def their_cosine(bug, a, b, c):
    squares = (a * a).sum(1) * (b * b).sum(1)
    if bug == "norm not differentiated":
        squares = squares.detach()
    if bug == "one norm":
        squares = (a * a).sum(1) ** 2
    if bug == "eps inside":
        squares = squares + 1e-4
    y = (a * b).sum(1) / (squares if bug == "no root" else squares.sqrt())
    return ((c.sum() / 4 if bug == "mean of the weights" else c) * y).sum()


def their_sinkhorn(bug, S, c):
    for step in range(1 if bug == "one step" else 2):
        for axis in (0, 1) if bug == "columns first" else (1, 0):
            total = S.logsumexp(axis, keepdim=True)
            if bug == "totals not differentiated":
                total = total.detach()
            if bug == "gradient of the last step only" and not step:
                total = total.detach()
            S = S - total
    return (c * S.exp() * (1 + 1e-4 if bug == "scaled" else 1)).sum()


THEIRS = {
    layer_norm: (
        their_layer_norm,
        "mean not differentiated, unbiased variance, variance not differentiated, "
        "eps outside the root, bias before the scale",
    ),
    attention: (
        their_attention,
        "no root, mask off by one, mask as a factor, softmax over queries, "
        "probabilities not differentiated",
    ),
    cosine: (
        their_cosine,
        "norm not differentiated, one norm, eps inside, no root, mean of the weights",
    ),
    sinkhorn: (
        their_sinkhorn,
        "one step, columns first, totals not differentiated, gradient of the last step only, "
        "scaled",
    ),
}


def named(layer, gradients):
    return {f"d{name}": value for name, value in zip(layer.__code__.co_varnames, gradients)}


def verdict(layer, function, dtype):
    """On a function in PyTorch."""
    inputs = [value.astype(dtype) for value in INPUTS[layer]]
    tensors = [torch.tensor(value, requires_grad=True) for value in inputs]
    value = function(*tensors)
    gradients = torch.autograd.grad(value, tensors, materialize_grads=True)
    theirs = named(layer, [gradient.numpy() for gradient in gradients])
    return judge(layer, {"value": value.detach().numpy(), **theirs}, *inputs).verdict


@both_dtypes
@pytest.mark.parametrize("layer", THEIRS)
def test_layers(layer, dtype):
    theirs, bugs = THEIRS[layer]
    assert verdict(layer, partial(theirs, ""), dtype) == EXPLAINED
    for bug in bugs.split(", "):
        assert verdict(layer, partial(theirs, bug), dtype) == NOT_ROUNDING, bug


def shipped_attention(*given):
    heads = (value.transpose(1, 2) for value in given)
    return scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)


@both_dtypes
@pytest.mark.parametrize(
    "layer, function",
    [
        (layer_norm, lambda x, w, b: shipped_norm(x, (8,), w, b, EPS)),
        (cosine, partial(cosine_similarity, dim=1)),
        (attention, shipped_attention),
    ],
)
def test_the_layers_that_frameworks_ship(layer, function, dtype):
    assert (
        verdict(layer, lambda *given: (given[-1] * function(*given[:-1])).sum(), dtype) == EXPLAINED
    )


@pytest.mark.parametrize("layer", INPUTS)
def test_layers_are_certified_at_once(layer):
    """With the self-check: a central difference of balls and NumPy's own value."""
    assert certify_function(layer, *INPUTS[layer]).bits <= 2048  # gradients that are 0 included
