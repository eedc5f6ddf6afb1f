"""Start values of weight matrices: name -> function(shape, rng, **options) -> float64.

``shape`` is (fan_out, fan_in): matrices act on columns, ``W x``. Each call draws from the
``numpy.random.Generator`` it is given, so the same seed gives the same bits.
Checked by: tests/matrices/test_initializers.py.
"""

from collections.abc import Callable
from functools import partial
from inspect import isfunction, signature

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import generator, number, short, whole
from refnet.common.names import Table
from refnet.common.process import serial_blas
from refnet.common.specs import Kind, read, signature_options

Shape = tuple[int, int]
Rng = np.random.Generator


def gaussian(shape: Shape, rng: Rng, sd: float = 0.1) -> Array:
    """Entries N(0, sd^2). Manchev & Spratling take sd .1 in II-A; for MNIST .001, but .01 for
    OINIT pixel by pixel.

    >>> gaussian((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """
    return rng.normal(0, sd, shape)


def uniform(shape: Shape, rng: Rng, limit: float = 0.1) -> Array:
    """Entries U(-limit, limit).

    >>> bool(abs(uniform((20, 30), np.random.default_rng(0), limit=0.5)).max() <= 0.5)
    True
    """
    return rng.uniform(-limit, limit, shape)


def glorot_normal(shape: Shape, rng: Rng, gain: float = 1) -> Array:
    """Entries normal with variance ``2 gain^2 / (fan_in + fan_out)`` (Glorot & Bengio 2010).

    >>> W = glorot_normal((300, 500), np.random.default_rng(0))
    >>> round(float(W.var()) * (300 + 500) / 2, 1)
    1.0
    """
    return rng.normal(0, gain * (2 / sum(shape)) ** 0.5, shape)


def glorot_uniform(shape: Shape, rng: Rng, gain: float = 1) -> Array:
    """The same variance, uniform: limits ``gain sqrt(6 / (fan_in + fan_out))``.

    >>> W = glorot_uniform((300, 500), np.random.default_rng(0))
    >>> bool(abs(W).max() <= (6 / 800) ** 0.5)
    True

    Source: Glorot & Bengio (2010), eq. 16; uniform, not Gaussian (erratum 10).
    """
    return uniform(shape, rng, gain * (6 / sum(shape)) ** 0.5)


def he(shape: Shape, rng: Rng, gain: float = 2**0.5) -> Array:
    """Entries N(0, gain^2 / fan_in); the gain sqrt(2) is for ReLU (He et al. 2015).

    >>> W = he((300, 500), np.random.default_rng(0))
    >>> round(float(W.var()) * 500, 1)
    2.0
    """
    return rng.normal(0, gain / shape[1] ** 0.5, shape)


def identity(shape: Shape, rng: Rng, scale: float = 1) -> Array:
    """``scale`` on the diagonal: the IRNN's start (Le et al. 2015), or a scaled one.

    A rectangular one with scale .9 is Orhan & Pitkow's input matrix: it feeds the first units of a
    chain.

    >>> identity((2, 3), np.random.default_rng(0), scale=0.5).tolist()
    [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]
    """
    return scale * np.eye(*shape)


@serial_blas
def orthogonal(shape: Shape, rng: Rng, gain: float = 1) -> Array:
    """``gain`` times a Haar-distributed orthogonal matrix, by QR of a Gaussian one.

    A tall matrix has orthonormal columns, a wide one orthonormal rows. QR is unique only with
    diag(R) > 0; LAPACK's signs depend on the matrix and give another distribution (erratum
    33), so the signs of diag(R) are moved into Q (Mezzadri 2007).

    >>> W = orthogonal((3, 5), np.random.default_rng(0))
    >>> bool(np.allclose(W @ W.T, np.eye(3)))
    True

    Checked by: tests/matrices/test_initializers.py::test_orthogonal_is_haar.
    """
    tall = (max(shape), min(shape))
    q, r = np.linalg.qr(rng.normal(size=tall))
    q *= np.where(np.diag(r) < 0, -gain, gain)
    return np.ascontiguousarray(q if shape == tall else q.T)


@serial_blas
def orthogonal_svd(shape: Shape, rng: Rng, gain: float = 1) -> Array:
    """The same distribution, by SVD of a Gaussian matrix: ``gain U V'``.

    The signs of u_i and v_i are arbitrary but common, so they cancel in the product; U or V
    by itself, as often used, carries LAPACK's choice (erratum 33). It is Haar because
    ``A U V' B`` is what ``A G B`` gives, and that has the distribution of G.

    >>> W = orthogonal_svd((5, 3), np.random.default_rng(0))
    >>> bool(np.allclose(W.T @ W, np.eye(3)))
    True

    Checked by: tests/matrices/test_initializers.py::test_orthogonal_is_haar.
    """
    u, _, vt = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    return np.ascontiguousarray(gain * (u @ vt))


def _square(shape: Shape, name: str) -> int:
    if shape[0] != shape[1]:
        raise ValueError(
            f"initialize: {name} needs a square matrix, not {shape}; name another "
            "initialiser for the matrices that are not recurrent"
        )
    return shape[0]


def rotations(shape: Shape, rng: Rng) -> Array:
    """2 x 2 rotation blocks on the diagonal, angles U(-pi, pi) (Henaff et al. 2016).

    >>> W = rotations((4, 4), np.random.default_rng(0))
    >>> bool(np.allclose(abs(np.linalg.eigvals(W)), 1))
    True
    """
    size = _square(shape, "rotations")
    if size % 2:
        raise ValueError(
            f"initialize: rotations come in pairs of units; {size} is odd, use {size + 1}"
        )
    angles = rng.uniform(-np.pi, np.pi, size // 2)
    first = np.arange(0, size, 2)
    out = np.zeros(shape)
    out[first, first] = out[first + 1, first + 1] = np.cos(angles)
    out[first + 1, first] = np.sin(angles)
    out[first, first + 1] = -np.sin(angles)
    return out


def chain(shape: Shape, rng: Rng, gain: float = 1.02, diagonal: float = 0) -> Array:
    """Unit i feeds unit i + 1: ``diagonal`` I + ``gain`` on the subdiagonal.

    Orhan & Pitkow (2020) write h W, with the superdiagonal; here W h needs the subdiagonal.
    A superdiagonal would pass what enters unit 0 to no other unit. With a diagonal it is the scaled
    identity and a chain that Orhan's post proposes.

    >>> chain((3, 3), np.random.default_rng(0), gain=2).tolist()
    [[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]

    Checked by: tests/matrices/test_initializers.py::test_chain.
    """
    size = _square(shape, "chain")
    return diagonal * np.eye(size) + gain * np.eye(size, k=-1)


def fbchain(
    shape: Shape, rng: Rng, feedback: float = 0.04, gain: float = 0.99, diagonal: float = 0
) -> Array:
    """A chain with ``feedback`` from unit i + 1 to unit i, on the superdiagonal.

    >>> fbchain((2, 2), np.random.default_rng(0), feedback=0.5, gain=2).tolist()
    [[0.0, 0.5], [2.0, 0.0]]
    """
    size = _square(shape, "fbchain")
    return chain(shape, rng, gain, diagonal) + feedback * np.eye(size, k=1)


def ramp(shape: Shape, rng: Rng, end: float = 0.01) -> Array:
    """Antisymmetric, growing with the distance from the diagonal: ``end (i - j) / (H - 1)``.

    Orhan & Pitkow's "mixed" start of an LSTM has it in the gates and a chain in the candidate;
    transposed here, as the chain is.

    >>> ramp((2, 2), np.random.default_rng(0), end=1).tolist()
    [[0.0, -1.0], [1.0, 0.0]]

    Checked by: tests/matrices/test_initializers.py::test_ramp.
    """
    size = _square(shape, "ramp")
    index = np.arange(size)
    return end * np.subtract.outer(index, index) / max(size - 1, 1)


_ENTRIES: tuple[Callable[..., Array], ...] = (
    gaussian,
    uniform,
    glorot_normal,
    glorot_uniform,
    he,
    identity,
    orthogonal,
    orthogonal_svd,
    rotations,
    chain,
    fbchain,
    ramp,
)


def _lacks(value: object) -> list[str]:
    if isfunction(value):
        options = [*signature(value).parameters.values()][2:]
        if all(each.default is not each.empty for each in options):
            return []
    return ["being a function of shape, rng and options with defaults"]


INITIALIZERS: Table[Callable[..., Array]] = Table(
    "initializer", {entry.__name__: entry for entry in _ENTRIES}, _lacks
)

SPEC = Kind(INITIALIZERS, partial(signature_options, given=2))
"""What the text "gaussian:sd=0.1" may hold."""


def initialize(name: str, shape: Shape, rng: Rng, **options: float) -> Array:
    """A new float64 (fan_out, fan_in) matrix, C-ordered, by the initialiser of that name or spec.

    Raises ValueError for a name, shape or option that the initialiser does not take.

    >>> initialize("identity:scale=0.5", (1, 1), np.random.default_rng(0)).tolist()
    [[0.5]]
    >>> W = initialize("orthogonal", (3, 3), np.random.default_rng(0))
    >>> bool(np.allclose(W.T @ W, np.eye(3)))
    True

    Checked by: tests/matrices/test_initializers.py::test_errors.
    """
    name, given = read("initialize:", SPEC, name)
    options = given | options
    generator("initialize: rng", rng)
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise ValueError(
            f"initialize: shape is {short(shape)}; need (fan_out, fan_in), each at least 1"
        )
    shape = (whole("initialize: shape[0]", shape[0]), whole("initialize: shape[1]", shape[1]))
    known = list(signature(INITIALIZERS[name]).parameters)[2:]
    for option, value in options.items():
        if option not in known:
            raise ValueError(
                f"initialize: {name} takes {' and '.join(known) or 'no options'}, not {option!r}"
            )
        number(f"initialize: {name}'s {option}", value, "(-inf, inf)")
        if option in ("sd", "limit") and value < 0:
            raise ValueError(f"initialize: {name}'s {option} is {value}; need at least 0")
    return INITIALIZERS[name](shape, rng, **options)
