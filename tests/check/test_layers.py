"""Certified functions judge the layers of PyTorch and JAX: right ones are explained by rounding,
planted bugs are not."""

from types import SimpleNamespace

import numpy as np
import pytest

from refnet.check.calls import judge
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.exact import certify_function, stop

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


def gated_unit(x, U, W, h, c):
    """A minimal gated unit over time: x (T, B, D), U (2H, H), W (2H, D), h (B, H).

    Zhou et al. (2016), Minimal gated unit for recurrent neural networks, eq. 4 to 6.
    """
    H = h.shape[1]
    for step in x:
        f = 1 / (1 + np.exp(-(step @ W[:H].T + h @ U[:H].T)))
        new = np.tanh(step @ W[H:].T + (f * h) @ U[H:].T)
        h = (1 - f) * h + f * new
    return (c * h).sum()


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
    gated_unit: arrays((7, 2, 3), (8, 4), (8, 3), (2, 4), (2, 4)),
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


def their_gated_unit(n, bug, x, U, W, h, c):
    for t in range(7):
        f = n.sigmoid(x[t] @ W[:4].T + h @ U[:4].T)
        inside = h if bug == "gate left out" else n.stop(f) * h if bug == "gate stopped" else f * h
        new = n.tanh(x[t] @ W[4:].T + inside @ (U[4:] if bug == "transposed" else U[4:].T))
        f = 1 - f if bug == "gate turned round" else f
        h = (1 - f) * (n.stop(h) if bug == "one step only" else h) + f * new
    return (c * h).sum()


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
        "mean not differentiated",
        "unbiased variance",
        "variance not differentiated",
        "eps outside the root",
        "bias before the scale",
    ),
    attention: (
        their_attention,
        "no root",
        "mask off by one",
        "mask as a factor",
        "softmax over queries",
        "probabilities not differentiated",
    ),
    gated_unit: (
        their_gated_unit,
        "gate left out",
        "gate stopped",
        "transposed",
        "gate turned round",
        "one step only",
    ),
    cosine: (
        their_cosine,
        "norm not differentiated",
        "one norm",
        "eps inside",
        "no root",
        "mean of the weights",
    ),
    sinkhorn: (
        their_sinkhorn,
        "one step",
        "columns first",
        "totals not differentiated",
        "gradient of the last step only",
        "scaled",
    ),
}


def in_torch(function, bug, inputs, dtype):
    torch = pytest.importorskip("torch")
    own = [torch.tensor(one.astype(dtype), requires_grad=True) for one in inputs]
    n = SimpleNamespace(
        mean=lambda x, axis: x.mean(axis, keepdim=True),
        stop=lambda x: x.detach(),
        array=lambda x: torch.tensor(x.astype(dtype)),
        einsum=torch.einsum,
        sqrt=torch.sqrt,
        exp=torch.exp,
        tanh=torch.tanh,
        sigmoid=torch.sigmoid,
        softmax=torch.softmax,
        logsumexp=lambda x, axis: torch.logsumexp(x, axis, keepdim=True),
    )
    value = function(n, bug, *own)
    value.backward()
    return value.detach().numpy(), [
        one.grad.numpy() if one.grad is not None else np.zeros(one.shape, dtype) for one in own
    ]


def in_jax(function, bug, inputs, dtype):
    jax = pytest.importorskip("jax")
    n = SimpleNamespace(
        mean=lambda x, axis: x.mean(axis, keepdims=True),
        stop=jax.lax.stop_gradient,
        array=lambda x: x.astype(dtype),
        einsum=jax.numpy.einsum,
        sqrt=jax.numpy.sqrt,
        exp=jax.numpy.exp,
        tanh=jax.numpy.tanh,
        sigmoid=jax.nn.sigmoid,
        softmax=jax.nn.softmax,
        logsumexp=lambda x, axis: jax.nn.logsumexp(x, axis, keepdims=True),
    )
    with jax.enable_x64(dtype == np.float64):
        own = [jax.numpy.asarray(one.astype(dtype)) for one in inputs]
        value, found = jax.value_and_grad(
            lambda *own: function(n, bug, *own), argnums=tuple(range(len(own)))
        )(*own)
        return np.asarray(value), [np.asarray(one) for one in found]


def verdict(layer, run, bug, dtype):
    inputs = [one.astype(dtype) for one in INPUTS[layer]]
    value, found = run(THEIRS[layer][0], bug, inputs, dtype)
    code = layer.__code__
    names = code.co_varnames[: code.co_argcount]
    return judge(
        layer, {"value": value, **{f"d{name}": one for name, one in zip(names, found)}}, *inputs
    )


@pytest.mark.parametrize(
    "run, dtype",
    [
        (in_torch, np.float32),
        (in_torch, np.float64),
        (in_jax, np.float64),
        pytest.param(in_jax, np.float32, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("layer", THEIRS)
def test_layers(layer, run, dtype):
    assert verdict(layer, run, "", dtype).verdict == EXPLAINED
    for bug in THEIRS[layer][1:]:
        assert verdict(layer, run, bug, dtype).verdict == NOT_ROUNDING, bug


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_layers_that_frameworks_ship(dtype):
    torch = pytest.importorskip("torch")
    F = torch.nn.functional

    def shipped(function, layer):
        inputs = [one.astype(dtype) for one in INPUTS[layer]]
        own = [torch.tensor(one, requires_grad=True) for one in inputs]
        (own[-1] * function(*own[:-1])).sum().backward()
        names = layer.__code__.co_varnames
        return judge(
            layer, {f"d{name}": one.grad.numpy() for name, one in zip(names, own)}, *inputs
        )

    assert shipped(lambda x, w, b: F.layer_norm(x, (8,), w, b, EPS), layer_norm).passed
    assert shipped(lambda a, b: F.cosine_similarity(a, b, dim=1), cosine).passed
    assert shipped(
        lambda *own: F.scaled_dot_product_attention(
            *(one.transpose(1, 2) for one in own), is_causal=True
        ).transpose(1, 2),
        attention,
    ).passed


@pytest.mark.parametrize("layer", INPUTS)
def test_they_are_certified_at_once(layer):
    """With the self-check: a central difference of balls and NumPy's own value."""
    assert certify_function(layer, *INPUTS[layer]).bits <= 2048  # gradients that are 0 included
