"""Textbook forms of a formula that are correct but lose digits that the reference's form keeps.

``(1 + tanh(a / 2)) / 2`` is the sigmoid, but for a closed gate it keeps no digit: its error is one
unit roundoff of 1, not of the result. A program that uses such a form is not wrong, yet the
rounding of the reference's operations does not explain its results. So ``refnet.check.noise``
measures the noise once more with the form in place. Every operation is then perturbed by its
rounding error, including the one whose small difference is the result.

Checked by: tests/check/test_textbook_forms.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.noise import spread
from refnet.exact.enclose import Certified, Lift, states
from refnet.exact.functions import CertifiedFunction
from refnet.maths.activations import Activation
from refnet.maths.losses import LOSSES, Loss, Scored, counted_predictions, largest, score
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["Form", "combined", "deviation", "forms", "once"]

Form = tuple[str, ...]
"""What is computed in another form, in words."""

SIGMOID = "the sigmoid is computed as (1 + tanh(a / 2)) / 2 or 1 - sigmoid(-a)"
TANH = "tanh is computed by exp, as 2 / (1 + exp(-2 a)) - 1"
SOFTSIGN = "the slope of softsign is computed as 1 / (1 + |a|) - |a| / (1 + |a|)^2"
MIX = "h is computed as h + (1 - z) (n - h)"
COUPLED = "the forget gate is computed as 1 - i"
UNSHIFTED = "softmax and log-sum-exp are computed without taking off the largest logit"
LOG_SOFTMAX = "the loss is computed as -log(softmax)"
LOG_SUM_EXP = "the loss is computed as logsumexp(v) - v_label, and softmax as exp(v - logsumexp(v))"


def _sigmoid(a: Array, p: Params, alpha: float) -> Array:
    return np.asanyarray(1 - 1 / (1 + np.exp(a)))


def _tanh(a: Array, p: Params, alpha: float) -> Array:
    return np.asanyarray(1 - 2 / (1 + np.exp(2 * a)))


def _softsign_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    """As automatic differentiation of a / (1 + |a|) has it."""
    size = 1 + a * np.where(a < 0, -1, 1)
    return dh / size - dh * (size - 1) / size / size, {}


def _unshifted(logits: Array, labels: Array) -> Scored:
    e, rows = np.exp(logits), np.arange(len(labels))
    total = e.sum(axis=1)
    gradient = e / total[:, None]
    gradient[rows, labels] = gradient[rows, labels] - 1
    return Scored(np.log(total) - logits[rows, labels], gradient)


def _log_softmax(logits: Array, labels: Array) -> Scored:
    usual, rows = LOSSES["cross_entropy"](logits, labels), np.arange(len(labels))
    return Scored(-np.log(usual.gradient[rows, labels] + 1), usual.gradient)


def _log_sum_exp(logits: Array, labels: Array) -> Scored:
    rows = np.arange(len(labels))
    most = largest(logits)
    total = most + np.log(np.exp(logits - most[:, None]).sum(axis=1))
    gradient = np.exp(logits - total[:, None])
    gradient[rows, labels] = gradient[rows, labels] - 1
    return Scored(total - logits[rows, labels], gradient)


_LOSSES: dict[str, Loss] = {
    UNSHIFTED: _unshifted,
    LOG_SOFTMAX: _log_softmax,
    LOG_SUM_EXP: _log_sum_exp,
}


def forms(net: Net) -> Form:
    """The forms that this net's formulas have."""
    names, possible = {net.activation.name}, []
    if isinstance(net, RecurrentNet) and net.cell != "rnn":
        names.add(net.gate.name)
        if net.cell in ("gru", "gru_before"):
            possible.append(MIX)
        if net.cell == "cifg":
            possible.append(COUPLED)
    possible += [
        form
        for form, name in ((SIGMOID, "sigmoid"), (TANH, "tanh"), (SOFTSIGN, "softsign"))
        if name in names
    ]
    return (*possible, *(_LOSSES if net.loss == "cross_entropy" else ()))


def combined(parts: Form) -> Iterator[Form]:
    """All that a program may use of these forms, those that change least first."""
    for size in range(1, len(parts) + 1):
        for form in combinations(parts, size):
            if sum(part in _LOSSES for part in form) < 2:
                yield form


def _net(net: Net, form: Form) -> Net:
    replacements: dict[str, dict[str, Any]] = {
        name: how
        for name, how, part in (
            ("sigmoid", {"value": _sigmoid}, SIGMOID),
            ("tanh", {"value": _tanh}, TANH),
            ("softsign", {"pull": _softsign_pull}, SOFTSIGN),
        )
        if part in form
    }

    def formed(entry: Activation) -> Activation:
        return replace(entry, **replacements.get(entry.name, {}))

    net = replace(net, activation=formed(net.activation))
    if not isinstance(net, RecurrentNet):
        return net
    gate = formed(net.gate)
    if MIX not in form:
        return replace(net, gate=gate)
    return replace(
        net,
        gate=replace(
            gate, pull=lambda a, h, dh, p, alpha: gate.backward(a, gate.forward(a, p), dh, p)
        ),
    )  # of a: the slope keeps its digits


def _tapes(tape: Any) -> tuple[Any, ...]:
    """Of one cell, or of all in a stack."""
    return tuple(tape.cell.values()) if isinstance(tape.cell, dict) else (tape.cell,)


def _run(certified: Certified, form: Form, lifted: Lift) -> Params:
    """Every quantity that ``certified`` has, with the form in place, on lifted numbers."""
    net, batch = _net(certified.net, form), certified.batch
    params = {name: lifted(value, name) for name, value in certified.params.items()}
    outputs, tape = net.forward(params, lifted(batch.x, "x"), batch.mask)
    if MIX in form:  # h - (1 - z) h is z h, of which (1 - z) keeps the digits that 1 has
        for cell in _tapes(tape):
            cell.v[:, :, 1] = 1 - (1 - cell.v[:, :, 1])
    if COUPLED in form:  # f is what the gradient goes back by
        for cell in _tapes(tape):
            cell.v[:, :, 1] = 1 - cell.v[:, :, 0]
    counted, divisor = counted_predictions(batch.mask, outputs.shape[:-1], net.reduction)
    losses = [_LOSSES[part] for part in form if part in _LOSSES]
    y = batch.y if net.loss == "cross_entropy" else lifted(batch.y, "y")
    loss, doutputs = score(
        net.loss,
        outputs,
        y,
        counted,
        divisor,
        {**LOSSES, "cross_entropy": (*losses, LOSSES["cross_entropy"])[0]},
    )
    gradients = net.backward(params, tape, doutputs)
    gradients.pop("clipped", None)
    return {
        "loss": loss,
        "outputs": outputs,
        **states(net, tape),
        **{f"d{name}": value for name, value in gradients.items()},
    }


@dataclass(frozen=True)
class _Formed(Certified):
    """What is certified, whose noise is that of the form."""

    form: Form

    def run(self, lifted: Lift) -> Params:
        return _run(self, self.form, lifted)


class _Same:
    """A certificate as a key: itself, not its contents."""

    def __init__(self, certified: Any) -> None:
        self.it = certified

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it


@lru_cache(maxsize=12)
def _once(key: _Same, form: Form, dtype: Any) -> Params:
    run = partial(_run, key.it, form) if form else key.it.run
    with np.errstate(all="ignore"):
        theirs = run(lambda array, name: np.asarray(array, dtype))
        return {
            name: theirs[name].astype(float) - value.value for name, value in key.it.named().items()
        }


@lru_cache(maxsize=12)
def _deviation(key: _Same, form: Form, dtype: Any) -> Params:
    return spread(_Formed(**vars(key.it), form=form), dtype)


def once(certified: Certified | CertifiedFunction, form: Form, dtype: Any) -> Params:
    """How far one run in ``dtype`` with the form in place is from what is certified. A function
    has no forms but ()."""
    return _once(_Same(certified), form, np.dtype(dtype))


def deviation(certified: Certified, form: Form, dtype: Any) -> Params:
    """The spread of rounding with the form in place."""
    return _deviation(_Same(certified), form, np.dtype(dtype))
