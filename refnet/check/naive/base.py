"""One forward and backward pass with places for changes: what all kinds of nets share."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.maths.losses import counted_predictions
from refnet.nets.gradients import Net

__all__ = ["Change", "FORWARD", "Pass", "Product"]

Change = Mapping[str, Callable[[Any, "Pass"], Any]]
Product = Callable[[Array, Array], Array]
FORWARD = frozenset(
    "product made_of p x y mask weights final h0 cell lines m sigmoid act a h steps rows each "
    "divisor edges".split()
)
"""The places whose change may show in the outputs or the loss."""


class Pass:
    """One forward and backward pass, whose attributes a change may read."""

    program: Any
    layers: Any
    d: Params
    bound: float | None

    def __init__(
        self,
        net: Net,
        params: Params,
        batch: Batch,
        changes: tuple[Change, ...],
        product: Product = np.matmul,
        backward: bool = True,
    ) -> None:
        self.net, self.params, self.batch, self.changes = net, params, batch, changes
        self.backward, self.t = backward, 0
        self.h: list[Array] = []
        self.c: list[Array] = []
        self.a: list[Array] = []
        self.product: Product = self.at("product", product)
        self.x: Array = self.at("x", batch.x)
        self.y: Array = self.at("y", batch.y)
        self.mask: Array | None = self.at("mask", batch.mask)
        self.weights: Array | None = self.at("weights", batch.weights)
        self.final: Params = self.at("final", batch.final or {})

    @property
    def key(self) -> object:
        """What passes that run together have in common."""
        return None

    def has(self, *places: str) -> bool:
        """Whether a change is of one of these places."""
        return any(place in change for change in self.changes for place in places)

    def at(self, place: str, value: Any) -> Any:
        """``value`` as the changes of this place make it."""
        for change in self.changes[:: -1 if place == "grads" else 1]:
            if place in change:
                value = change[place](value, self)
        return value

    def run(self) -> Params:
        """See ``refnet.check.programs.passes.run``, where a recurrent cell's program runs."""
        raise NotImplementedError

    def reported(self, results: Params, grads: Params) -> Params:
        """``results`` and the gradients, by d + name, as the changes of ``report`` make them."""
        results = results | {f"d{name}": value for name, value in grads.items()}
        return dict(self.at("report", results))

    def ends(self) -> Params:
        """The states after the last step, as initial ones by their names."""
        return {}

    @property
    def lengths(self) -> Array:
        """The steps (B,) of every sequence."""
        T, B = self.x.shape[:2]
        return np.full(B, T) if self.mask is None else last_steps(self.mask)

    def linear(self, rows: Array, W: Array, bias: Array) -> Array:
        """``rows @ W.T`` and the bias."""
        return self.product(rows, W.T) + bias

    def clipped(self, da: Array) -> Array:
        """``da`` within the bound of the recursion's clipping, if it has one."""
        return da if self.bound is None else np.clip(da, -self.bound, self.bound)

    def score(self, v: Array) -> Array:
        """Set the loss; its gradient in the outputs v (..., C)."""
        net, lead, C = self.net, v.shape[:-1], v.shape[-1]
        self.outputs = v
        flat, y = v.reshape(-1, C), self.y.reshape(-1, *self.y.shape[len(lead) :])
        counted, divisor = counted_predictions(self.mask, lead, net.reduction, self.weights)
        if net.loss == "cross_entropy":
            top = flat - flat.max(axis=1, keepdims=True)
            e = np.exp(top)
            total = e.sum(axis=1, keepdims=True)
            onehot = np.eye(C, dtype=v.dtype)[y]
            each, dv = np.log(total[:, 0]) - (top * onehot).sum(axis=1), e / total - onehot
        elif net.loss == "squared_error":
            each, dv = ((flat - y) ** 2).sum(axis=1) / C, 2 * (flat - y) / C
        else:
            each, dv = (flat * y).sum(axis=1), y
        weights = np.broadcast_to(1 if self.weights is None else self.weights, lead)
        weights = np.where(True if counted is None else counted, weights, 0).ravel()
        self.raw = each, dv, weights.astype(v.dtype)
        each, dv = self.at("each", (each * self.raw[2], dv * self.raw[2][:, None]))
        divisor = self.at("divisor", divisor)
        ends = self.ends()
        added = sum((ends[name] * value).sum() for name, value in self.final.items())
        self.loss = np.asarray(each.sum() / divisor + added, v.dtype)
        return np.asarray((dv / divisor).reshape(v.shape), v.dtype)
