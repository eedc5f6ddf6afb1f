"""Mistakes outside the cells that have a constant, which is fitted to what was given.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from refnet.batch import Array
from refnet.check.programs.edges import Edges, Option, constant_start
from refnet.check.programs.losses import softmax
from refnet.check.programs.moves import Move, bent, scaled
from refnet.check.programs.scores import Score, Scores

__all__ = ["edges_with_a_constant", "scores_with_a_constant", "solved"]

Curve = Callable[[float], Array]
Families = list[tuple[Callable[[float], Move], tuple[float, ...]]]


def solved(curve: Curve, theirs: Array, seeds: tuple[float, ...]) -> Iterator[float]:
    """Constants at which a curve comes near ``theirs``, by Gauss and Newton from each seed."""
    for k in seeds:
        left = np.inf
        for _ in range(12):
            here = curve(k)
            off, step = theirs - here, 1e-6 * max(1.0, abs(k))
            slope = (curve(k + step) - here) / step
            size, now = float(slope @ slope), float(np.linalg.norm(off))
            if not 0 < size < np.inf or not now < left:
                break
            left = now
            k += float(slope @ off) / size
        near = float(f"{k:.6g}")
        if np.isfinite(k):
            yield near if abs(near - k) <= 1e-9 * abs(k) else k


def edges_with_a_constant(
    edges: Edges,
) -> Iterator[tuple[Callable[[float], Option], tuple[float, ...]]]:
    """Edges times K, plus K or clipped at K, and cells that start at K, with the first guesses."""
    layers, seen = edges.layers, set()
    for option in edges.options():
        if option.edge in seen or option.seen or option.edge.startswith("pad"):
            continue
        seen.add(option.edge)
        usual = layers.edges[option.edge]
        if option.edge.startswith("start"):
            for part in range(3 if edges.states(option.edge[5:]) > 1 else 1):
                start = partial(constant_start, part, edges.states(option.edge[5:]))
                yield _of(option, start, None), (0.1, 1.0)
        families: Families = [(_times, (0.9, 2.0)), (_plus, (0.1,)), (_clipped, (0.2, 0.5, 1.0))]
        yield from ((_of(option, move, usual), guesses) for move, guesses in families)


def _of(
    option: Option, move: Callable[[float], Move], usual: Move | None
) -> Callable[[float], Option]:
    def at(k: float) -> Option:
        new = move(k)
        return option._replace(move=new if usual is None else new.after(usual))

    return at


def _times(k: float) -> Move:
    return scaled(f"counts {k:.6g} times", k)


def _plus(k: float) -> Move:
    return Move(f"is {k:.6g} larger", lambda v: v + k, lambda d: d, linear=False)


def _clipped(k: float) -> Move:
    return bent(f"is clipped at {k:.6g}", lambda v: np.clip(v, -k, k), lambda v: abs(v) < k)


def scores_with_a_constant(
    scores: Scores,
) -> Iterator[tuple[Callable[[float], Score], tuple[float, ...]]]:
    """Losses, targets and gradients with a constant K."""
    v, t, w, e, right = scores.v, scores.t, scores.w, scores.each, scores.slope
    share = w / scores.divisor
    steps = np.indices(scores.grid)[0].ravel()

    def score(name: str, each: Array, slope: Array) -> Score:
        return Score(name, each * share, slope * share[:, None])

    def clipped(k: float) -> Score:
        return score(f"the gradient of the loss is clipped at {k:.6g}", e, np.clip(right, -k, k))

    def whole(k: float) -> Score:
        name = f"the gradient of the outputs is clipped at {k:.6g}"
        return Score(name, scores.right.each, np.clip(scores.right.dv, -k, k))

    def floor(k: float) -> Score:
        name = f"the gradient of the loss is at least {k:.6g} in size"
        return score(name, e, np.sign(right) * np.maximum(abs(right), k))

    def power(k: float) -> Score:
        size = np.sign(right) * abs(right) ** k
        return score(f"the gradient of the loss is taken to the power of {k:.6g}", e, size)

    def outputs(k: float) -> Score:
        inside = np.clip(v, -k, k)
        each, slope = scores.of(inside, t)
        return score(f"the loss takes the outputs clipped at {k:.6g}", each, slope * (abs(v) < k))

    def discount(k: float) -> Score:
        factor = k**steps
        return score(f"step t counts {k:.6g}^t times", e * factor, right * factor[:, None])

    def backwards(k: float) -> Score:
        factor = k ** (scores.grid[0] - 1 - steps)
        name = f"a step counts {k:.6g} times for every step after it"
        return score(name, e * factor, right * factor[:, None])

    def likely(k: float) -> Score:
        p = (softmax(v) * t).sum(axis=1)
        factor = (1 - p) ** k
        name = f"the gradient of the loss is multiplied by (1 - p)^{k:.6g} of the label"
        return score(name, e, right * factor[:, None])

    def shifted(k: float) -> Score:
        return score(f"the target is {k:.6g} larger", *scores.of(v, t + k))

    def grown(k: float) -> Score:
        return score(f"the target counts {k:.6g} times", *scores.of(v, t * k))

    guesses = tuple(float(np.quantile(abs(right), q)) for q in (0.2, 0.5, 0.8))
    yield clipped, guesses
    yield floor, guesses
    whole_guesses = tuple(float(np.quantile(abs(scores.right.dv), q)) for q in (0.2, 0.5, 0.8))
    if np.ptp(share):
        yield whole, whole_guesses
    yield power, (0.9, 2.0)
    yield outputs, (0.5, 1.0, 2.0)
    if scores.grid[0] > 1:
        yield discount, (0.95,)
        yield backwards, (0.95,)
    if scores.labels is not None:
        yield likely, (0.9, 2.0)
    else:
        yield shifted, (0.1,)
        yield grown, (0.9,)
