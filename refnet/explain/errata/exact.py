"""Small matrices and nets, and derivatives by dual numbers, for the errata's checks."""

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction as F

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


def two_layers() -> tuple[FeedforwardNet, Params]:
    """A softsign net with 2 inputs, 2 hidden units and 3 outputs."""
    return (
        FeedforwardNet((2, 2, 3), activation=SOFTSIGN),
        {"W1": W1, "b1": A1, "W2": rational((1, 2), (3, 4), (5, 6)), "b2": rational((7, 8, 9))[0]},
    )


def product_norms(activation: str, W: Array, steps: int, gain: float = 1) -> Array:
    """||dh_T / dh_t||_2 for t = 0 .. T of a net with this W (2, 2), fed so that ReLU keeps unit 0
    on and unit 1 off; ``gain`` is the slope of the identity."""
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS[activation], gain=gain, backend="reference")
    params = net.init(np.random.default_rng(0), np.float64)
    params |= {"Whh": W, "Wxh": np.array([[1.0], [-1.0]]), "bh": np.zeros(2)}
    jacobians = state_jacobians(net, params, np.ones((steps, 1, 1)))[:, 0]
    return np.asarray(np.linalg.norm(jacobians, 2, (1, 2)))
