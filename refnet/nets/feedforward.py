"""The deep feedforward net, with the interface of ``refnet.nets.recurrent``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from refnet.batch import Array, Params
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.maths.losses import LOSSES, REDUCTIONS, Loss
from refnet.maths.numeric import matmul
from refnet.matrices.initializers import glorot_uniform
from refnet.matrices.transitions import Transition, assemble
from refnet.nets.base import Initializer, NetTape, choice, pulled, same_kind

__all__ = ["FeedforwardNet"]


@dataclass(frozen=True)
class FeedforwardNet:
    """A deep feedforward net of any widths: ``h_l = f(W_l h_{l-1} + b_l)``, linear output.

    ``widths``: inputs, hidden layers, outputs; the parameters are W1 (widths[1], widths[0]),
    b1, ..., and each hidden layer has its own activation parameters (slope1, ...).
    ``transition``: None, or what the hidden layers' square matrices are made of (all hidden
    ones if the transition takes rectangular matrices).

    It has no compiled twin: a layer is used once a step, so that packing its matrix and waking
    threads, which a recurrent net does once for all time steps, would cost what they save.

    Source: Manchev & Spratling, eqs. 5-6 as corrected: the output is ``W h + b`` too.
    Checked by: tests/test_exact.py, tests/test_gradients.py.
    """

    widths: tuple[int, ...]
    activation: Activation = ACTIVATIONS["tanh"]
    transition: Transition | None = None
    loss: str = "cross_entropy"
    reduction: str = "mean"
    losses: ClassVar[Mapping[str, Loss]] = LOSSES

    def __post_init__(self) -> None:
        choice("loss", self.loss, tuple(LOSSES))
        choice("reduction", self.reduction, REDUCTIONS)
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise ValueError(f"widths are {self.widths}; need at least inputs and outputs, "
                             "each at least 1, such as (784, 100, 10)")

    @property
    def depth(self) -> int:
        """The number of hidden layers."""
        return len(self.widths) - 2

    @property
    def slots(self) -> tuple[str, ...]:
        """The hidden layers' matrices that a transition can make."""
        return tuple(f"W{layer}" for layer in range(1, self.depth + 1)
                     if self.widths[layer] == self.widths[layer - 1]
                     or getattr(self.transition, "rectangular", False))

    def init(self, rng: np.random.Generator, dtype: Any = np.float32,
             weights: Initializer = glorot_uniform, recurrent: Initializer | None = None,
             inputs: Initializer | None = None) -> Params:
        """Start values: ``weights`` draws every matrix, but ``recurrent`` the square hidden
        ones and ``inputs`` W1, if given; biases are zero. Drawn in float64, then rounded.
        """
        params: Params = {}
        for layer in range(1, self.depth + 2):
            shape = (self.widths[layer], self.widths[layer - 1])
            square = shape[0] == shape[1] and layer <= self.depth
            special = recurrent if square else inputs if layer == 1 else None
            start = (special or weights)(shape, rng)
            name = f"W{layer}"
            if self.transition is not None and name in self.slots:
                params |= {f"{name}.{part}": value
                           for part, value in self.transition.init(start).items()}
            else:
                params[name] = start
            params[f"b{layer}"] = np.zeros(shape[0])
            if layer <= self.depth:
                params |= {f"{own}{layer}": value
                           for own, value in self.activation.init(shape[0]).items()}
        return {name: value.astype(dtype) for name, value in params.items()}

    def _own(self, p: Params, layer: int) -> Params:
        return {name: p[f"{name}{layer}"] for name, *_ in self.activation.start}

    def matrices(self, params: Params) -> tuple[Params, dict[str, Any]]:
        """The parameters with every matrix made by the transition, and its tapes."""
        if self.transition is None:
            return params, {}
        made, tapes = assemble(self.transition, params, self.slots)
        return {**params, **made}, tapes

    def with_matrices(self, params: Params, made: Params) -> Params:
        """The parameters of a net without a transition, with these matrices replaced."""
        return {**params, **made}

    def forward(self, params: Params, x: Array, mask: Array | None = None
                ) -> tuple[Array, NetTape]:
        """Outputs (B, C) and the tape. Shapes: x (B, D). ``mask`` must be None.

        Raises ValueError on shapes or dtypes that do not fit.
        """
        if x.ndim != 2 or x.shape[1] != self.widths[0]:
            raise ValueError(f"feedforward.forward: x has shape {x.shape}; need (B, D) with D = "
                             f"{self.widths[0]}, because the widths are {self.widths}")
        if mask is not None:
            raise ValueError("feedforward.forward: a mask is for sequences; pass None")
        same_kind(params, x)
        p, made = self.matrices(params)
        h, tape = x, []
        for layer in range(1, self.depth + 1):
            v = matmul(h, p[f"W{layer}"].T) + p[f"b{layer}"]
            tape.append((h, v))
            h = self.activation.forward(v, self._own(p, layer))
        outputs = matmul(h, p[f"W{self.depth + 1}"].T) + p[f"b{self.depth + 1}"]
        return outputs, NetTape(p, made, tape, h, None)

    def backward(self, params: Params, tape: NetTape, doutputs: Array, inputs: bool = True,
                 extra: Params | None = None) -> Params:
        """Gradients in every parameter and, if ``inputs``, in x: from the last layer down,
        ``dv_l = f'(v_l) (W_{l+1}' dv_{l+1})``, ``dW_l = dv_l h_{l-1}'``, ``db_l = dv_l``.

        Source: Manchev & Spratling, eqs. 9-10 as corrected.
        """
        p, made, layers, h, _ = tape
        last = self.depth + 1
        grads: Params = {}
        dv = doutputs
        for layer in range(last, 0, -1):
            below = layers[layer - 2] if layer > 1 else None
            grads[f"W{layer}"] = matmul(dv.T, h)
            grads[f"b{layer}"] = dv.sum(axis=0)
            if below is None:
                break
            dh = matmul(dv, p[f"W{layer}"])
            dv, own = self.activation.backward(below[1], h, dh, self._own(p, layer - 1))
            grads |= {f"{name}{layer - 1}": value for name, value in own.items()}
            h = below[0]
        if inputs:
            grads["x"] = matmul(dv, p["W1"])
        return pulled(self, params, made, grads, extra)
