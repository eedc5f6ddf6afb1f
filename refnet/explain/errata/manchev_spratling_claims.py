"""Errata of Manchev & Spratling, On the biological plausibility of orthogonal initialisation,
what it says in words of starts, descents and experiments."""

from tempfile import TemporaryDirectory

import numpy as np
from numpy.random import Generator

from refnet.analysis.spectra import spectral_radius
from refnet.explain.errata.base import AtLeast, AtMost, Comparison, Comparisons
from refnet.explain.errata.exact import NILPOTENT, product_norms
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import defect, orthogonalize
from refnet.matrices.slots import Transition
from refnet.matrices.transitions import transition
from refnet.studies.ladder import PRINTED
from refnet.tasks.synthetic import Adding
from refnet.training.loop import train
from refnet.training.optimizers import SGD
from refnet.training.papers import TABLE_I
from refnet.training.protocols import preset
from refnet.training.specs import read_spec

TEXT = "manchev-spratling/text"


def _e37(rng: Generator) -> Comparisons:
    start = initialize("gaussian", (100, 100), rng, sd=0.01)
    trained = spectral_radius(orthogonalize(start, max_steps=100).W)
    small = spectral_radius(initialize("gaussian", (100, 100), rng, sd=0.001))
    yield Comparison(
        "spectral radius after OINIT from N(0, .01); stopped at a defect of 1e-6",
        trained,
        0.0,
        1.0,
        1e-3,
    )
    yield Comparison("spectral radius of N(0, .001), OPEN's start", small, None, AtMost(0.02))


def _e40(rng: Generator) -> Comparisons:
    exploding = product_norms("relu", NILPOTENT, 20)
    saturated = product_norms("tanh", 3 * np.eye(2), 20)
    yield Comparison(
        "||dh_20/dh_0|| with rho(W) = 0 (ReLU), where ||dh_20/dh_20|| = 1",
        exploding[0],
        AtMost(1),
        AtLeast(1e6),
    )
    yield Comparison(
        "||dh_20/dh_0|| with rho(W) = 3 (tanh)", saturated[0], AtLeast(1), AtMost(1e-3)
    )


def _e41(rng: Generator) -> Comparisons:
    start = initialize("gaussian", (100, 100), rng)
    square = orthogonalize(start).costs[-1]
    plain = orthogonalize(start, form="unsquared", max_steps=2000).costs
    yield Comparison("||E||_F^2 after at most 100 steps on the square", square, None, AtMost(1e-6))
    yield Comparison(
        "mean ||E||_F over steps 1,000 to 2,000 without the square, rate .1",
        np.mean(plain[1000:]),
        AtMost(1e-3),
        AtLeast(0.1),
    )


def _e45(rng: Generator) -> Comparisons:
    seed = int(rng.integers(2**31))
    for task, method in (
        ("temporal-order", "plain"),
        ("temporal-order-3bit", "plain"),
        ("random-permutation", "oinit"),
    ):
        (rate,) = TABLE_I[task][method]
        config = preset(
            task,
            protocol=TEXT,
            length=10,
            seed=seed,
            rate=rate,
            weights="gaussian:sd=0.1",
            iterations=3000,
        )
        with TemporaryDirectory() as folder:
            errors = train(config, f"{folder}/run", draw=False).best["errors"]
        yield Comparison(
            f"{task}, T = 10, rate {rate}: fewest wrong of 10,000 within 3,000 iterations",
            errors,
            AtLeast(1),
            0,
        )


def _e46(rng: Generator) -> Comparisons:
    return [
        Comparison(
            f"least gain in depth by {method.upper()} over Table I's problems",
            min(row[method] - row["plain"] for row in PRINTED.values()),
            printed,
            gain,
        )
        for method, printed, gain in (("open", AtLeast(10), 0), ("oinit", None, 20))
    ]


def _e47(rng: Generator) -> Comparisons:
    for method, printed, sigma in (("oinit", 0.001, 0.01), ("open", None, 0.001)):
        config = preset("sequential-mnist", protocol=TEXT, method=method)
        yield Comparison(
            f"sigma of Table II's SRNN+{method.upper()}",
            read_spec("weights", config.weights)[1]["sd"],
            printed,
            sigma,
        )


def _e48(rng: Generator) -> Comparisons:
    task = Adding(length=10, protocol="manchev-spratling")
    batch = task.batch(0, 100, int(rng.integers(2**31)))
    metrics = task.metrics(task.score(batch.y + np.float32(0.03), batch))
    yield Comparison(
        "of 100 answers that are .03 off, wrong by the criterion of [8]",
        metrics["errors_hs97"],
        metrics["errors_text"],
        0,
    )
    yield Comparison("of them, wrong by the text's", metrics["errors_text"], None, 100)


def _e50(rng: Generator) -> Comparisons:
    start, target = (initialize("orthogonal", (6, 6), rng) for _ in range(2))
    rule = SGD(0.1)

    def trained(way: Transition | None) -> float:
        parts = {"W": start} if way is None else way.init(start)
        state = rule.init(parts)
        for _ in range(20):  # down ||W - target||_F^2 / 2
            W, tape = (parts["W"], None) if way is None else way.matrix(parts)
            grads = {"W": W - target} if way is None else way.pull_back(parts, tape, W - target)
            parts, state = rule.step(parts, grads, state)
        return float(defect(parts["W"] if way is None else way.matrix(parts)[0]))

    yield Comparison(
        "||W'W - I||^2 after 20 steps of a W made of reflections",
        trained(transition("householder")),
        AtLeast(0.01),
        AtMost(1e-24),
    )
    yield Comparison(
        "the same of a W that is orthogonal at first", trained(None), None, AtLeast(0.01)
    )


def _e58(rng: Generator) -> Comparisons:
    for m in (30, 300):
        x = initialize("uniform", (m, m), rng, limit=2)
        share = (x > 0.101).mean()
        for _ in range(500):
            x = x - 0.1 * (x * (x * x - 1) + 0.1)
        f = ((x * x - 1) ** 2 / 4 + x / 10).mean()
        yield Comparison(
            f"mean g of {m} x {m} entries after 500 steps of rate .1 from "
            "U(-2, 2), above the least g",
            f - _LEAST,
            AtMost(0.01),
            share * _GAP,
            1e-3,
        )


def _double_well() -> tuple[float, float]:
    """The least value of g in erratum 58, and how far its other minimum is above it."""
    low, _, high = np.sort(np.roots([1, 0, -1, 0.1]).real)
    bottom, top = ((x * x - 1) ** 2 / 4 + x / 10 for x in (low, high))
    return float(bottom), float(top - bottom)


_LEAST, _GAP = _double_well()


def _e59(rng: Generator) -> Comparisons:
    S, D = initialize("orthogonal", (50, 50), rng), rng.uniform(0, 1, (50, 50))
    g = rng.normal(size=50)
    for what, W, correct in (
        ("D o S, entry by entry", D * S, AtMost(1e-3)),
        ("D S", D @ S, AtLeast(1e3)),
    ):
        ratio = np.linalg.norm(np.linalg.matrix_power(W.T, 20) @ g) / np.linalg.norm(g)
        yield Comparison(
            f"a gradient's norm after 20 steps back by W = {what}, over that "
            "before; D from U(0, 1), 50 units",
            ratio,
            1.0,
            correct,
            1e-9,
        )
