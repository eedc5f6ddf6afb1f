"""Start values: their distributions, shapes and orientation.

A statistical test compares the mean of N independent draws with its exact value and takes
5 standard errors (of the exact variance) as the bound: a correct sampler fails one such
comparison in 2 million, and the seeds are fixed.
"""

import numpy as np
import pytest

from refnet.matrices.initializers import INITIALIZERS, initialize
from support.arguments import refused
from support.drawn import matrix
from support.haar import haar_failures, near


def sample(function, draws=4000, n=8, seed=1):
    rng = np.random.default_rng(seed)
    return np.array([function((n, n), rng) for _ in range(draws)])


@pytest.mark.parametrize("name", ["orthogonal", "orthogonal_svd"])
def test_orthogonal_is_haar(name):
    assert haar_failures(sample(INITIALIZERS[name])) == []


def test_wrong_signs_are_not_haar():
    """Erratum 33: LAPACK's signs, taken as they come, are rejected, and so are others."""

    def qr(shape, rng):
        return np.linalg.qr(rng.normal(size=shape))[0]

    def rows_positive(shape, rng):
        q = initialize("orthogonal", shape, rng)
        return q * np.sign(q[:, :1])

    def rotation(shape, rng):
        q = initialize("orthogonal", shape, rng)
        q[0] *= np.linalg.det(q)
        return q

    assert {"trace of power 1", "det", "mean"} <= set(haar_failures(sample(qr)))
    assert "mean" in haar_failures(sample(rows_positive))
    assert haar_failures(sample(rotation)) == ["det"]
    assert haar_failures(sample(INITIALIZERS["rotations"]))


@pytest.mark.parametrize("name", ["orthogonal", "orthogonal_svd"])
@pytest.mark.parametrize("shape", [(7, 7), (12, 5), (5, 12), (1, 1), (1, 4), (3, 1)])
@pytest.mark.parametrize("gain", [1, 0.5])
def test_semi_orthogonal(name, shape, gain):
    W = matrix(name, shape, gain=gain)
    gram = W @ W.T if shape[0] <= shape[1] else W.T @ W
    # Householder QR and SVD are orthogonal to a small multiple of n eps; 8 leaves room for it
    error = abs(gram - gain**2 * np.eye(len(gram))).max()
    assert error <= 8 * max(shape) * np.finfo(float).eps
    assert W.shape == shape and W.flags.c_contiguous


MOMENTS = {
    # options, shape, variance, kurtosis E x^4 / Var^2
    "gaussian": ({"sd": 0.3}, (200, 300), 0.09, 3),
    "uniform": ({"limit": 0.6}, (200, 300), 0.12, 9 / 5),
    "glorot_normal": ({"gain": 2}, (200, 300), 4 * 2 / 500, 3),
    "glorot_uniform": ({"gain": 2}, (200, 300), 4 * 2 / 500, 9 / 5),
    "he": ({}, (200, 300), 2 / 300, 3),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    options, shape, variance, kurtosis = MOMENTS[name]
    W = matrix(name, shape, 2, **options)
    assert near(W.mean(), 0, variance, W.size)
    assert near((W**2).mean(), variance, (kurtosis - 1) * variance**2, W.size)
    # Var x^4: E x^8 is 105 sigma^8 for a normal, 9 sigma^8 (= 3^4 / 9) for a uniform variable
    eighth = 105 if kurtosis == 3 else 9
    assert near((W**4).mean(), kurtosis * variance**2, (eighth - kurtosis**2) * variance**4, W.size)


def test_identity():
    assert (matrix("identity", (3, 3)) == np.eye(3)).all()
    scaled = matrix("identity", (3, 2), scale=0.9)
    assert (scaled == 0.9 * np.eye(3, 2)).all()


def test_rotations():
    W = matrix("rotations", (6, 6), 3)
    blocks = [W[i : i + 2, i : i + 2] for i in (0, 2, 4)]
    for block in blocks:
        (c, minus_s), (s, c2) = block
        assert c == c2 and s == -minus_s and abs(c * c + s * s - 1) <= 4 * np.finfo(float).eps
    assert np.count_nonzero(W) == 12
    angles = np.array(
        [np.arctan2(W[1, 0], W[0, 0]) for W in sample(INITIALIZERS["rotations"], draws=4000, n=2)]
    )
    for k in (1, 2, 3):
        assert near(np.cos(k * angles).mean(), 0, 1 / 2, 4000)
        assert near(np.sin(k * angles).mean(), 0, 1 / 2, 4000)


def test_chain():
    """W h moves unit 0 to unit 1: the chain is below the diagonal, the feedback above."""
    head = np.eye(5)[0]
    W = matrix("chain", (5, 5), gain=2, diagonal=3)
    assert (W @ head == [3, 2, 0, 0, 0]).all()
    W = matrix("fbchain", (5, 5))
    assert (W @ np.eye(5)[2] == [0, 0.04, 0, 0.99, 0]).all()


@pytest.mark.parametrize("name", INITIALIZERS)
def test_same_seed_same_bits(name):
    first, second = (matrix(name, (6, 6), 4) for _ in range(2))
    assert first.dtype == np.float64 and first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    "name, shape, options, message",
    [
        ("gaussian", (2, 2, 2), {}, "at least 1"),
        ("gaussian", (2, 2), {"gain": 1}, "gaussian takes sd, not 'gain'"),
        ("rotations", (2, 2), {"gain": 1}, "rotations takes no options, not 'gain'"),
        ("gaussian", (2, 2), {"sd": np.nan}, "sd is nan"),
        ("rotations", (3, 3), {}, "3 is odd, use 4"),
        ("chain", (3, 4), {}, r"chain needs a square matrix, not \(3, 4\)"),
        ("fbchain", (3, 4), {}, r"fbchain needs a square matrix, not \(3, 4\)"),
    ],
)
def test_errors(name, shape, options, message):
    with refused(message):
        matrix(name, shape, **options)


def test_ramp():
    """Antisymmetric, from -end to end; in an LSTM's gates it leaves the chain to the candidate."""
    from refnet.nets.recurrent import RecurrentNet

    W = matrix("ramp", (5, 5), end=0.02)
    assert (W == -W.T).all() and W[4, 0] == 0.02 and (np.diff(W[:, 0]) > 0).all()
    assert matrix("ramp", (1, 1)) == 0
    drawn = (
        RecurrentNet(2, 3, 2, cell="lstm")
        .init(
            np.random.default_rng(0),
            np.float64,
            recurrent=lambda s, r: initialize("chain", s, r),
            gates=lambda s, r: initialize("ramp", s, r),
        )["Whh"]
        .reshape(4, 3, 3)
    )
    ramp, chain = (matrix(name, (3, 3)) for name in ("ramp", "chain"))
    assert all(
        (block == expected).all() for block, expected in zip(drawn, (ramp, ramp, chain, ramp))
    )
