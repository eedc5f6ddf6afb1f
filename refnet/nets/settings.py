"""The settings of a recurrent net, and what follows from them alone: its layer, and the names,
shapes and start values of its parameters."""

from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.common.arguments import Shapes, choice, generator, kind, number, whole
from refnet.common.names import absolute
from refnet.common.process import serial_blas
from refnet.maths.activations import ACTIVATIONS, Activation, clipped
from refnet.maths.numeric import Number
from refnet.matrices.initializers import gaussian, glorot_uniform
from refnet.matrices.slots import Transition
from refnet.nets.backends import BACKENDS, Backed, ByNumbers, passes_of
from refnet.nets.base import (
    Initializer,
    Named,
    check_loss,
    draw_matrix,
    float_type,
    parameter_shapes,
    to_activation,
    to_transition,
)
from refnet.nets.layer import Layer
from refnet.nets.noise import Noise, Zoned


@dataclass(frozen=True, repr=False)
class Settings(Backed):
    """The settings of a recurrent net, which ``RecurrentNet`` explains. Raises ValueError or
    TypeError unless each is known and they go together.

    Checked by: tests/cells/test_layer_options.py.
    """

    READOUTS: ClassVar[tuple[str, ...]] = ("last", "every")
    inputs: int
    hidden: int
    outputs: int
    cell: str = "rnn"
    activation: Named[Activation] = Named(to_activation, ACTIVATIONS["tanh"])
    transition: Named[Transition | None] = Named(to_transition, None)
    readout: str = "last"
    loss: str = "cross_entropy"
    reduction: str = "mean"
    gain: Number = 1
    learn_h0: bool = False
    clip_step: Number | None = None
    backend: str = "auto"
    checkpoint: str = "none"
    embedding: int = 0
    gate: Named[Activation] = Named(partial(to_activation, what="gate"), ACTIVATIONS["sigmoid"])
    clip_forward: Number | None = None
    projection: int = 0
    smoothing: Number = 0
    zoneout: Number = 0
    noise: Noise | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "cell", absolute(self.cell))
        choice("cell", self.cell, CELLS)
        choice("readout", self.readout, self.READOUTS)
        check_loss(self.loss, self.reduction, self.smoothing)
        choice("backend", self.backend, BACKENDS)
        choice("checkpoint", self.checkpoint, ("none", "sqrt", "forward"))
        sizes = {"inputs": 1, "hidden": 1, "outputs": 1, "embedding": 0, "projection": 0}
        for name, least in sizes.items():
            object.__setattr__(self, name, whole(name, getattr(self, name), least))
        if self.projection:
            self._check_projection()
        number("gain", self.gain, "(-inf, inf)")
        for name in ("clip_step", "clip_forward"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), "(0, inf]")
        if self.clip_forward is not None and self.backend == "compiled":
            raise ValueError("clip_forward has no compiled kernel; use backend 'reference'")
        if self.gate.start:
            raise ValueError(f"gate is {self.gate.name}; need an activation that learns nothing")
        if self.cell == "cifg" and self.gate.name != "sigmoid":
            raise ValueError(
                f"gate is {self.gate.name}; need sigmoid for the cell cifg, whose 1 - s(a) is s(-a)"
            )
        number("zoneout", self.zoneout, "[0, 1)")
        if self.noise is not None:
            self._check_noise()
        kind("learn_h0", self.learn_h0, bool, "True or False")
        for used in (self.activation, self.gate):
            used.admit(self.hidden)
        self._need_kernels(self.cell, self.activation, self.gate)

    def _check_noise(self) -> None:
        kind("noise", self.noise, Noise, "refnet.nets.noise.Noise, or None")
        assert self.noise is not None
        if self.checkpoint == "sqrt" and (self.noise.zoneout or self.noise.added):
            raise ValueError(
                "checkpoint is 'sqrt'; need 'none' with zoneout or noise on the state, which "
                "differ from step to step"
            )

    def _check_projection(self) -> None:
        if (
            self.cell not in ("lstm", "cifg")
            or self.transition is not None
            or self.backend == "compiled"
        ):
            raise ValueError(
                f"projection is {self.projection}; need 0, or cell lstm or cifg, "
                "backend 'reference' and no transition"
            )
        if self.projection >= self.hidden:
            raise ValueError(
                f"projection is {self.projection}; need fewer units than hidden = {self.hidden}"
            )

    @property
    def width(self) -> int:
        """The width of what is read out: the state's H units, or P with a projection."""
        return self.projection or self.hidden

    @cached_property
    def layer(self) -> Layer:
        """The cell on this net's backend, with the settings that it runs with."""
        act, gate = self.activation, None if len(self.gates) == 1 else self.gate
        if self.clip_forward is not None:
            act = clipped(act, self.clip_forward)
            gate = gate and clipped(gate, self.clip_forward)
        keeps = self.checkpoint != "forward" or self.backend == "reference"
        noise = {"shares": np.asarray(self.zoneout)} if self.zoneout else {}
        if self.noise is not None:
            names = zip(("drop", "shares", "added"), self.noise.by_cell)
            noise |= {name: part[""] for name, part in names if "" in part}
        passes: Any = CELLS[self.cell]
        if noise.keys() - {"drop"}:
            passes = Zoned(passes)
        if self.backend == "compiled":
            passes = passes_of(self.cell, "compiled")
        elif self.backend == "auto":
            passes = ByNumbers(self, passes)
        sqrt = self.checkpoint == "sqrt"
        return Layer(passes, act, self.gain, self.clip_step, sqrt, gate, keeps, noise)

    @cached_property
    def has_kernels(self) -> bool:
        """Whether the compiled core has kernels for the cell, the activations and the options."""
        from refnet.compiled.activations import known  # Numba is slow to import
        from refnet.compiled.kernels import kernel_of

        return (
            kernel_of(self.cell) is not None
            and known(self.activation)
            and known(self.gate)
            and self.clip_forward is None
            and not self.projection
        )

    @cached_property
    def gates(self) -> tuple[str, ...]:
        """The gates of the cell, in the order in which Whh, Wxh and bh stack them."""
        return tuple(CELLS[self.cell].GATES)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The recurrent matrices, one (H, H) a gate, that a transition makes."""
        return ("Whh",) if len(self.gates) == 1 else tuple(f"Whh_{gate}" for gate in self.gates)

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes that every parameter may have, by name; B is the number of sequences."""
        cell, H, G = CELLS[self.cell], self.hidden, len(self.gates)
        P = self.projection or H
        need = (
            {"Whh": (G * H, P)}
            if self.transition is None
            else {
                f"{slot}.{part}": shape
                for slot in self.slots
                for part, shape in self.transition.shapes(H, H).items()
            }
        )
        need |= {
            **dict(zip(self._input_parts, self._input_shapes(G * H))),
            "Why": (self.outputs, P),
            "by": (self.outputs,),
            **({"Whr": (P, H)} if self.projection else {}),
            **{name: value.shape for name, value in cell.init(H).items()},
            **dict.fromkeys(cell.OPTIONAL, (H,)),
            "bhh": ((2 if self.cell == "gru" else G) * H,),
        }
        lead = () if cell.STATES == 1 else (cell.STATES,)
        return {
            **{name: (shape,) for name, shape in need.items()},
            **parameter_shapes(self.activation, H),
            "h0": ((*lead, H), (*lead, "B", H)),
        }

    @property
    def _input_parts(self) -> tuple[str, ...]:
        """The name of the input matrix, or the names of its two factors."""
        return ("Wxh.W", "Wxh.E") if self.embedding else ("Wxh",)

    def _input_shapes(self, rows: int) -> tuple[tuple[int, int], ...]:
        width, D = self.embedding, self.inputs
        return ((rows, width), (width, D)) if width else ((rows, D),)

    @cached_property
    def required(self) -> frozenset[str]:
        """The parameters that have to be given."""
        optional = {"bhh", *CELLS[self.cell].OPTIONAL} | (set() if self.learn_h0 else {"h0"})
        return frozenset(self.shapes) - optional

    @cached_property
    def reason(self) -> str:
        """Why the shapes are these, in the words of error messages."""
        return self._sizes()

    def _sizes(self) -> str:
        gates = f" and the gates of {self.cell} are {', '.join(self.gates)}"
        state = f", of which a projection makes P = {self.projection}," if self.projection else ""
        return (
            f"because the net has D = {self.inputs} inputs, H = {self.hidden} hidden units"
            f"{state} and C = {self.outputs} outputs" + (gates if len(self.gates) > 1 else "")
        )

    @serial_blas
    def init(
        self,
        rng: np.random.Generator,
        dtype: DTypeLike = np.float32,
        weights: Initializer | str = glorot_uniform,
        recurrent: Initializer | str | None = None,
        inputs: Initializer | str | None = None,
        gates: Initializer | str | None = None,
        **cell_options: Any,
    ) -> Params:
        """Start values: ``weights`` draws Why, ``recurrent`` Whh and ``inputs`` Wxh (the same
        if None), gate by gate; ``gates``, if given, draws the blocks of Whh of all gates but the
        candidate: a chain with ``ramp`` gates is Orhan & Pitkow's mixed start. The cell's
        own ``init`` takes ``cell_options`` (an LSTM's ``forget`` and ``peepholes``) and starts
        its biases; h0 is zero. An initialiser is a function of shape and rng, or its name. Drawn
        in float64, then rounded.
        """
        generator("init: rng", rng)
        dtype, cell = float_type(dtype), CELLS[self.cell]
        H, G, P = self.hidden, len(self.gates), self.projection or self.hidden
        draw = recurrent or weights
        start = {
            slot: (
                draw_matrix("recurrent", draw, (H, P), rng)
                if gate == cell.CANDIDATE
                else draw_matrix("gates", gates or draw, (H, P), rng)
            )
            for slot, gate in zip(self.slots, self.gates)
        }
        shape, *embedding = self._input_shapes(H)
        factors = [
            np.concatenate(
                [draw_matrix("inputs", inputs or weights, shape, rng) for _ in range(G)]
            ),
            *(gaussian(wide, rng, sd=0.01) for wide in embedding),
        ]
        params: Params = {
            **dict(zip(self._input_parts, factors)),
            "Why": draw_matrix("weights", weights, (self.outputs, P), rng),
            "by": np.zeros(self.outputs),
            **_start(self.cell, H, cell_options),
            **self.activation.init(H),
        }
        if self.transition is None:
            params["Whh"] = np.concatenate(list(start.values()))
        else:
            for slot, matrix in start.items():
                params |= {
                    f"{slot}.{part}": value for part, value in self.transition.init(matrix).items()
                }
        if self.projection:
            params["Whr"] = draw_matrix("weights", weights, (P, H), rng)
        if self.learn_h0:
            params["h0"] = np.zeros(H if cell.STATES == 1 else (cell.STATES, H))
        return {name: value.astype(dtype) for name, value in params.items()}

    def embedded(self, p: Params, x: Array) -> Array:
        """The inputs (T, B, D), or for symbols (T, B) the columns of the embedding, (T, B, W)."""
        return x if x.ndim == 3 else p["Wxh.E"].T.take(x, axis=0)

    def initial_state(self, params: Params, x: Array, name: str = "h0") -> Array:
        """h0 for every sequence of the batch: (B, H), or (2, B, H) for the LSTM's [h0, c0];
        ``name``: that of the parameter."""
        states = CELLS[self.cell].STATES
        lead = () if states == 1 else (states,)
        need = (*lead, x.shape[1], self.hidden)
        if name not in params:
            first = next(iter(params.values()))
            return np.zeros(need, x.dtype if x.dtype == first.dtype else np.result_type(x, first))
        h0 = params[name]
        return h0 if h0.shape == need else np.array(np.broadcast_to(h0[..., None, :], need))

    def thinned(self, rows: Array, layer: int) -> Array:
        """A layer's output or its gradient, with the dropout that ``noise`` has for it."""
        return rows if self.noise is None else self.noise.thinned(rows, layer)


def _start(name: str, hidden: int, options: dict[str, Any]) -> Params:
    """The cell's own start, with its own options alone."""
    known = list(signature(CELLS[name].init).parameters)[1:]
    for option in options.keys() - set(known):
        raise TypeError(
            f"init: the cell {name} has no option {option}; "
            + (f"need {' or '.join(known)}" if known else "it has none")
        )
    params: Params = CELLS[name].init(hidden, **options)
    return params
