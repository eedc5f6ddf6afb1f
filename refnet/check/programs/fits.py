"""Mistakes outside the cells that have a constant K, which is fitted to what was given.

``outside`` fits them (``least_squares``): of the loss (``scores``) to the read-out's gradients, of
the edges between the cells (``edges``) to the outputs.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from refnet.batch import Array
from refnet.check.programs.edges import Edges, Option, constant_start
from refnet.check.programs.functions import WITH_A_CONSTANT, function
from refnet.check.programs.moves import SAME, Move, bent, scaled
from refnet.check.programs.scores import Score, Scores

__all__ = ["edges_with_a_constant", "gradients_with_a_constant", "scores_with_a_constant"]

Guesses = tuple[float, ...]
USUAL = {
    "the gradient of the loss is clipped at K": ("clip(d, -k, k)", ()),
    "the gradient of the loss is at least K in size": ("sign(d) maximum(abs(d), k)", ()),
    "the gradient of the loss is taken to the power of K": ("sign(d) abs(d)^k", (0.9, 2.0)),
}
"""Other gradients of the right losses and the first guesses; () are quantiles of them."""
OF_STEPS = {
    "step t counts K^t times": "k^step",
    "a step counts K times for every step after it": "k^(T - 1 - step)",
}
EXP = "exp(v - max(v))"
OF_THE_SOFTMAX = {
    "divided by its sum plus K": f"{EXP} / (sum({EXP}) + k)",
    "with K added to every exp": f"({EXP} + k) / sum({EXP} + k)",
    "clipped to K .. 1 - K": "clip(p, k, 1 - k)",
}
OF_NUMBERS = {"the target is K larger": ("t + k", 0.1), "the target counts K times": ("t k", 0.9)}


def edges_with_a_constant(edges: Edges) -> Iterator[tuple[Callable[[float], Option], Guesses]]:
    """Edges that are multiplied by K, have K added or are clipped at K, and cells that start at K;
    each with the first guesses."""
    layers, seen = edges.layers, set()
    for option in edges.options():
        if option.edge in seen or option.seen or option.edge.startswith("pad"):
            continue
        seen.add(option.edge)
        usual = layers.edges[option.edge]
        states = edges.states(option.edge[5:]) if option.edge.startswith("start") else 0
        for part in range(2 * states - 1):  # both states, or one
            start = partial(constant_start, part, states)
            yield partial(_with, option, start, SAME), (0.1, 1.0)
        for move, guesses in ((_times, (0.9, 2.0)), (_plus, (0.1,)), (_clipped, (0.2, 0.5, 1.0))):
            yield partial(_with, option, move, usual), guesses


def gradients_with_a_constant(edges: Edges) -> Iterator[tuple[Callable[[float], Option], Guesses]]:
    """Gradients that are clipped, scaled or multiplied between two layers."""
    seen = set[str]()
    for option in edges.options():
        if option.edge not in seen and not option.outer and option.edge.startswith("out"):
            seen.add(option.edge)
            usual = edges.layers.edges[option.edge]
            for how in WITH_A_CONSTANT:
                yield partial(_with, option, partial(_back, how), usual), (0.003, 0.03, 0.3)


def _back(how: str, k: float) -> Move:
    name = f"is {how.replace('K', f'{k:.6g}', 1)}"
    return Move(name, SAME.there, function(f"{how}|{float(k)!r}").value)


def _with(option: Option, move: Callable[[float], Move], usual: Move, k: float) -> Option:
    return option._replace(move=move(k).after(usual))


def _times(k: float) -> Move:
    return scaled(f"counts {k:.6g} times", k)


def _plus(k: float) -> Move:
    return Move(f"is {k:.6g} larger", lambda v: v + k, lambda d: d, linear=False)


def _clipped(k: float) -> Move:
    return bent(f"is clipped at {k:.6g}", *function(f"clipped at K|{float(k)!r}"))


def scores_with_a_constant(scores: Scores) -> Iterator[tuple[Callable[[float], Score], Guesses]]:
    """Losses, targets and gradients with a constant K, each with the first guesses."""
    e, d, right, T = scores.each, scores.slope, scores.right, scores.grid[0]
    step = np.indices(scores.grid)[0].ravel()
    of_labels = scores.labels is not None

    def named(name: str, k: float) -> str:
        return name.replace("K", f"{k:.6g}")

    def whole(k: float) -> Score:
        name = named("the gradient of the outputs is clipped at K", k)
        return Score(name, right.each, np.clip(right.dv, -k, k))

    def outputs(k: float) -> Score:
        each, slope = scores.of(np.clip(scores.v, -k, k), scores.t)
        name = named("the loss takes the outputs clipped at K", k)
        return scores.score(name, each, slope * (abs(scores.v) < k))

    def weighted(k: float, name: str, text: str) -> Score:
        factor = scores.value(text, k=k, step=step, T=T)
        return scores.score(named(name, k), e * factor, d * factor[:, None])

    def target(k: float, name: str, text: str) -> Score:
        return scores.score(named(name, k), *scores.of(scores.v, scores.value(text, k=k)))

    def sloped(k: float, name: str, text: str) -> Score:
        return scores.score(named(name, k), e, scores.value(text, k=k))

    def softmax(k: float, name: str, text: str) -> Score:
        return scores.score(*scores.softmax(named(name, k), scores.value(text, k=k)))

    def some(values: Array) -> Guesses:
        return tuple(float(np.quantile(abs(values), q)) for q in (0.2, 0.5, 0.8))

    for name, (text, guesses) in USUAL.items():
        yield partial(sloped, name=name, text=text), guesses or some(d)
    if np.ptp(scores.w):
        yield whole, some(right.dv)
    yield outputs, (0.5, 1.0, 2.0)
    for name, text in OF_STEPS.items() if T > 1 else ():
        yield partial(weighted, name=name, text=text), (0.95,)
    if of_labels:
        name = "the gradient of the loss is multiplied by (1 - p)^K of the label"
        yield partial(sloped, name=name, text="d (1 - sum(p t))^k"), (0.9, 2.0)
        for name, text in OF_THE_SOFTMAX.items():
            yield partial(softmax, name=name, text=text), (1e-3, 0.1)
    for name, (text, guess) in OF_NUMBERS.items() if not of_labels else ():
        yield partial(target, name=name, text=text), (guess,)
