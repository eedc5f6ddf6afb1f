"""The usual misunderstandings between two implementations, as gradients to compare with.

Each candidate is a reading of the net that differs from the reference's in one convention,
computed in float64 by the reference itself on altered inputs, parameters or tapes. Nets with
a transition get only those that do not touch the matrix it makes.
Checked by: tests/test_compare.py::test_convention_is_named.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.exact.enclose import Certified, states
from refnet.maths.activations import Activation
from refnet.maths.losses import counted_predictions, score
from refnet.nets.recurrent import RecurrentNet

__all__ = ["candidates"]

Candidates = Iterator[tuple[str, Params]]


def candidates(certified: Certified, variants: dict[str, Params] | None = None) -> Candidates:
    """Pairs of a convention and the quantities it changes, by the names of
    ``Certified.named``; ``variants`` adds readings of the parameters, such as a bias left out.
    """
    true = {name: value.value for name, value in certified.named().items()}
    yield from _of_the_report(true)
    yield from _of_the_reduction(certified, true)
    if isinstance(certified.net, RecurrentNet) and certified.net.transition is None:
        yield from _of_the_recursion(_Case(certified), variants or {})


def _of_the_report(true: Params) -> Candidates:
    """The right gradient, reported another way."""
    for name, value in true.items():
        if not name.startswith("d"):
            continue
        if value.ndim == 2:
            yield f"{name} is transposed", {name: value.T}
        if value.ndim == 3:
            yield f"{name} has batch and time swapped", {name: value.swapaxes(0, 1)}
            yield f"{name} is reversed in time", {name: value[::-1]}
    for name in ("dh0", *(name for name in true if name.startswith("db"))):
        if name in true and true[name].any():
            zero = np.zeros_like(true[name])
            yield f"the gradient {name} is missing (zero)", {name: zero}
            yield f"{name} is doubled: the gradients of two biases are added", {
                name: 2 * true[name]}
            yield f"{name} is halved: the gradient is shared by two biases", {
                name: true[name] / 2}
    gradients = {name: value for name, value in true.items() if name.startswith("d")}
    yield "every gradient has the wrong sign", {name: -value for name, value in gradients.items()}


def _of_the_reduction(certified: Certified, true: Params) -> Candidates:
    """Sum for mean and the like: all gradients by one factor."""
    net, batch = certified.net, certified.batch
    shape = certified.outputs.value.shape[:-1]
    divisors = {name: counted_predictions(batch.mask, shape, name)[1]
                for name in ("sum", "mean", "batch_mean")}
    factors = {f"the reduction is {name} instead of {net.reduction}":
               divisors[net.reduction] / divisor for name, divisor in divisors.items()}
    outputs = certified.outputs.value.shape[-1]
    if net.loss == "squared_error":
        factors["the squared error has a factor 1/2"] = 1 / 2
        factors["the squared error is summed over the outputs, not their mean"] = outputs
        factors["half the squared error, summed over the outputs"] = outputs / 2
    for label, factor in factors.items():
        if factor != 1:
            yield label, {name: value * factor for name, value in true.items()
                          if name == "loss" or name.startswith("d")}


class _Case:
    """The net and its inputs in float64, with the gain in the matrices."""

    def __init__(self, certified: Certified) -> None:
        net = certified.net
        assert isinstance(net, RecurrentNet)
        given = {name: np.asarray(value, float) for name, value in certified.params.items()}
        self.params = net.layer.scaled(given)
        self.factors = {name: net.gain for name in given if self.params[name] is not given[name]}
        self.net = replace(net, gain=1, backend="reference")
        batch = certified.batch
        y = batch.y if batch.y.dtype.kind in "iu" else np.asarray(batch.y, float)
        self.batch = Batch(np.asarray(batch.x, float), y, batch.mask)
        self.gates = len(self.net.gates)

    def blocks(self, change: Any) -> Params:
        """The parameters with ``change(Whh)`` for every gate's block of Whh."""
        H = self.net.hidden
        made = [change(self.params["Whh"][n * H:(n + 1) * H]) for n in range(self.gates)]
        return {**self.params, "Whh": np.concatenate(made)}

    def reordered(self, order: tuple[int, ...], p: Params) -> Params:
        """Every stacked array of ``p`` with its gates in another order."""
        out = dict(p)
        for name in ("Whh", "Wxh", "bh"):
            parts = np.split(p[name], self.gates)
            out[name] = np.concatenate([parts[n] for n in order])
        return out

    def run(self, params: Params | None = None, batch: Batch | None = None,
            net: RecurrentNet | None = None, back: Params | None = None,
            slope: Activation | None = None, shift: int = 0) -> Params:
        """Every quantity of an altered net.

        ``back``: parameters for the backward pass alone; ``slope``: its activation alone;
        ``shift``: 1 to take the activation's slope at the state one step earlier.
        """
        params = self.params if params is None else params
        batch = self.batch if batch is None else batch
        net = self.net if net is None else net
        outputs, tape = net.forward(params, batch.x, batch.mask)
        seen = {"outputs": outputs, **states(net, tape)}
        counted, divisor = counted_predictions(batch.mask, outputs.shape[:-1], net.reduction)
        loss, doutputs = score(net.loss, outputs, batch.y, counted, divisor)
        if slope is not None:
            net = replace(net, activation=slope)
        if back is not None:
            tape = tape._replace(p={**tape.p, **back})
        if shift:
            h = tape.cell.h
            tape = tape._replace(cell=tape.cell._replace(h=np.concatenate([h[:1], h[:-1]])))
        return {"loss": loss, **seen, **self.named(net.backward(params, tape, doutputs))}

    def named(self, gradients: Params) -> Params:
        """Gradients under the names of ``Certified.named``, with the gain's factor back."""
        return {f"d{name}": value * self.factors.get(name, 1)
                for name, value in gradients.items()}

    def pre_activation_gradients(self, shift: int = 0) -> tuple[Array, Array]:
        """da (T, B, G H), and the states h (T + 1, B, H).

        Inputs of zeros with weights of one are added, whose gradient is da itself.
        """
        T, B, D = self.batch.x.shape
        rows = len(self.params["bh"])
        wide = replace(self.net, inputs=D + rows)
        params = {**self.params, "Wxh": np.hstack([self.params["Wxh"], np.eye(rows)])}
        x = np.concatenate([self.batch.x, np.zeros((T, B, rows))], axis=2)
        found = self.run(params, self.batch._replace(x=x), wide, shift=shift)
        _, tape = self.net.forward(self.params, self.batch.x, self.batch.mask)
        return found["dx"][..., D:], tape.cell.h

    def sums(self, da: Array, x: Array, h: Array) -> Params:
        """The weight gradients, from da (N, B, G H), x (N, B, D) and h (N, B, H)."""
        rows = da.reshape(-1, da.shape[-1])
        return self.named({"Whh": rows.T @ h.reshape(-1, h.shape[-1]),
                           "Wxh": rows.T @ x.reshape(-1, x.shape[-1]), "bh": rows.sum(axis=0)})


def _of_the_recursion(case: _Case, variants: dict[str, Params]) -> Candidates:
    """Another recursion, forward, backward or in the sums over time."""
    yield from _of_the_weights(case)
    yield from _of_the_inputs(case, variants)
    if case.net.cell == "rnn":
        yield from _of_the_slope(case)
    if case.gates > 1:
        yield from _of_the_gates(case)


def _of_the_weights(case: _Case) -> Candidates:
    turned = case.blocks(np.transpose)
    yield "Whh is transposed in the forward and backward pass", case.run(turned)
    found = case.run(turned)
    found["dWhh"] = np.concatenate([part.T for part in np.split(found["dWhh"], case.gates)])
    yield "Whh is transposed, and its gradient transposed back", found
    yield "Whh is transposed in the backward recursion only", case.run(back={"Whh": turned["Whh"]})
    nothing = {"Whh": np.zeros_like(case.params["Whh"])}
    yield "the gradient is not carried from step to step", case.run(back=nothing)
    if case.net.cell in ("rnn", "lstm"):
        da, h = case.pre_activation_gradients()
        x = case.batch.x
        true = case.sums(da, x, h[:-1])
        yield "the gradient of Whh takes h[t] for h[t-1]", {
            "dWhh": case.sums(da, x, h[1:])["dWhh"]}
        for label, kept in (("first", slice(1, None)), ("last", slice(None, -1))):
            part = case.sums(da[kept], x[kept], h[:-1][kept])
            yield f"the {label} step is dropped from the weight gradients", part
            for name in true:
                yield f"the {label} step is dropped from {name}", {name: part[name]}


def _of_the_inputs(case: _Case, variants: dict[str, Params]) -> Candidates:
    x, y, mask = case.batch
    T, B, D = x.shape
    every = case.net.readout == "every"
    yield "the bias bh is left out (one of two biases only)", case.run(
        {**case.params, "bh": np.zeros_like(case.params["bh"])})
    for label, params in variants.items():
        yield label, case.run({**case.params, **{name: np.asarray(value, float)
                                                 for name, value in params.items()}})
    found = case.run(batch=case.batch._replace(x=x[::-1]))
    yield "time is reversed", {**found, "dx": found["dx"][::-1]}
    yield "time is reversed, and so is the gradient in x", found
    found = case.run(batch=case.batch._replace(x=x.reshape(B, T, D).swapaxes(0, 1)))
    yield "x is read with batch and time swapped", {
        **found, "dx": found["dx"].swapaxes(0, 1).reshape(x.shape)}
    if T == B:
        found = case.run(batch=case.batch._replace(x=x.swapaxes(0, 1)))
        yield "x has batch and time swapped", {**found, "dx": found["dx"].swapaxes(0, 1)}
    if T > 1:
        for label, kept in (("first", slice(1, None)), ("last", slice(None, -1))):
            found = case.run(batch=Batch(x[kept], y[kept] if every else y,
                                         None if mask is None else mask[kept]))
            dx = np.zeros(x.shape)
            dx[kept] = found["dx"]
            yield f"the {label} step of the sequence is dropped", {**found, "dx": dx}
    if mask is not None:
        yield "the mask is ignored", case.run(batch=case.batch._replace(mask=None))
    if "h0" in case.params:
        none = np.zeros_like(case.params["h0"])
        yield "h0 is ignored", {**case.run({**case.params, "h0": none}), "dh0": none}


def _of_the_slope(case: _Case) -> Candidates:
    """The derivative of the activation, taken of the wrong array."""
    act = case.net.activation
    name = act.name
    yield f"{name}' is taken of a where h belongs", case.run(slope=replace(
        act, pull=lambda a, h, dh, p, alpha: act.pull(a, a, dh, p, alpha)))
    yield f"{name}' is taken of h where a belongs", case.run(slope=replace(
        act, pull=lambda a, h, dh, p, alpha: act.pull(h, act.value(h, p, alpha), dh, p, alpha)))
    da, h = case.pre_activation_gradients(shift=1)
    yield f"{name}' is taken of the state one step earlier", {
        **case.run(shift=1), **case.sums(da, case.batch.x, h[:-1])}


def _of_the_gates(case: _Case) -> Candidates:
    gates = case.net.gates
    usual = tuple(range(case.gates))
    for order in permutations(usual):
        if order == usual:
            continue
        names = ", ".join(gates[n] for n in order)
        found = case.run(case.reordered(order, case.params))
        back: list[Any] = [order.index(n) for n in usual]
        plain = {name[1:]: found[name] for name in ("dWhh", "dWxh", "dbh")}
        turned = {f"d{name}": value for name, value in
                  case.reordered(tuple(back), plain).items()}
        yield f"the gates are read in the order {names}", {**found, **turned}
        true = case.run()
        shown = case.reordered(order, {name[1:]: true[name] for name in ("dWhh", "dWxh", "dbh")})
        yield f"the gradients' gates are stacked in the order {names}", {
            f"d{name}": value for name, value in shown.items()}
    if case.net.cell == "gru":
        without = {name: value for name, value in case.params.items() if name != "bhn"}
        yield "the GRU resets the state before the product, not after", case.run(
            without, net=replace(case.net, cell="gru_before"))
    if case.net.cell == "gru_before":
        added = {**case.params, "bhn": np.zeros(case.net.hidden)}
        yield "the GRU resets after the product, not before", case.run(
            added, net=replace(case.net, cell="gru"))
