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
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.noise import spread
from refnet.exact.convert import Lift
from refnet.exact.enclose import Certified, run_on
from refnet.exact.functions import CertifiedFunction
from refnet.maths.activations import Activation
from refnet.maths.losses import LOSSES, Loss, Scored, largest
from refnet.nets.base import NetTape
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["Form", "combined", "deviation", "errors_of_one_run", "forms"]

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


_FUNCTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    SIGMOID: ("sigmoid", {"value": _sigmoid}),
    TANH: ("tanh", {"value": _tanh}),
    SOFTSIGN: ("softsign", {"pull": _softsign_pull}),
}
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
    possible += [form for form, (name, _) in _FUNCTIONS.items() if name in names]
    return (*possible, *(_LOSSES if net.loss == "cross_entropy" else ()))


def combined(parts: Form) -> Iterator[Form]:
    """Every combination of these forms that a program may use, the smallest ones first."""
    for size in range(1, len(parts) + 1):
        for form in combinations(parts, size):
            if sum(part in _LOSSES for part in form) < 2:
                yield form


def _net(net: Net, form: Form) -> Net:
    changes: dict[str, dict[str, Any]] = {
        name: change for part, (name, change) in _FUNCTIONS.items() if part in form
    }

    def formed(entry: Activation) -> Activation:
        return replace(entry, **changes.get(entry.name, {}))

    net = replace(net, activation=formed(net.activation))
    if not isinstance(net, RecurrentNet):
        return net
    gate = formed(net.gate)

    def pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
        """Of a: the slope keeps its digits."""
        return gate.backward(a, gate.forward(a, p), dh, p)

    return replace(net, gate=replace(gate, pull=pull) if MIX in form else gate)


@dataclass(frozen=True, eq=False)
class _Formed(Certified):
    """What is certified, whose noise is that of the form."""

    form: Form = ()

    def run(self, lifted: Lift) -> Params:
        """Every quantity that is certified, with the form in place, on lifted numbers."""

        def formed(tape: NetTape) -> None:
            cell: Any
            for cell in tape.cells.values():
                if MIX in self.form:  # h - (1 - z) h is z h, of which (1 - z) keeps 1's digits
                    cell.v[:, :, 1] = 1 - (1 - cell.v[:, :, 1])
                if COUPLED in self.form:  # f is what the gradient goes back by
                    cell.v[:, :, 1] = 1 - cell.v[:, :, 0]

        changed = [_LOSSES[part] for part in self.form if part in _LOSSES]
        losses = {**LOSSES, "cross_entropy": (*changed, LOSSES["cross_entropy"])[0]}
        case = _net(self.net, self.form), self.params, self.batch
        return run_on(*case, lifted, self.divisor, self.penalty, losses, formed)


@lru_cache(maxsize=12)
def errors_of_one_run(
    certified: Certified | CertifiedFunction, form: Form, dtype: np.dtype[Any]
) -> Params:
    """One run's errors in ``dtype`` with the form in place, by name. A function's only form is
    ()."""
    run = _Formed(**vars(certified), form=form).run if form else certified.run

    def lifted(array: Array, name: str) -> Array:
        return np.asarray(array, dtype)

    with np.errstate(all="ignore"):
        theirs = run(lifted)
        return {
            name: theirs[name].astype(float) - value.value
            for name, value in certified.named().items()
        }


@lru_cache(maxsize=12)
def deviation(certified: Certified, form: Form, dtype: np.dtype[Any]) -> Params:
    """The spread of rounding with the form in place."""
    return spread(_Formed(**vars(certified), form=form), dtype)
