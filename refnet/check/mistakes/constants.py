"""Mistakes with one constant, which is fitted to the results: a factor, a penalty, a temperature.

In the texts K stands for the constant; ``refnet.check.fitting`` fits it. Constants in the lines of
a cell are those of ``refnet.check.programs.constants``.

Checked by: tests/check/test_fitted_names.py.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from refnet.check.mistakes.base import Mistake, mistake, reading
from refnet.check.mistakes.scoring import SMOOTHED
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["Constant", "of_the_constants"]


class Constant(NamedTuple):
    """A mistake as a function of its constant K, which stands in the texts; with K = ``neutral``
    nothing changes."""

    name: str
    neutral: float
    places: dict[str, str]
    parameter: str = ""

    def mistake(self, k: float) -> Mistake:
        """The mistake with this constant."""
        name = self.name.replace("K", f"{k:.6g}")
        texts = self.places.items()
        places: dict[str, Any] = {place: text.replace("K", repr(k)) for place, text in texts}
        if self.parameter:
            there, back = places.pop("there", ""), places.pop("back", "")
            return reading(name, self.parameter, there, back, **places)
        return mistake(name, **places)


def of_the_constants(net: Net) -> Iterator[Constant]:
    """Every mistake with a constant that can be made with this net."""
    act = net.activation.name
    for what, only in (("parameters", ""), ("weights", "W")):
        report = {"report": f"penalised(v, s, K, {only!r})"}
        yield Constant(f"the loss has K times the sum of the squared {what} added (L2)", 0, report)
    if net.loss == "cross_entropy":
        for name, neutral, formula in (
            ("the logits are divided by K (a temperature)", 1, "-np.log(likely(v / K, y))"),
            ("label smoothing of K", 0, SMOOTHED.format("K")),
            (
                "the focal loss with gamma = K",
                0,
                "-((1 - likely(v, y)) ** K) * np.log(likely(v, y))",
            ),
            (
                "K times the squared logits are added to the loss",
                0,
                "-np.log(likely(v, y)) + K * (v * v).sum(axis=1)",
            ),
        ):
            yield Constant(name, neutral, {"each": f"scored(s, lambda v, y: {formula})"})
        for name, neutral, slope in (
            (
                "label smoothing of K in the gradient alone",
                0,
                "softmax(v) - (1 - K) * y - K / y.shape[1]",
            ),
            ("the label counts K times in the gradient of the softmax", 1, "softmax(v) - K * y"),
        ):
            yield Constant(name, neutral, {"each": f"(v[0], sloped(s, lambda v, y: {slope}))"})
    if net.loss == "squared_error":
        name = "Huber's loss with delta = 1 / K in place of the squared error"
        loss = "huber(v - y, 1 / max(K, 1e-9)).mean(axis=1)"
        yield Constant(name, 0, {"each": f"scored(s, lambda v, y: {loss})"})
        yield Constant("the targets are divided by K", 1, {"y": "v / K"})
        yield Constant("K is added to the targets", 0, {"y": "v + K"})
    inside = {"act": "f(K * a)", "act_pull": "K * f(a, h, dh)"}
    yield Constant(f"the argument of {act} is multiplied by K", 1, inside)
    yield Constant(f"K is added to {act}'", 0, {"act_pull": "f(a, h, dh) + K * dh"})
    step = "after a step of K of gradient descent"
    if isinstance(net, RecurrentNet):
        through = {"direct": "entering(v, s, s.dv @ (s.p['Why'] - K * s.dv.T @ s.rows))"}
        yield Constant(f"the gradient goes through Why {step}", 0, through)
    else:
        through = {"W": "v - K * s.product(s.da.T, s.h[s.t - 1])"}
        below = {"W": f"{through['W']} if s.t <= {net.depth} else v"}
        yield Constant(f"the gradient goes through each matrix {step}", 0, through)
        yield Constant(f"the gradient goes through each matrix but the last {step}", 0, below)
    if isinstance(net, RecurrentNet):
        yield from _of_the_recurrence(net)


def _of_the_recurrence(net: RecurrentNet) -> Iterator[Constant]:
    rnn = net.cell == "rnn"
    leaky = {"cell": "blended(v, 'h', f'{K!r} {{0}}o + {1 - K!r} {{0}}-')"}
    yield Constant("the state is leaky: K times the new one, 1 - K times the old one", 1, leaky)
    carry = {"pulls": "v + counted(s, carried, lambda t: K)"}
    yield Constant("the gradient that is carried is multiplied by K at each step", 1, carry)
    squares = {
        "direct": "v + np.stack([0 * s.h[0]] + s.h[1:]) * 2 * K / np.stack(s.h[1:]).size",
        "report": "{**v, 'loss': v['loss'] + K * np.mean(np.stack(s.h[1:]) ** 2)}",
    }
    yield Constant("K times the mean of the squared states is added to the loss", 0, squares)
    yield Constant("x is multiplied by K", 1, {"x": "v * K", "back": "w * K"}, "x")
    for name in ("Whh", "Wxh", "bh", "Why", "by"):
        there = {"there": "w * K"}
        yield Constant(f"{name} is multiplied by K", 1, {**there, "back": "w * K"}, name)
        yield Constant(f"{name} is multiplied by K, though not its gradient", 1, there, name)
    if not rnn:
        steeper = {"sigmoid": "f(K * a)", "sigmoid_pull": "K * f(a, h, dh)"}
        yield Constant("the argument of the gates' sigmoid is multiplied by K", 1, steeper)
        for n, gate in enumerate(net.gates):
            rows = f"np.s_[{n * net.hidden}:{(n + 1) * net.hidden}]"
            there = {"there": f"put(w, {rows}, w[{rows}] + K)"}
            yield Constant(f"K is added to the bias of gate {gate}", 0, there, "bh")
