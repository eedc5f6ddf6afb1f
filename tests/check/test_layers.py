"""Certified functions judge the layers of PyTorch and JAX: right ones are explained by rounding,
planted bugs are not."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from refnet.check.calls import judge
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.exact import certify_function, stop
from support.marks import both_dtypes

pytestmark = pytest.mark.needs("flint")

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


# In a framework: ``n`` holds its functions, and ``bug`` one line that is wrong.


def their_layer_norm(n, bug, x, w, b, c):
    d = x - n.mean(x, -1)
    if bug == "mean not differentiated":
        d = x - n.stop(n.mean(x, -1))
    variance = n.mean(d * d, -1) * (8 / 7 if bug == "unbiased variance" else 1)
    if bug == "variance not differentiated":
        variance = n.stop(variance)
    root = n.sqrt(variance) + EPS if bug == "eps outside the root" else n.sqrt(variance + EPS)
    y = (d / root + b) * w if bug == "bias before the scale" else d / root * w + b
    return (c * y).sum()


def their_attention(n, bug, q, k, v, c):
    scores = n.einsum("bthd,bshd->bhts", q, k) / (4 if bug == "no root" else 2)
    causal = np.tri(6, k=-1 if bug == "mask off by one" else 0)
    causal[0, 0] = 1
    masked = scores - 1000 * n.array(1 - causal)
    if bug == "mask as a factor":
        masked = scores * n.array(causal)
    p = n.softmax(masked, 2 if bug == "softmax over queries" else 3)
    if bug == "probabilities not differentiated":
        p = n.stop(p)
    return (c * n.einsum("bhts,bshd->bthd", p, v)).sum()


def their_cosine(n, bug, a, b, c):
    squares = (a * a).sum(1) * (b * b).sum(1)
    if bug == "norm not differentiated":
        squares = n.stop(squares)
    if bug == "one norm":
        squares = (a * a).sum(1) ** 2
    if bug == "eps inside":
        squares = squares + 1e-4
    y = (a * b).sum(1) / (squares if bug == "no root" else n.sqrt(squares))
    return ((c.sum() / 4 if bug == "mean of the weights" else c) * y).sum()


def their_sinkhorn(n, bug, S, c):
    for step in range(1 if bug == "one step" else 2):
        for axis in (0, 1) if bug == "columns first" else (1, 0):
            total = n.logsumexp(S, axis)
            if bug == "totals not differentiated":
                total = n.stop(total)
            if bug == "gradient of the last step only" and not step:
                total = n.stop(total)
            S = S - total
    return (c * (n.exp(S) * (1 + 1e-4) if bug == "scaled" else n.exp(S))).sum()


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


def in_torch(function, bug, inputs, dtype):
    import torch

    tensors = [torch.tensor(value, requires_grad=True) for value in inputs]
    n = SimpleNamespace(
        **{name: getattr(torch, name) for name in "einsum sqrt exp softmax".split()},
        mean=partial(torch.mean, keepdim=True),
        stop=torch.detach,
        array=lambda x: torch.tensor(x.astype(dtype)),
        logsumexp=partial(torch.logsumexp, keepdim=True),
    )
    value = function(n, bug, *tensors)
    grads = torch.autograd.grad(value, tensors, materialize_grads=True)
    return value.detach().numpy(), [grad.numpy() for grad in grads]


def in_jax(function, bug, inputs, dtype):
    import jax

    n = SimpleNamespace(
        **{name: getattr(jax.numpy, name) for name in "einsum sqrt exp".split()},
        mean=partial(jax.numpy.mean, keepdims=True),
        stop=jax.lax.stop_gradient,
        array=lambda x: x.astype(dtype),
        softmax=jax.nn.softmax,
        logsumexp=partial(jax.nn.logsumexp, keepdims=True),
    )
    with jax.enable_x64(dtype == np.float64):
        derive = jax.value_and_grad(partial(function, n, bug), argnums=tuple(range(len(inputs))))
        value, grads = derive(*map(jax.numpy.asarray, inputs))
        return np.asarray(value), [np.asarray(grad) for grad in grads]


def named(layer, gradients):
    return {f"d{name}": value for name, value in zip(layer.__code__.co_varnames, gradients)}


def verdict(layer, run, bug, dtype):
    inputs = [value.astype(dtype) for value in INPUTS[layer]]
    value, gradients = run(THEIRS[layer][0], bug, inputs, dtype)
    return judge(layer, {"value": value, **named(layer, gradients)}, *inputs).verdict


TORCH, JAX = pytest.mark.needs("torch"), pytest.mark.needs("jax")


@pytest.mark.parametrize(
    "run, dtype",
    [
        pytest.param(in_torch, np.float32, marks=TORCH),
        pytest.param(in_torch, np.float64, marks=TORCH),
        pytest.param(in_jax, np.float64, marks=JAX),
        pytest.param(in_jax, np.float32, marks=[JAX, pytest.mark.slow]),
    ],
)
@pytest.mark.parametrize("layer", THEIRS)
def test_layers(layer, run, dtype):
    assert verdict(layer, run, "", dtype) == EXPLAINED
    for bug in THEIRS[layer][1].split(", "):
        assert verdict(layer, run, bug, dtype) == NOT_ROUNDING, bug


@pytest.mark.needs("torch")
@both_dtypes
def test_the_layers_that_frameworks_ship(dtype):
    import torch
    from torch.nn.functional import (
        cosine_similarity,
        layer_norm as shipped_norm,
        scaled_dot_product_attention,
    )

    def their_attention(*given):
        heads = (value.transpose(1, 2) for value in given)
        return scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)

    for layer, function in (
        (layer_norm, lambda x, w, b: shipped_norm(x, (8,), w, b, EPS)),
        (cosine, partial(cosine_similarity, dim=1)),
        (attention, their_attention),
    ):
        inputs = [value.astype(dtype) for value in INPUTS[layer]]
        tensors = [torch.tensor(value, requires_grad=True) for value in inputs]
        (tensors[-1] * function(*tensors[:-1])).sum().backward()
        gradients = named(layer, [value.grad.numpy() for value in tensors])
        assert judge(layer, gradients, *inputs).passed


@pytest.mark.parametrize("layer", INPUTS)
def test_layers_are_certified_at_once(layer):
    """With the self-check: a central difference of balls and NumPy's own value."""
    assert certify_function(layer, *INPUTS[layer]).bits <= 2048  # gradients that are 0 included
