"""Errata of Vorontsov et al., On orthogonality and learning recurrent networks with long term
dependencies, of its released code, and of a summary of it."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
from numpy.random import Generator

from refnet.analysis.spectra import spectral_radius
from refnet.batch import Array
from refnet.explain.errata.base import AtLeast, AtMost, Comparison, Comparisons
from refnet.explain.errata.exact import (
    A1,
    NILPOTENT,
    ROTATION,
    W1,
    W2,
    identity,
    jacobian,
    product_norms,
    rational,
    slopes,
    softsign,
)
from refnet.maths.linalg import solve
from refnet.matrices import stiefel
from refnet.matrices.orthogonality import defect
from refnet.matrices.transitions.svd import SVD
from refnet.nets.feedforward import FeedforwardNet
from refnet.tasks.synthetic import Adding
from refnet.training.optimizers import SGD, Optimizer, RMSprop

GRADIENT = rational((1, 2), (-1, 3))


def _e21(rng: Generator) -> Comparisons:
    exact = jacobian(lambda a: W1 @ softsign(a), A1)
    yield Comparison("d(W f(a))/da by dual numbers", exact, slopes(A1) @ W1, W1 @ slopes(A1))


def _e22(rng: Generator) -> Comparisons:
    v = np.array([F(1), F(2)])
    for _ in range(50):
        v = ROTATION @ v
    product = F(1)
    for t in range(2, 1000):
        product *= 1 - F(1, t * t)
    yield Comparison(
        "||W^50 v||^2 for a rotation and ||v||^2 = 5, eta = 1",
        (v * v).sum(),
        AtMost(F(5, 100)),
        F(5),
    )
    yield Comparison(
        "prod (1 - 1/t^2), t = 2 .. 999, all factors below 1",
        product,
        AtMost(F(1, 100)),
        F(1000, 2 * 999),
    )


def _e23(rng: Generator) -> Comparisons:
    nearer, farther = (
        defect(rational((2, 0), (0, s)), side="columns").item() for s in (1, F(3, 2))
    )
    yield Comparison(
        "defect of diag(2, 3/2) less that of diag(2, 1), whose 2-norms are equal",
        farther - nearer,
        F(0),
        F(25, 16),
    )


def _e24(rng: Generator) -> Comparisons:
    parts = SVD(margin="none").init(np.diag([2.0, 0.0]))
    yield Comparison(
        "smallest entry of the spectrum of diag(2, 0)",
        SVD(margin="none").spectrum(parts).min(),
        AtLeast(1e-300),
        0.0,
    )


def _e25(rng: Generator) -> Comparisons:
    A = (GRADIENT @ ROTATION.T - ROTATION @ GRADIENT.T) / 6
    turn = solve(identity(2) + A, identity(2) - A)
    stepped = stiefel.step(ROTATION, GRADIENT, F(1, 3))
    yield Comparison(
        "a Cayley step of rate 1/3 from a rotation", stepped, ROTATION + turn, turn @ ROTATION
    )
    yield Comparison("its M'M", stepped.T @ stepped, None, identity(2))


def _e26(rng: Generator) -> Comparisons:
    M, G = np.eye(2), np.array([[0, 0.5], [-0.5, 0]])  # A = G M' - M G' turns by 1 a unit of rate
    for rate in (0.2, 0.1, 0.05):
        apart = abs(stiefel.step(M, G, rate) - stiefel.step(M, G, rate, "geodesic")).max()
        yield Comparison(
            f"|Cayley - geodesic| / rate^3 at rate {rate}", apart / rate**3, 0.0, 1 / 12, rate / 4
        )


def _e27(rng: Generator) -> Comparisons:
    parts = {"U": np.eye(2), "V": np.eye(2), "p": np.array([-5.0, 30.0])}
    half, two, ten = (SVD(margin=m) for m in (0.5, 2.0, 10.0))
    singular = np.linalg.svd(ten.matrix(parts)[0], compute_uv=False)
    yield Comparison(
        "1 + m - s for m = 1/2 and p = 30", 1.5 - half.spectrum(parts)[1], None, AtLeast(1e-14)
    )
    yield Comparison("s for m = 2 and p = -5", two.spectrum(parts)[0], AtLeast(0), AtMost(0))
    yield Comparison(
        "smallest singular value of the matrix made with m = 10 and s = (-8.87, 11)",
        singular.min(),
        None,
        -ten.spectrum(parts)[0],
        1e-12,
    )


def _e28(rng: Generator) -> Comparisons:
    def change_of_s(m: float, factor: str, rule: Optimizer, dvalue: float) -> tuple[float, float]:
        transition = SVD(margin=m, spectrum_rate=factor)
        parts = {"U": np.eye(1), "V": np.eye(1), "p": np.zeros(1)}
        grads = transition.pull_back(parts, transition.matrix(parts)[1], np.full((1, 1), dvalue))
        rule = replace(rule, rates=dict(transition.rates), skip=("U", "V"))
        after = rule.step(parts, grads, rule.init(parts))[0]
        ds = transition.spectrum(after) - transition.spectrum(parts)
        return float((after["p"] - parts["p"])[0]), float(ds[0])

    def ratio(factor: str, rule: Optimizer, i: int, dvalue: float = 1) -> float:
        return change_of_s(10, factor, rule, dvalue)[i] / change_of_s(0.01, factor, rule, dvalue)[i]

    sgd, rmsprop = SGD(1e-6), RMSprop(1e-6, decay=0, eps=0)
    over = "at m = 10 over that at m = .01"
    yield Comparison(f"SGD, rate / 2m: dp {over}", ratio("printed", sgd, 0), None, 1, 1e-9)
    yield Comparison(f"SGD, rate / 2m: ds {over}", ratio("printed", sgd, 1), 1, 1000, 1e-3)
    yield Comparison(f"SGD, rate / (2m)^2: ds {over}", ratio("margin_free", sgd, 1), None, 1, 1e-3)
    yield Comparison(f"RMSprop, rate / 2m: dp {over}", ratio("printed", rmsprop, 0), 1, 1e-3, 1e-9)
    yield Comparison(
        f"RMSprop, rate / 2m: ds {over}, as printed", ratio("printed", rmsprop, 1), None, 1, 1e-3
    )
    yield Comparison(
        f"the same with eps = 1e-6, dL/ds = 1e-7: ds {over}",
        ratio("printed", RMSprop(1, decay=0, eps=1e-6), 1, 1e-7),
        1,
        1000,
        1e-3,
    )


def _e30(rng: Generator) -> Comparisons:
    N = 100_000
    for name, scale in (("vorontsov", 1), ("vorontsov-code", 4)):
        task = Adding(length=10, protocol=name)
        y = task.batch(0, N, int(rng.integers(2**31))).y.astype(float)
        # Var (x - mean)^2 = E d^4 - Var^2 = 1/15 - 1/36 for the sum
        error = 5 * math.sqrt((1 / 15 - 1 / 36) / N) / scale
        yield Comparison(
            f"error of the best constant, target: {'half ' * (scale > 1)}sum",
            y.var(),
            0.167 if scale > 1 else None,
            1 / 6 / scale,
            error,
        )

        yield Comparison("the task's own baseline", task.baseline, None, 1 / 6 / scale)


def _e31(rng: Generator) -> Comparisons:
    W = rational((0, 1, 0), (F(-3, 5), 0, F(4, 5)), (F(4, 5), 0, F(3, 5)))
    rows, worst = [], F(-1)
    for entries in itertools.islice(itertools.product((-1, 0, 2), repeat=9), 0, None, 997):
        G = np.array([F(e) for e in entries]).reshape(3, 3)
        A = G @ W.T - W @ G.T
        descent = -(G * stiefel.gradient(W, G)).sum()
        rows.append(descent == -(A * A).sum() / 2)
        printed = G.T @ W - W.T @ G
        worst = max(worst, -(G * (printed @ W)).sum())
    yield Comparison(
        "share of 20 gradients at which refnet's direction descends by ||A||^2 / 2",
        F(sum(rows), len(rows)),
        None,
        F(1),
    )
    yield Comparison(
        "largest change of the loss along the code's direction (descent: at most 0)",
        worst,
        AtMost(F(0)),
        AtLeast(F(1)),
    )


def _two_layers(a: Array) -> Array:
    return W2 @ softsign(W1 @ softsign(a))


def _e34(rng: Generator) -> Comparisons:
    two = jacobian(_two_layers, A1)
    later = W1 @ softsign(A1)
    yield Comparison(
        "da_3/da_1, transposed (denominator layout)",
        two.T,
        slopes(A1) @ W1.T @ slopes(A1) @ W2.T,
        slopes(A1) @ W1.T @ slopes(later) @ W2.T,
    )


def _e38(rng: Generator) -> Comparisons:
    later = W1 @ softsign(A1)
    exact = jacobian(_two_layers, A1)
    yield Comparison(
        "da_3/da_1 = W_3 D_2 W_2 D_1; printed: with D_3 and D_2",
        exact,
        W2 @ slopes(W2 @ softsign(later)) @ W1 @ slopes(later),
        W2 @ slopes(later) @ W1 @ slopes(A1),
    )


def _e43(rng: Generator) -> Comparisons:
    def after(W: Array, g: Array, steps: int = 20) -> F:
        """||g||^2 after so many steps back through a linear net."""
        for _ in range(steps):
            g = W.T @ g
        return F((g * g).sum())

    g = np.array([F(0), F(1)])
    wide, narrow = rational((2, 0), (0, F(1, 2))), rational((F(1, 2), 0), (0, F(1, 3)))
    yield Comparison(
        "||dL/da_0||^2 with W = diag(2, 1/2), T = 20, dL/da_20 = (0, 1)",
        after(wide, g),
        AtLeast(F(1)),
        F(1, 4) ** 20,
    )
    yield Comparison(
        "the same with W = diag(1/2, 1/3), of norm 1/2",
        after(narrow, g),
        None,
        AtMost(F(1, 4) ** 20),
    )


def _e44(rng: Generator) -> Comparisons:
    start, target = np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]])
    moving = stuck = start
    for _ in range(200):  # down ||W - R||_F^2 / 2, of which R = target is the least value
        moving = stiefel.step(moving, moving - target, 0.1)
        stuck = stiefel.step(start, stuck - target, 0.1)
    yield Comparison(
        "||W - R||_F after 200 steps of rate .1 down its square; at first 2, by the code's update",
        np.linalg.norm(stuck - target),
        AtMost(1e-6),
        AtLeast(1.0),
    )
    yield Comparison("the same by eq. 9", np.linalg.norm(moving - target), None, AtMost(1e-6))


def _e51(rng: Generator) -> Comparisons:
    s = np.array([F(3, 2), F(1, 5)])
    ones = SVD(margin="none", prior=F(1)).penalty({"U": identity(2), "V": identity(2), "s": s})[1][
        "s"
    ]
    density = jacobian(lambda s: (s - 1) * (s - 1) / 2, s).diagonal()  # times v
    return [
        Comparison(
            f"lambda with which lambda sum (s - 1)^2 has the gradient of -log N(s; 1, {v})",
            density / v / ones,
            np.full(2, v),
            np.full(2, 1 / (2 * v)),
        )
        for v in (F(1, 4), F(3))
    ]


def _e52(rng: Generator) -> Comparisons:
    before, after = identity(2) / 10, 10 * identity(2)
    a = before @ rational((0, 0))[0]  # softsign' = 1 there
    gain = jacobian(lambda a: after @ softsign(a), a)
    yield Comparison(
        "||da_{t+1}/da_t|| with W_t = .1 I, W_{t+1} = 10 I, D_t = I",
        abs(gain).max(),
        AtMost(F(1, 10)),
        AtMost(F(10)),
    )


def _e53(rng: Generator) -> Comparisons:
    return [
        Comparison(
            f"matrices of a net of {n} hidden layers",
            sum(name.startswith("W") for name in FeedforwardNet((2,) * (n + 2)).shapes),
            n - 1,
            n + 1,
        )
        for n in (1, 4)
    ]


def _e56(rng: Generator) -> Comparisons:
    W = ROTATION.astype(float)
    linear, tanh = (product_norms(name, W, 50)[0] for name in ("identity", "tanh"))
    yield Comparison("||dh_50/dh_0|| with a rotation and f(a) = a", linear, None, 1.0, 1e-12)
    yield Comparison("the same with tanh", tanh, 1.0, AtMost(1e-3), 1e-12)


def _e57(rng: Generator) -> Comparisons:
    gain = np.linalg.norm(NILPOTENT @ np.ones(2)) / 2**0.5
    yield Comparison(
        "||W x|| / ||x|| for x = (1, 1); printed: at most the radius",
        gain,
        AtMost(spectral_radius(NILPOTENT)),
        AtMost(np.linalg.norm(NILPOTENT)),
        1e-6,
    )
