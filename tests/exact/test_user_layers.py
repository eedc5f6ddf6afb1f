"""Layers as users write them in NumPy: certified, the self-check included."""

import numpy as np
import pytest
from scipy.special import erf

from refnet.exact import certify_function
from support.arguments import refused

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(0)
MASK = np.arange(30).reshape(2, 3, 5) % 4 > 0


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def gelu(x):
    return (0.5 * x * (1 + erf(x / np.sqrt(2)))).sum()


def rms_norm(x, g):
    return (g * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6)).sum()


def rope(x):
    T, D = x.shape
    angle = np.outer(np.arange(T), 1.0 / 10000 ** (np.arange(0, D, 2) / D))
    y, even, odd = np.empty_like(x), x[:, ::2], x[:, 1::2]
    y[:, ::2] = even * np.cos(angle) - odd * np.sin(angle)
    y[:, 1::2] = even * np.sin(angle) + odd * np.cos(angle)
    return (y**3).sum()


def group_norm(x, w, b):
    g = x.reshape(len(x), 2, -1)
    g = (g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)
    return np.tanh(g.reshape(x.shape) * w[None, :, None] + b[None, :, None]).sum()


def cross_attention(q, k, v):
    s = np.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])
    s = np.where(MASK, s, -1e9)
    s -= s.max(axis=-1, keepdims=True)
    e = np.exp(s)
    return ((e / e.sum(-1, keepdims=True)) @ v * v[:, :1]).sum()


def welford(x):
    mean, m2 = 0.0, 0.0
    for n, value in enumerate(x, 1):
        d = value - mean
        mean += d / n
        m2 += d * (value - mean)
    return m2 / (len(x) - 1)


def linear_scan(a, b):
    p = np.exp(np.cumsum(np.log(a)))
    return (p * np.cumsum(b / p)).sum()


def conv1d(x, w):
    places = np.arange(x.shape[-1] - w.shape[-1] + 1)[:, None] + np.arange(w.shape[-1])
    return np.maximum(np.einsum("ctk,ock->ot", x[:, places], w), 0).sum()


def log_softmax(x, temperature):
    z = x / temperature
    z = z - np.max(z, axis=-1, keepdims=True)
    logs = z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))
    return -np.take_along_axis(logs, np.array([[0], [1], [2]]), axis=-1).mean()


def householder(v):
    Q = np.eye(v.shape[1])
    for u in v:
        Q = Q - 2 * np.outer(u, u @ Q) / (u @ u)
    return (Q**3).sum()


def distance(x, y):
    return np.hypot(np.diff(x, axis=0), np.diff(y, axis=0)).sum()


CASES = {
    gelu: (draw(3, 4),),
    rms_norm: (draw(3, 5), draw(5)),
    rope: (draw(4, 6),),
    group_norm: (draw(2, 4, 3), draw(4), draw(4)),
    cross_attention: (draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 4)),
    welford: (draw(6),),
    linear_scan: (abs(draw(5)) + np.float32(0.5), draw(5)),
    conv1d: (draw(2, 8), draw(3, 2, 3)),
    log_softmax: (draw(3, 4), np.float32(0.7)),
    householder: (draw(3, 4),),
    distance: (draw(4, 2), draw(4, 2)),
}


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_gradients_are_those_of_differences(f):
    """Besides the certificate's own check in balls: a central difference of the plain function."""
    arrays = [np.array(array, float) for array in CASES[f]]
    certified = certify_function(f, *CASES[f])
    assert certified.value.value == pytest.approx(f(*arrays), rel=1e-12)
    step = 1e-6
    for array, gradient in zip(arrays, certified.gradients.values()):
        for index in np.ndindex(array.shape):
            ends, value = [], array[index]
            for array[index] in (value + step, value - step):
                ends.append(f(*(a.copy() for a in arrays)))
            array[index] = value
            slope = (ends[0] - ends[1]) / (2 * step)
            assert gradient.value[index] == pytest.approx(slope, rel=1e-5, abs=1e-6), index


def test_a_mask_of_infinities_is_refused_with_what_to_write():
    with refused(r"meets -inf.* write np.where\(mask, np.exp\(s\), 0\)"):
        certify_function(lambda s: np.exp(np.where(MASK, s, -np.inf)).sum(), draw(2, 3, 5))
