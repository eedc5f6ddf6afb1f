"""Textbook forms of a formula that are right, but lose digits that the reference's form keeps.

``(1 + tanh(a / 2)) / 2`` is the sigmoid, but of a closed gate it keeps no digit: its error is
one unit roundoff of 1, not of the result. A program that uses such a form is not wrong; its
results are not explained by the rounding of the reference's operations either. So the
reference itself is run in the judged type with the form in place, on several slightly moved
inputs, and in float64 without it: the distance between the two is what the form explains.

Checked by: tests/test_forms.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.exact.enclose import Certified, states
from refnet.maths.activations import Activation
from refnet.maths.losses import LOSSES, Loss, Scored, counted_predictions, score
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["Form", "deviation", "forms", "once"]

SAMPLES = 24
MOVED = 2.0**-6
"""How far the inputs are moved, relatively: what is lost in rounding is another draw then."""


@dataclass(frozen=True)
class Form:
    """What is computed in another form: None for what is computed as in the reference."""

    sigmoid: str | None = None
    tanh: str | None = None
    loss: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The forms in words."""
        return tuple(part for part in (self.sigmoid, self.tanh, self.loss) if part is not None)


SIGMOID = "the sigmoid is computed as (1 + tanh(a / 2)) / 2"
TANH = "tanh is computed by exp, as 2 / (1 + exp(-2 a)) - 1"
UNSHIFTED = "softmax and log-sum-exp are computed without taking off the largest logit"
LOG_SOFTMAX = "the loss is computed as -log(softmax)"


def _sigmoid(a: Array, p: Params, alpha: float) -> Array:
    return np.asarray((1 + np.tanh(a / 2)) / 2)


def _tanh(a: Array, p: Params, alpha: float) -> Array:
    # on the left as 1 - 2 / (1 + exp(2 a)), which loses there what the other loses on the right
    return np.asarray(np.copysign(2 / (1 + np.exp(-2 * abs(a))) - 1, a))


def _unshifted(logits: Array, labels: Array) -> Scored:
    e, rows = np.exp(logits), np.arange(len(labels))
    total = e.sum(axis=1)
    gradient = e / total[:, None]
    gradient[rows, labels] -= 1
    return Scored(np.log(total) - logits[rows, labels], gradient)


def _log_softmax(logits: Array, labels: Array) -> Scored:
    usual, rows = LOSSES["cross_entropy"](logits, labels), np.arange(len(labels))
    return Scored(-np.log(usual.gradient[rows, labels] + 1), usual.gradient)


_LOSSES: dict[str | None, Loss] = {
    None: LOSSES["cross_entropy"], UNSHIFTED: _unshifted, LOG_SOFTMAX: _log_softmax}


def forms(net: Net) -> Iterator[Form]:
    """The forms that this net's functions have, those that change least first."""
    names = {net.activation.name}
    if isinstance(net, RecurrentNet) and net.cell != "rnn":
        names.add(net.gate.name)
    sigmoids = (None, SIGMOID) if "sigmoid" in names else (None,)
    tanhs = (None, TANH) if "tanh" in names else (None,)
    losses = tuple(_LOSSES) if net.loss == "cross_entropy" else (None,)
    found = [Form(*choice) for choice in product(sigmoids, tanhs, losses)]
    yield from sorted(found, key=lambda form: len(form.parts))[1:]


def _net(net: Net, form: Form) -> Net:
    own = {name: value for name, value, used in (("sigmoid", _sigmoid, form.sigmoid),
                                                 ("tanh", _tanh, form.tanh)) if used}

    def formed(entry: Activation) -> Activation:
        return replace(entry, value=own[entry.name]) if entry.name in own else entry

    net = replace(net, activation=formed(net.activation))
    return replace(net, gate=formed(net.gate)) if isinstance(net, RecurrentNet) else net


def _run(certified: Certified, form: Form, params: Params, batch: Batch) -> Params:
    """Every quantity that ``certified`` has, with the form in place, in the inputs' own type."""
    net = _net(certified.net, form)
    outputs, tape = net.forward(params, batch.x, batch.mask)
    counted, divisor = counted_predictions(batch.mask, outputs.shape[:-1], net.reduction)
    loss, doutputs = score(net.loss, outputs, batch.y, counted, divisor,
                           {**LOSSES, "cross_entropy": _LOSSES[form.loss]})
    gradients = net.backward(params, tape, doutputs)
    gradients.pop("clipped", None)
    return {"loss": loss, "outputs": outputs, **states(net, tape),
            **{f"d{name}": value for name, value in gradients.items()}}


class _Same:
    """A certificate as a key: itself, not its contents."""

    def __init__(self, certified: Certified) -> None:
        self.it = certified

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it


@lru_cache(maxsize=12)
def _samples(key: _Same, form: Form, dtype: Any, first: int, end: int) -> list[Params]:
    """Distances from the reference in float64 at moved inputs; in sample 0, of inputs that are
    not moved, from what is certified."""
    case = key.it

    def cast(array: Array, kind: Any) -> Array:
        return array.astype(kind) if array.dtype.kind == "f" else array

    found = []
    for sample in range(first, end):
        rng = np.random.default_rng(sample)

        def moved(array: Array) -> Array:
            wide = np.asarray(array, float)
            return np.asarray(wide * (1 + MOVED * bool(sample) * rng.normal(size=wide.shape))
                              ).astype(dtype)

        params = {name: moved(value) for name, value in case.params.items()}
        batch = case.batch._replace(x=moved(case.batch.x), y=cast(case.batch.y, dtype))
        with np.errstate(all="ignore"):
            theirs = _run(case, form, params, batch)
            exact = {name: value.value for name, value in case.named().items()} if not sample \
                else _run(case, Form(), {name: cast(value, float) for name, value in
                                         params.items()}, batch._replace(
                                             x=cast(batch.x, float), y=cast(batch.y, float)))
            found.append({name: theirs[name].astype(float) - exact[name] for name in theirs})
    return found


def once(certified: Certified, form: Form, dtype: Any) -> Params:
    """How far one run with the form in place is from what is certified."""
    return _samples(_Same(certified), form, np.dtype(dtype), 0, 1)[0]


def deviation(certified: Certified, form: Form, dtype: Any) -> Params:
    """The root mean square, over SAMPLES runs, of how far the form goes."""
    found = _samples(_Same(certified), form, np.dtype(dtype), 1, SAMPLES + 1)
    return {name: np.sqrt(np.mean([sample[name] ** 2 for sample in found], axis=0))
            for name in found[0]}
