"""Errata of Manchev & Spratling, On the biological plausibility of orthogonal initialisation,
equations and what is derived from them."""

import itertools
import math
from fractions import Fraction as F

import numpy as np
from numpy.random import Generator

from refnet.analysis.orthogonalization import (
    defect_moments,
    gaussian_moments,
    orthogonalization_experiment,
    singular_value_map,
    uniform_moments,
)
from refnet.analysis.spectra import spectral_radius
from refnet.batch import Array
from refnet.explain.errata.base import AtLeast, AtMost, Comparison, Comparisons
from refnet.explain.errata.exact import (
    NILPOTENT,
    ROTATION,
    SHEAR,
    W1,
    W2,
    every_sign,
    identity,
    jacobian,
    mean_squares,
    product_norms,
    rational,
    slopes,
    softsign,
    two_layers,
)
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import (
    defect,
    defect_and_gradient,
    open_penalty,
    open_update,
    orthogonalize,
)
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.states import state_jacobians


def _e1(rng: Generator) -> Comparisons:
    norms = product_norms("relu", NILPOTENT, 20)
    small = 0.9 * initialize("orthogonal", (2, 2), rng) @ np.diag([1, 0.3])
    shrunk = product_norms("identity", small, 20)
    steep = product_norms("identity", 0.9 * ROTATION.astype(float), 20, 1.2)
    yield Comparison("spectral radius of W", spectral_radius(NILPOTENT), None, AtMost(1e-7))
    yield Comparison(
        "||dh_20/dh_0|| of a ReLU net with this W (the bounds: radius 0 and norm, ^20)",
        norms[0],
        AtMost(0.0),
        AtMost(np.linalg.norm(NILPOTENT, 2) ** 20),
        1e-6,
    )
    yield Comparison("||dh_20/dh_0|| with ||W||_2 = .9", shrunk[0], None, AtMost(0.9**20), 1e-12)
    yield Comparison(
        "||dh_20/dh_0|| with W = .9 times a rotation and f = 1.2 a",
        steep[0],
        AtMost(0.9**20),
        (0.9 * 1.2) ** 20,
        1e-12,
    )


def _e2(rng: Generator) -> Comparisons:
    h, x = np.array([F(1, 3), F(-1, 2)]), rational((1,))
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS["softsign"])
    params = {
        "Whh": W1,
        "Wxh": rational((0,), (0,)),
        "bh": rational((0, 0))[0],
        "Why": rational((1, 1)),
        "by": rational((0,))[0],
        "h0": h,
    }
    measured = state_jacobians(net, params, x[:, None])[0, 0]
    yield Comparison(
        "dh_1/dh_0 of a softsign net, by its backward pass",
        measured,
        W1.T @ np.diag(softsign(h)),
        slopes(W1 @ h) @ W1,
    )
    yield Comparison(
        "the same by dual numbers; printed, with f' for f",
        jacobian(lambda s: softsign(W1 @ s), h),
        W1.T @ slopes(W1 @ h),
        slopes(W1 @ h) @ W1,
    )


def _e3(rng: Generator) -> Comparisons:
    net = two_layers()
    yield Comparison(
        "the outputs of a net with 2 hidden units and 3 outputs",
        net.outputs,
        None,
        net.p["W2"] @ softsign(net.v1) + net.p["b2"],
    )


def _e4(rng: Generator) -> Comparisons:
    yield Comparison(
        "E v_2^2 over all W of +-1 with 3 inputs, 2 and 1 units",
        mean_squares(1, 1)[0],
        F(2 * 1),
        F(3 * 2),
    )


def _e5(rng: Generator) -> Comparisons:
    net = two_layers()
    yield Comparison(
        "dE/db1 = dE/dv_1 of a softsign net",
        net.grads["b1"],
        None,
        np.diag(slopes(net.v1)) * (net.p["W2"].T @ net.g),
    )


def _e6(rng: Generator) -> Comparisons:
    net = two_layers()
    h = softsign(net.v1)
    yield Comparison(
        "dE/dW2 of a net with 2 hidden units and 3 outputs",
        net.grads["W2"],
        np.outer(h, net.g),
        np.outer(net.g, h),
    )


def _e7(rng: Generator) -> Comparisons:
    yield Comparison(
        "Var dE/dv_1 with Var W_1 = 25, Var W_2 = 9 and layers of 3, 2, 1 units",
        mean_squares(5, 3)[1],
        F(2 * 25),
        F(1 * 9),
    )


def _e8(rng: Generator) -> Comparisons:
    return _equal_layers()[:1]


def _e9(rng: Generator) -> Comparisons:
    return _equal_layers()[1:]


def _equal_layers() -> list[Comparison]:
    """All nets of two hidden layers and 2 units everywhere with weights +-1, x^2 = 4, g^2 = 9."""
    net = FeedforwardNet((2, 2, 2, 2), activation=ACTIVATIONS["identity"])
    x, g, none = rational((2, 2)), rational((3, 3)), rational((0, 0))[0]
    dv1, dW, count = F(0), {"W1": F(0), "W2": F(0), "W3": F(0)}, 0
    for A, B, C in every_sign((2, 2), (2, 2), (2, 2)):
        p = {"W1": A, "b1": none, "W2": B, "b2": none, "W3": C, "b3": none}
        grads = net.backward(p, net.forward(p, x)[1], g)
        dv1, count = dv1 + grads["b1"][0] ** 2, count + 1
        dW = {name: total + grads[name][0, 0] ** 2 for name, total in dW.items()}
    what = "over all W of +-1: 2 units, l_max = 2, n Var W = 2, Var x = 4, Var g = 9"
    return [
        Comparison(f"Var dE/dv_1 {what}", dv1 / count, F(2**2 * 4), F(2**2 * 9)),
        *(
            Comparison(f"Var dE/d{name} {what}", total / count, F(2**3 * 4 * 9), F(2**2 * 4 * 9))
            for name, total in dW.items()
        ),
    ]


def _e10(rng: Generator) -> Comparisons:
    limit, n = math.sqrt(6 / 300), 20_000
    W = initialize("glorot_uniform", (100, 200), rng).ravel() / limit
    # the mean of |x| is 1/2 if uniform; if Gaussian with variance 1/3, sqrt(2 / pi / 3)
    yield Comparison(
        "mean |W_ij| over the interval's half width",
        abs(W).mean(),
        math.sqrt(2 / (3 * math.pi)),
        0.5,
        5 * math.sqrt(1 / 12 / n),
    )
    yield Comparison(
        "largest |W_ij| over the interval's half width", abs(W).max(), None, AtMost(1.0)
    )


def _e11(rng: Generator) -> Comparisons:
    wide = np.array([[F(3, 5), F(4, 5)]])
    y = np.array([F(4, 5), F(-3, 5)])
    yield Comparison("the defect of the wide matrix (3/5, 4/5)", F(defect(wide).item()), None, F(0))
    yield Comparison(
        "||W y||^2 for y = (4/5, -3/5), of norm 1", ((wide @ y) ** 2).sum(), (y**2).sum(), F(0)
    )
    yield Comparison(
        "||W' x||^2 for x = 7, of norm 7", ((wide.T @ np.array([F(7)])) ** 2).sum(), None, F(49)
    )


def _e12(rng: Generator) -> Comparisons:
    tall = rational((1, 0), (0, 1), (0, 0))
    other = rational((1, 2), (0, F(1, 2)), (-1, 3))
    start = initialize("gaussian", (30, 20), rng)
    reached = orthogonalize(start).costs[-1]
    yield Comparison(
        "the defect of the first two columns of I_3", F(defect(tall).item()), F(1), F(0)
    )
    yield Comparison(
        "||W W' - I||^2 - ||W' W - I||^2 of a 3 x 2 matrix",
        defect(other, side="rows").item() - defect(other, side="columns").item(),
        F(0),
        F(1),
    )
    yield Comparison(
        "the cost that OINIT reaches from a gaussian 30 x 20 matrix",
        reached,
        AtLeast(10),
        AtMost(1e-6),
    )


def _e13(rng: Generator) -> Comparisons:
    mean = F(0)
    for entries in itertools.product((-1, 2), repeat=4):
        chance = F(2, 3) ** entries.count(-1) * F(1, 3) ** entries.count(2)
        mean += chance * defect(np.array([F(e) for e in entries]).reshape(2, 2)).item()
    derived = defect_moments(2, 2, (F(2), F(6), F(22), F(86))).mean
    yield Comparison(
        "E f over all 2 x 2 matrices of -1 (chance 2/3) and 2 (1/3)", mean, 4 * F(2) + 2, derived
    )
    for name, moments, variance in (
        ("gaussian", gaussian_moments(0.1), 0.01),
        ("uniform", uniform_moments(0.1), 0.01 / 3),
    ):
        true = defect_moments(100, 100, moments)
        sample = _defects(name, rng)
        yield Comparison(
            f"mean f of {len(sample)} {name} 100 x 100 matrices",
            sample.mean(),
            100**2 * variance + 100,
            true.mean,
            5 * math.sqrt(true.variance / len(sample)),
        )


def _defects(distribution: str, rng: Generator, runs: int = 400) -> Array:
    return np.array([defect(initialize(distribution, (100, 100), rng)) for _ in range(runs)])


def _variance(distribution: str, correct: float, printed: float, rng: Generator) -> Comparison:
    sample = _defects(distribution, rng)
    # the sample variance of N nearly normal values has the relative standard error sqrt(2 / N)
    return Comparison(
        f"variance of f over {len(sample)} {distribution} 100 x 100 matrices",
        sample.var(ddof=1),
        printed,
        correct,
        5 * correct * math.sqrt(2 / len(sample)),
    )


def _e14(rng: Generator) -> Comparisons:
    true = defect_moments(100, 100, gaussian_moments(0.1)).variance
    yield _exact_variance()
    yield _variance("gaussian", true, 2 * 1e4 * 1e-4 + 2 * 100 * 0.01, rng)


def _exact_variance() -> Comparison:
    values = [
        defect(np.array([F(e) for e in entries]).reshape(2, 2)).item()
        for entries in itertools.product((-2, 0, 0, 2), repeat=4)
    ]
    mean = sum(values) / F(len(values))
    moments = (F(2), F(8), F(32), F(128))
    # eq. 24: m^2 E x^4 - m^2 s^4 + 2 m s^2
    return Comparison(
        "Var f over all 2 x 2 matrices of -2, 0, 0, 2",
        sum((value - mean) ** 2 for value in values) / F(len(values)),
        4 * F(8) - 4 * F(4) + 2 * 2 * F(2),
        defect_moments(2, 2, moments).variance,
    )


def _e15(rng: Generator) -> Comparisons:
    b = F(3, 7)
    general = sum((-b) ** i * b ** (4 - i) for i in range(5)) / F(5)
    true = defect_moments(100, 100, uniform_moments(0.1)).variance
    fourth = initialize("uniform", (1000, 1000), rng, limit=1.0) ** 4
    yield Comparison(
        "E x^4 of U(-3/7, 3/7) by the paper's general formula",
        general,
        3 * b**4 / 5,
        uniform_moments(b)[1],
    )
    yield Comparison(
        "mean x^4 of 10^6 entries of the uniform initialiser, b = 1",
        fourth.mean(),
        3 / 5,
        1 / 5,
        5 * math.sqrt((1 / 9 - 1 / 25) / fourth.size),
    )
    yield _variance("uniform", true, 1e4 * 22 / 45 * 1e-4 + 100 * 2 / 3 * 0.01, rng)
    yield _variance("uniform", true, 1e4 * 4 / 45 * 1e-4 + 100 * 2 / 3 * 0.01, rng)


def _e16(rng: Generator) -> Comparisons:
    true, sample = defect_moments(100, 100, gaussian_moments(0.1)), _defects("gaussian", rng, 50)
    yield Comparison(
        "mean f of 50 gaussian 100 x 100 matrices with mu_x = 0",
        sample.mean(),
        0.0,
        true.mean,
        5 * math.sqrt(true.variance / 50),
    )


def _e17(rng: Generator) -> Comparisons:
    success = {
        rate: orthogonalization_experiment(
            "glorot_normal", runs=10, rate=rate, seed=int(rng.integers(2**31))
        ).success_rate
        for rate in (0.1, 0.2)
    }
    singular = np.diag([0.0, 1.2])
    left = singular - 0.1 * defect_and_gradient(singular)[1]
    s = np.array([F(2, 3)])
    yield Comparison(
        "share of 10 Glorot starts (n = 100) that converge with rate .2", success[0.2], 1.0, 0.0
    )
    yield Comparison("the same with rate .1", success[0.1], None, 1.0)
    yield Comparison(
        "smallest singular value after a step from diag(0, 1.2)",
        np.linalg.svd(left, compute_uv=False)[-1],
        None,
        0.0,
    )
    yield Comparison(
        "s after a step of rate 1/8 from 2/3, by the map; correct: Newton-Schulz, s (3 - s^2) / 2",
        singular_value_map(s, F(1, 8))[0],
        None,
        F(2, 3) * (3 - F(4, 9)) / 2,
    )


def _e18(rng: Generator) -> Comparisons:
    for name, W, normal in (("a shear", SHEAR, False), ("twice a rotation", 2 * ROTATION, True)):
        E = W @ W.T - identity(2)
        printed = None if normal else 4 * W @ E
        yield Comparison(
            f"the penalty's gradient at {name}", defect_and_gradient(W)[1], printed, 4 * E @ W
        )
    updated = open_update(SHEAR, F(1, 10), F(1, 2))
    exact = jacobian(lambda w: np.array([defect(w.reshape(2, 2))[()]]), SHEAR.ravel())
    yield Comparison(
        "OPEN's update of the shear; correct: by dual numbers",
        updated,
        SHEAR - F(1, 20) * 4 * SHEAR @ (SHEAR @ SHEAR.T - identity(2)),
        SHEAR - F(1, 20) * exact.reshape(2, 2),
    )


def _e19(rng: Generator) -> Comparisons:
    value, grads = open_penalty({"W1": W1, "W2": W2}, F(1, 3))
    yield Comparison(
        "the penalty of two matrices, lambda = 1/3",
        value.item(),
        defect(W1).item() / 3,
        (defect(W1).item() + defect(W2).item()) / 3,
    )
    yield Comparison(
        "its gradient in the second matrix", grads["W2"], None, defect_and_gradient(W2)[1] / 3
    )
