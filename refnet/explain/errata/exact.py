"""Small matrices and nets, and derivatives by dual numbers, for the errata's checks."""

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction as F
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.dual import dual_array, parts
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.states import state_jacobians

SOFTSIGN = ACTIVATIONS["softsign"]


def rational(*rows: tuple[F | int, ...]) -> Array:
    """A matrix of Fractions."""
    return np.array([[F(value) for value in row] for row in rows], object)


W1 = rational((1, -2), (3, F(1, 2)))
W2 = rational((2, 1), (-1, F(1, 3)))
ROTATION = rational((F(3, 5), F(-4, 5)), (F(4, 5), F(3, 5)))
SHEAR = rational((1, 1), (0, 1))
A1 = rational((F(1, 2), -3))[0]
"""A bias or a pre-activation."""
NILPOTENT = np.array([[2.0, 2.0], [-2.0, -2.0]])


def identity(n: int) -> Array:
    """I (n, n) of Fractions."""
    return rational(*(tuple(int(i == j) for j in range(n)) for i in range(n)))


def jacobian(function: Callable[[Array], Array], at: Array) -> Array:
    """d function / d at, exact: one push of dual numbers for each column."""
    columns = [parts(function(dual_array(at, direction)))[1] for direction in identity(len(at))]
    return np.stack(columns, axis=1)


def softsign(a: Array) -> Array:
    """refnet's softsign of every entry."""
    return SOFTSIGN.forward(a, {})


def slopes(a: Array) -> Array:
    """Its derivatives by dual numbers, as a diagonal matrix."""
    return jacobian(softsign, a)


def every_sign(*shapes: tuple[int, int]) -> Iterator[list[Array]]:
    """All matrices of those shapes with entries +-1: mean 0, variance 1, independent."""
    sizes = [rows * columns for rows, columns in shapes]
    for signs in itertools.product((F(-1), F(1)), repeat=sum(sizes)):
        pieces = np.split(np.array(signs), np.cumsum(sizes)[:-1])
        yield [piece.reshape(shape) for piece, shape in zip(pieces, shapes)]


class TwoLayers(NamedTuple):
    """A softsign net with 2 inputs, 2 hidden units and 3 outputs, at ``x = (1/2, -3)``: its
    parameters and outputs, v_1, and the gradients for dE/dv_2 = g."""

    p: Params
    outputs: Array
    v1: Array
    g: Array
    grads: Params


def two_layers() -> TwoLayers:
    """The net and its passes."""
    net = FeedforwardNet((2, 2, 3), activation=SOFTSIGN)
    W2, b2 = rational((1, 2), (3, 4), (5, 6)), rational((7, 8, 9))[0]
    p = {"W1": W1, "b1": A1, "W2": W2, "b2": b2}
    x, g = rational((F(1, 2), -3)), rational((2, -5, F(1, 2)))
    outputs, tape = net.forward(p, x)
    return TwoLayers(p, outputs[0], W1 @ x[0] + A1, g[0], net.backward(p, tape, g))


def mean_squares(first: int, second: int) -> tuple[F, F]:
    """E v_2^2 and E (dE/dv_1)^2 over all linear nets of 3, 2 and 1 units whose weights have these
    sizes, with inputs of 1 and dE/dv_2 = 1."""
    net = FeedforwardNet((3, 2, 1), activation=ACTIVATIONS["identity"])
    forward = backward = count = F(0)
    for A, B in every_sign((2, 3), (1, 2)):
        p = {"W1": first * A, "b1": rational((0, 0))[0], "W2": second * B, "b2": rational((0,))[0]}
        outputs, tape = net.forward(p, rational((1, 1, 1)))
        forward += (outputs**2).sum()
        backward += (net.backward(p, tape, rational((1,)))["b1"] ** 2).sum() / 2
        count += 1
    return forward / count, backward / count


def product_norms(activation: str, W: Array, steps: int, gain: float = 1) -> Array:
    """||dh_T / dh_t||_2 for t = 0 .. T of a net with this W (2, 2), fed so that ReLU keeps unit 0
    on and unit 1 off; ``gain`` is the slope of the identity."""
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS[activation], gain=gain, backend="reference")
    params = net.init(np.random.default_rng(0), np.float64)
    params |= {"Whh": W, "Wxh": np.array([[1.0], [-1.0]]), "bh": np.zeros(2)}
    jacobians = state_jacobians(net, params, np.ones((steps, 1, 1)))[:, 0]
    return np.asarray(np.linalg.norm(jacobians, 2, (1, 2)))
