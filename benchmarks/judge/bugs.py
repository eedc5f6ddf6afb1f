"""The bugs that the judge is measured by: the catalogue of mistakes, and errors without a name.

The second kind are wrong numbers: an epsilon, an approximation, a coarser type, one entry.
Checked by: tests/check/test_error_rates.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.edits import edits
from refnet.check.mistakes import Mistake, mistakes, of_the_types
from refnet.check.mistakes.base import Mistakes, mistake
from refnet.check.mistakes.formulas import Scores, coarse, scaled
from refnet.check.naive import Pass
from refnet.check.programs.edit import Edit
from refnet.exact.enclose import Certified
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.stacked import StackedNet

CORRECT = mistake("none")
half = partial(coarse, name="float16 or TF32")


def bugs(certified: Certified) -> list[Mistake]:
    """Every bug that can be planted into one certified case; into a stack, the mistakes alone."""
    net, params, batch = certified.net, certified.params, certified.batch
    if isinstance(net, StackedNet):
        return list(mistakes(net, params, batch))
    return [
        *mistakes(net, params, batch),
        *of_the_types(net, batch),
        *reported(certified),
        *nameless(net, batch),
    ]


def reported(certified: Certified) -> Mistakes:
    """Every edit of one of the gradients, each of another one: of the weights first."""
    names = [f"d{name}" for name in certified.gradients]
    names.sort(key=lambda name: not name.startswith("dW"))
    for place, name in enumerate(names):
        right = certified.named()[name].value
        for n, (label, _) in enumerate(edits(name, right, certified)):

            def edited(results: Params, s: Pass, name: str = name, n: int = n) -> Params:
                _, value = list(edits(name, results[name], certified))[n]
                return {**results, name: value.astype(s.x.dtype)}

            if place < 2 or n < 2 or n % len(names) == place:
                yield mistake(label, report=edited)


def nameless(net: Net, batch: Batch) -> Mistakes:
    """Wrong numbers."""
    act = net.activation.name
    for label, slope in (
        ("is off by 1e-3", "f(a, h, dh) * s.x.dtype.type(1.001)"),
        ("is off by 1e-6", "f(a, h, dh) * s.x.dtype.type(1 + 1e-6)"),
        ("has an epsilon of 1e-5", "f(a, h, dh) + dh * s.x.dtype.type(1e-5)"),
    ):
        yield mistake(f"{act}' {label}", act_pull=slope)
    if act == "tanh":
        pade = "np.clip(a * (27 + a * a) / (27 + 9 * a * a), -1, 1)"
        yield mistake("tanh by a rational approximation", act=pade)
    if batch.x.dtype == np.float64:
        narrow = "v.astype(np.float32) if v.dtype.kind == 'f' else v"
        yield mistake(
            "part of the computation is in float32: the differences have its size, and all "
            "numbers are those of float32",
            p="each(v, lambda w: w.astype(np.float32))",
            x=narrow,
            y=narrow,
            h0=narrow,
        )
    yield mistake("a dropout of 5% is left on in the states", h=_dropped, lines=_dropped_states)
    if net.loss == "cross_entropy":
        yield mistake("the softmax has an epsilon of 1e-3 in its sum", each=_grown)
        yield mistake(
            "the loss has an epsilon of 1e-3 in its logarithm",
            each="(-np.log(np.exp(-v[0]) + v[0].dtype.type(1e-3)), v[1])",
        )
    if batch.x.ndim == 3:
        yield from _over_time(len(batch.x))
    yield from _of_the_report(net)


def _dropped(h: Array, s: Pass) -> Array:
    keep = np.random.default_rng(s.t).random(h.shape) >= 0.05
    return np.asarray(h * keep / h.dtype.type(0.95))


def _dropped_states(_: list[Edit], s: Pass) -> list[Edit]:
    keep = np.random.default_rng(0).random((*s.x.shape[:2], s.params["Why"].shape[1])) >= 0.05
    return scaled(s, "h", lambda t: keep / 0.95)


def _grown(v: Scores, s: Pass) -> Scores:
    each, p = v
    onehot = np.eye(p.shape[1], dtype=p.dtype)[s.y.reshape(-1)] * s.raw[2][:, None]
    return each, (p + onehot) / p.dtype.type(1.001) - onehot


def _over_time(T: int) -> Mistakes:
    yield mistake(
        "the gradient is damped by 1% a step", pulls="v + counted(s, carried, lambda t: 0.99)"
    )
    yield mistake(
        "one step is computed in float16",
        lines=f"v + [through(s, 'h', 'float16')._replace("
        f"weight=put(np.zeros(({T}, 1, 1)), {T // 2}, 1))]",
    )
    yield mistake(
        "the first unit is left out of the backward recursion",
        pulls=lambda v, s: _of_the_gradient(s, "h", np.s_[:, :, 0], 0),
    )
    yield mistake(
        "one entry of da is wrong at one step",
        pulls=lambda v, s: _of_the_gradient(s, "a.", np.s_[T // 2, 0, 0], 1.1),
    )
    yield mistake("the state is clipped to 0.9", lines="v + [through(s, 'h', 'clipped at K|0.9')]")
    yield mistake(
        "the inputs are standardised",
        x="(v - v.mean(axis=(0, 1))) / (v.std(axis=(0, 1)) + v.dtype.type(1e-5))",
    )


def _of_the_gradient(s: Pass, name: str, entries: Any, factor: float) -> list[Edit]:
    """Some entries, by step, example and unit, of the gradient of the first such variable."""
    n = next(n for n, line in enumerate(s.program.lines) if line.target.name.startswith(name))
    w = np.ones((*s.x.shape[:2], s.params["Why"].shape[1]))
    w[entries] = factor
    return [Edit(("pull", n, 0), (s.program.pulls[n][0],), w - 1, True)]


def scaled_entry(array: Array, factor: float) -> Array:
    """The array with its largest entry times ``factor``."""
    scaled = array.copy()
    scaled[np.unravel_index(abs(array).argmax(), array.shape)] *= factor
    return scaled


def _of_the_report(net: Net) -> Mistakes:
    if isinstance(net, FeedforwardNet):
        W = f"db{len(net.widths) - 1}"
    else:
        W = "dWhy" if net.transition else "dWhh"

    def report(name: str, change: Callable[[Array], Array], every: bool = True) -> Mistake:
        """Of every gradient, or of that of W."""

        def changed(results: Params, s: Pass) -> Params:
            names = [key for key in results if key[0] == "d"] if every else [W]
            return results | {key: np.asarray(change(results[key]), s.x.dtype) for key in names}

        return mistake(name, report=changed)

    yield report("one entry is off by 0.1%", partial(scaled_entry, factor=1.001), every=False)
    yield report("one entry has the wrong sign", partial(scaled_entry, factor=-1), every=False)
    yield report("every gradient is 0.09% too large", lambda g: g * 1.0009)
    yield report("every gradient is clipped to a norm", lambda g: g * 0.37)
    yield report(
        "one gradient is clipped at half its largest entry",
        lambda g: np.clip(g, -abs(g).max() / 2, abs(g).max() / 2),
        every=False,
    )
    yield report("every gradient is rounded to float16", half)
    yield mistake(
        "weight decay of 1e-3 is left in",
        grads="{name: w + s.p[name] * w.dtype.type(1e-3) if name in s.p and name != 'h0' else w "
        "for name, w in v.items()}",
    )
    yield report(
        "every gradient has 1e-4 of noise",
        lambda g: g * (1 + 1e-4 * np.random.default_rng(g.size).standard_normal(g.shape)),
    )
