"""Functions as people write them: buffers of np.zeros, names imported from SciPy, nested
parameters; and everything is put back."""

import math
import threading
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from numpy import zeros as nothing
from scipy.special import log_softmax, logsumexp, softmax as shares

from refnet.exact import certify_function
from refnet.exact.interception import CREATORS, recording
from support.arguments import refused
from support.balls import assert_rounding_is_small

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(5)
X, W = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 3))


class Layer(NamedTuple):
    W: np.ndarray
    b: np.ndarray


def buffered(x, p):
    h = np.zeros((len(x) + 1, 3))
    for t in range(len(x)):
        h[t + 1] = np.tanh(x[t] + h[t] @ p["W"] + p["b"][0])
    return h[-1].sum()


def running(x):
    total = np.full(3, 0.5)
    for row in x:
        total += row**2
    return total.sum()


def reflected(x):
    Q = np.eye(3)
    v = x[0] / math.sqrt((x[0] ** 2).sum())
    Q -= 2 * np.outer(v, v)
    out = np.zeros_like(X)
    out[...] = x @ Q
    return out[1].sum()


def joined(x):
    return (np.array([[row[0], 1.0] for row in x]) * np.asarray([x[0, 1], 2])).sum()


def of_scipy(x):
    top = logsumexp(x, axis=1) + log_softmax(x, axis=-1)[:, 0] * scipy.special.softmax(x)[0, 0]
    return top.sum() + shares(x, axis=0)[1, 1] + scipy.linalg.expm(x[:3])[0, 1] + math.erf(x[0, 0])


def linear_algebra(x):
    A, inverse = x[:3], scipy.linalg.inv(x[:3])
    values = scipy.linalg.eigh(A + A.T)[0] + scipy.linalg.svd(A)[1] + scipy.linalg.solve(A, x[3])
    return (inverse @ values).sum() + scipy.linalg.det(A) * scipy.linalg.norm(A, 2)


def by_name(x):
    out = nothing(3)
    out[1] = x[0, 0]
    return out.sum()


def of_lists(x):
    squares = [(row**2).sum() for row in x]
    gates = np.empty((2, 3))
    for k in range(2):
        gates[k] = x[k]
    return np.mean(squares) * np.max(squares) + np.sum([x[0], x[1]], axis=0)[2] + gates.sum()


def made_inside():
    from scipy.special import softmax

    return lambda x: softmax(x, axis=1)[0, 1]


def layers(x, net):
    for layer in net:
        x = np.tanh(x @ layer.W + layer.b)
    return x.sum()


CASES = {
    "buffered": (buffered, X, {"W": W, "b": [W[0], 3]}),
    "running": (running, X),
    "reflected": (reflected, X),
    "joined": (joined, X),
    "of scipy": (of_scipy, X),
    "linear algebra": (linear_algebra, X),
    "by name": (by_name, X),
    "of lists": (of_lists, X),
    "made inside": (made_inside(), X),
    "layers": (layers, X, (Layer(W, W[0]), Layer(W.T, W[1]))),
    "partial": (partial(layers, net=[Layer(W, W[0])]), X),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_as_people_write_them(name):
    """certify_function compares value and gradient with NumPy's own; rounding is as small as it
    has to be."""
    f, *arguments = CASES[name]
    assert_rounding_is_small(certify_function(f, *arguments))


def test_names_of_nested_arguments():
    certified = certify_function(buffered, X, {"W": W, "b": [W[0], 3]})
    assert list(certified.gradients) == list(certified.params) == ["x", "p.W", "p.b.0"]
    gradients = certify_function(layers, X, (Layer(W, W[0]), Layer(W.T, W[1]))).gradients
    assert list(gradients) == ["x", "net.0.W", "net.0.b", "net.1.W", "net.1.b"]


def originals():
    modules = (np, math, scipy.special, scipy.linalg)
    return [dict(vars(module)) for module in modules] + [nothing, shares]


def test_everything_is_put_back():
    before = originals()
    certify_function(buffered, X, {"W": W, "b": [W[0]]})

    def failing(x):
        h = np.zeros(3)
        h[0] = x[0, 0]
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        certify_function(failing, X)
    with refused("would become plain numbers", TypeError):
        certify_function(lambda x: float(x[0, 0]), X)
    assert originals() == before


def test_other_threads_and_libraries_get_the_originals():
    seen, inside, leave = [], threading.Event(), threading.Event()

    def waiting(x):
        h = np.zeros(3)
        h[0] = x[0, 0]
        inside.set()
        leave.wait(10)
        return h.sum()

    before = originals()
    first = threading.Thread(target=lambda: seen.append(certify_function(waiting, X)))
    first.start()
    assert inside.wait(10)
    assert all(type(getattr(np, name)) is not type(np.zeros((1,))) for name in CREATORS)
    assert type(np.zeros(3)) is type(nothing(3)) is np.ndarray
    assert type(np.array([1.0])) is np.ndarray and math.sqrt(4.0) == 2
    second = certify_function(by_name, X)  # leaves first
    leave.set()
    first.join()
    assert second.value.value == X[0, 0] and seen[0].value.value == X[0, 0]
    assert originals() == before
    with recording(by_name, lambda array, name: array):
        assert type(scipy.linalg.toeplitz([1.0, 2])) is np.ndarray
        assert type(np.zeros(2)) is not np.ndarray
