"""The deep feedforward net, with the interface of ``refnet.nets.recurrent``."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params
from refnet.common.arguments import Shapes, admit, choice, generator, kind, short, whole
from refnet.common.process import serial_blas
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.maths.numeric import Number, matmul
from refnet.matrices.initializers import glorot_uniform
from refnet.matrices.slots import Residuals, Transition, assemble
from refnet.nets.backends import BACKENDS, Backed, compiled
from refnet.nets.base import (
    Initializer,
    Named,
    NetTape,
    admit_backward,
    begin,
    check_loss,
    draw_matrix,
    float_type,
    parameter_shapes,
    pull_to_parts,
    to_activation,
    to_transition,
)
from refnet.nets.noise import Noise

_INPUTS: Shapes = {"x": (("B", "D"),)}


@dataclass(frozen=True, repr=False)
class FeedforwardNet(Backed):
    """A deep feedforward net of any widths: ``h_l = f(W_l h_{l-1} + b_l)``, linear output.

    ``widths``: inputs, hidden layers, outputs; the parameters are W1 (widths[1], widths[0]),
    b1, ..., and each hidden layer has its own activation parameters (slope1, ...).
    ``activation``: one, or its name. ``transition``: None, or what the hidden layers' square
    matrices are made of (all hidden ones if the transition takes rectangular matrices), or the
    name of that. ``backend``: as of ``RecurrentNet``.

    >>> net = FeedforwardNet((4, 3, 3, 2))
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> outputs, tape = net.forward(params, np.ones((5, 4)))
    >>> net.backward(params, tape, np.ones_like(outputs))["W2"].shape
    (3, 3)

    Source: Manchev & Spratling, eqs. 5-6 as corrected (erratum 3).
    Checked by: tests/cells/test_exact_transpose.py, tests/nets/test_gradients.py.
    """

    widths: tuple[int, ...]
    activation: Named[Activation] = Named(to_activation, ACTIVATIONS["tanh"])
    transition: Named[Transition | None] = Named(to_transition, None)
    loss: str = "cross_entropy"
    reduction: str = "mean"
    backend: str = "auto"
    smoothing: Number = 0
    noise: Noise | None = None

    def __post_init__(self) -> None:
        choice("backend", self.backend, BACKENDS)
        check_loss(self.loss, self.reduction, self.smoothing)
        if self.noise is not None:
            kind("noise", self.noise, Noise, "refnet.nets.noise.Noise, or None")
            if self.backend == "compiled":
                raise ValueError(
                    "dropout in a feedforward net has no compiled kernel; use backend 'reference' "
                    "(--backend reference)"
                )
        if not isinstance(self.widths, (tuple, list)) or len(self.widths) < 2:
            raise ValueError(
                f"widths are {short(self.widths)}; need at least inputs and outputs, "
                "each at least 1, such as (784, 100, 10)"
            )
        object.__setattr__(
            self,
            "widths",
            tuple(whole(f"widths[{layer}]", width) for layer, width in enumerate(self.widths)),
        )
        for width in self.widths[1:-1]:
            self.activation.admit(width)
        self._need_kernels("rnn", self.activation)

    @cached_property
    def has_kernels(self) -> bool:
        """Whether the compiled core has a kernel for the net."""
        from refnet.compiled.activations import known  # Numba is slow to import

        return known(self.activation) and self.noise is None

    @property
    def depth(self) -> int:
        """The number of hidden layers."""
        return len(self.widths) - 2

    @property
    def slots(self) -> tuple[str, ...]:
        """The hidden layers' matrices that a transition can make."""
        return tuple(
            f"W{layer}"
            for layer in range(1, self.depth + 1)
            if self.widths[layer] == self.widths[layer - 1]
            or getattr(self.transition, "rectangular", False)
        )

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes that every parameter may have, by name."""
        shapes: dict[str, tuple[tuple[int | str, ...], ...]] = {}
        for layer in range(1, self.depth + 2):
            rows, columns = self.widths[layer], self.widths[layer - 1]
            name = f"W{layer}"
            if self.transition is not None and name in self.slots:
                shapes |= {
                    f"{name}.{part}": (shape,)
                    for part, shape in self.transition.shapes(rows, columns).items()
                }
            else:
                shapes[name] = ((rows, columns),)
            shapes[f"b{layer}"] = ((rows,),)
            if layer <= self.depth:
                shapes |= parameter_shapes(self.activation, rows, str(layer))
        return shapes

    @cached_property
    def required(self) -> frozenset[str]:
        """The parameters that have to be given: all."""
        return frozenset(self.shapes)

    @cached_property
    def reason(self) -> str:
        """Why the shapes are these, in the words of error messages."""
        return f"because the widths are {self.widths}"

    def admit(self, where: str, params: Params, x: Array, mask: Array | None = None) -> None:
        """Raise ValueError or TypeError, in one line, unless these arrays fit the net."""
        sizes = {"D": self.widths[0]}
        admit(where, {"x": x}, _INPUTS, sizes, self.reason)
        if mask is not None:
            raise ValueError(f"{where}: a mask is for sequences; pass None")
        admit(where, params, self.shapes, sizes, self.reason, self.required)
        if self.noise is not None:
            shapes: dict[str, tuple[int, ...]] = {
                f"outputs[{layer}]": (len(x), width)
                for layer, width in enumerate(self.widths[1:-1])
            }
            self.noise.admit(where, shapes, self.reason)

    def _thinned(self, h: Array, layer: int) -> Array:
        """The input of a layer, or its gradient, with the dropout that ``noise`` has for it."""
        return h if self.noise is None else self.noise.thinned(h, layer - 2)

    @serial_blas
    def init(
        self,
        rng: np.random.Generator,
        dtype: DTypeLike = np.float32,
        weights: Initializer | str = glorot_uniform,
        recurrent: Initializer | str | None = None,
        inputs: Initializer | str | None = None,
    ) -> Params:
        """Start values: ``weights`` draws every matrix, but ``recurrent`` the square hidden
        ones and ``inputs`` W1, if given; biases are zero. An initialiser is a function of shape
        and rng, or its name. Drawn in float64, then rounded.
        """
        generator("init: rng", rng)
        dtype = float_type(dtype)
        params: Params = {}
        for layer in range(1, self.depth + 2):
            shape = (self.widths[layer], self.widths[layer - 1])
            square = shape[0] == shape[1] and layer <= self.depth
            what = "recurrent" if square else "inputs" if layer == 1 else "weights"
            special = recurrent if square else inputs if layer == 1 else None
            start = draw_matrix(what, special or weights, shape, rng)
            name = f"W{layer}"
            if self.transition is not None and name in self.slots:
                params |= {
                    f"{name}.{part}": value for part, value in self.transition.init(start).items()
                }
            else:
                params[name] = start
            params[f"b{layer}"] = np.zeros(shape[0])
            if layer <= self.depth:
                params |= {
                    f"{part}{layer}": value
                    for part, value in self.activation.init(shape[0]).items()
                }
        return {name: value.astype(dtype) for name, value in params.items()}

    def _learned(self, p: Params, layer: int) -> Params:
        """The parameters of a layer's activation."""
        return {name: p[f"{name}{layer}"] for name, *_ in self.activation.start}

    embedding: ClassVar[int] = 0

    @property
    def inputs(self) -> int:
        """The width of x."""
        return self.widths[0]

    def matrices(self, params: Params, embedded: bool = False) -> tuple[Params, Residuals]:
        """The parameters with every matrix made by the transition, and its residuals."""
        if self.transition is None:
            return params, {}
        matrices, residuals = assemble(self.transition, params, self.slots)
        return {**params, **matrices}, residuals

    def with_matrices(self, params: Params, matrices: Params) -> Params:
        """The parameters of a net without a transition, with these matrices replaced."""
        return {**params, **matrices}

    @serial_blas
    def forward(
        self, params: Params, x: Array, mask: Array | None = None, copy: bool = True
    ) -> tuple[Array, NetTape]:
        """Outputs (B, C) and the tape. Shapes: x (B, D). ``mask`` must be None. ``copy``: whether
        the tape gets its own copies of the parameters and x, as it must unless they stay as they
        are until ``backward``.

        Raises ValueError or TypeError on arrays that do not fit.
        """
        tape, x = begin(self, params, x, mask, copy)
        p = tape.p
        if self.backend_for(x.dtype) == "compiled":
            outputs, rows, layers = compiled("feedforward").forward(
                "FeedforwardNet.forward", p, x, self.widths, self.activation
            )
            return outputs, NetTape(*tape[:4], layers, rows, None, outputs.shape)
        h, pairs = x, []
        for layer in range(1, self.depth + 1):
            v = matmul(self._thinned(h, layer), p[f"W{layer}"].T) + p[f"b{layer}"]
            pairs.append((h, v))
            h = self.activation.forward(v, self._learned(p, layer))
        last = self.depth + 1
        outputs = matmul(self._thinned(h, last), p[f"W{last}"].T) + p[f"b{last}"]
        return outputs, NetTape(*tape[:4], pairs, h, None, outputs.shape)

    @serial_blas
    def backward(
        self,
        params: Params,
        tape: NetTape,
        doutputs: Array,
        inputs: bool = True,
        extra: Params | None = None,
    ) -> Params:
        """Gradients in every parameter and, if ``inputs``, in x: from the last layer down,
        ``dv_l = f'(v_l) (W_{l+1}' dv_{l+1})``, ``dW_l = dv_l h_{l-1}'``, ``db_l = dv_l``.

        Raises ValueError or TypeError on arrays that do not fit, and on a tape that another net
        made or that is not of these parameters.
        Source: Manchev & Spratling, eqs. 9-10 as corrected.
        """
        admit_backward(self, params, tape, doutputs, extra)
        p, layers, h = tape.p, tape.cell, tape.rows
        if self.backend_for(h.dtype) == "compiled":
            grads = compiled("feedforward").backward(
                "FeedforwardNet.backward", p, layers, doutputs, self.widths, self.activation, inputs
            )
            return pull_to_parts(self, p, tape.residuals, grads, extra)
        grads, dv = {}, doutputs
        for layer in range(self.depth + 1, 0, -1):
            below = layers[layer - 2] if layer > 1 else None
            grads[f"W{layer}"] = matmul(dv.T, self._thinned(h, layer))
            grads[f"b{layer}"] = dv.sum(axis=0)
            if below is None:
                break
            dh = self._thinned(matmul(dv, p[f"W{layer}"]), layer)
            dv, slopes = self.activation.backward(below[1], h, dh, self._learned(p, layer - 1))
            grads |= {f"{name}{layer - 1}": value for name, value in slopes.items()}
            h = below[0]
        if inputs:
            grads["x"] = matmul(dv, p["W1"])
        return pull_to_parts(self, p, tape.residuals, grads, extra)
