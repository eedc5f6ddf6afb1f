"""The recurrent net: a layer with a linear read-out.

``forward(params, x, mask) -> (outputs, tape)`` and, directly beneath,
``backward(params, tape, doutputs) -> gradients``. ``params`` is a flat dict of arrays whose
dtype decides the arithmetic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refnet.arguments import (
    NUMBERS,
    Shapes,
    admit,
    admit_mask,
    choice,
    generator,
    kind,
    number,
    whole,
)
from refnet.batch import Array, Params, last_steps
from refnet.cells import CELLS
from refnet.maths.activations import ACTIVATIONS, Activation, clipped
from refnet.maths.kinds import same_kind
from refnet.maths.losses import Loss
from refnet.maths.numeric import Number, matmul
from refnet.matrices.initializers import gaussian, glorot_uniform
from refnet.matrices.slots import Transition, assemble
from refnet.nets.base import (
    Initializer,
    Named,
    NetTape,
    a_loss,
    a_transition,
    added,
    admit_gradients,
    admit_tape,
    an_activation,
    copied,
    float_type,
    losses_of,
    matmul_of,
    matrix_of,
    parameter_shapes,
    pulled,
)
from refnet.nets.layer import Layer
from refnet.nets.padding import ends, finite_input, has_nan
from refnet.process import serial_blas

__all__ = ["RecurrentNet"]

_INPUTS: Shapes = {"x": (("T", "B", "D"),)}


@dataclass(frozen=True)
class RecurrentNet:
    """A recurrent cell with a linear read-out: ``y = Why h + by``.

    The simple cell, rnn, is ``h[t+1] = f(Wxh x[t] + Whh h[t] + bh)``; the equations of the others
    stand in their modules, ``refnet.cells``. Whh is (G H, H), Wxh (G H, D) and bh (G H,) with G
    gates (1 for rnn), Why (C, H) and by (C,).

    ``cell``: rnn, lstm, gru, gru_before or cifg. ``activation``: one, or its name. ``transition``:
    None (dense: the parameter is Whh itself) or what Whh is made of, or the name of that.
    ``readout``: "last" or "every" step. ``gain`` multiplies the pre-activation (Vorontsov et al.,
    3.1.3). ``learn_h0``: h0 is a parameter, (H,), shared by the batch; otherwise it is zero,
    unless ``params["h0"]`` gives it as (H,) or (B, H). ``clip_step``: bound of the pre-activation
    gradient's entries inside the recursion. ``embedding``: if above 0, the number of rows of a
    matrix Wxh.E that the inputs go through first, ``Wxh = Wxh.W Wxh.E``, as characters do in the
    released code of Vorontsov et al.; it starts from N(0, .01^2), as there. ``backend``:
    "reference" (any dtype) or "compiled" (float32 and float64, Numba).
    ``checkpoint``: "none", or "sqrt" to hold the tape of about 10 sqrt(T) steps rather than of T
    and run all others forward twice (``refnet.nets.layer``), or "forward" for a net that only runs
    forward: a compiled cell then keeps its states alone, or of them the last alone where that is
    all that is read, and ``backward`` refuses.
    ``gate``: the activation of a gated cell's gates, or its name. ``clip_forward``: the input of
    every activation is first clipped to [-clip_forward, clip_forward], as by ONNX's attribute
    ``clip`` (reference backend). A second bias, the parameter bhh, is added to bh if it is
    given; a gru's is (2H,), for r and z, because bhn is that of n.
    ``projection``: if above 0, an LSTM's state h has that many units P, fewer than H: the cell's
    output is multiplied by Whr (P, H), as by torch's proj_size (reference backend). Whh is (4H, P)
    and Why (C, P); h0 stays (2, H) or (2, B, H), and of its h the first P entries count.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3, cell="lstm")
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> outputs, tape = net.forward(params, np.ones((5, 2, 2)))
    >>> net.backward(params, tape, np.ones_like(outputs))["Whh"].shape
    (16, 4)

    Source: Manchev & Spratling, eqs. 1-4 as corrected.
    Checked by: tests/cells/test_exact_transpose.py, tests/nets/test_gradients.py.
    """

    READOUTS: ClassVar[tuple[str, ...]] = ("last", "every")
    inputs: int
    hidden: int
    outputs: int
    cell: str = "rnn"
    activation: Named[Activation] = Named(an_activation, ACTIVATIONS["tanh"])
    transition: Named[Transition | None] = Named(a_transition, None)
    readout: str = "last"
    loss: str = "cross_entropy"
    reduction: str = "mean"
    gain: Number = 1
    learn_h0: bool = False
    clip_step: Number | None = None
    backend: str = "reference"
    checkpoint: str = "none"
    embedding: int = 0
    gate: Named[Activation] = Named(partial(an_activation, what="gate"), ACTIVATIONS["sigmoid"])
    clip_forward: Number | None = None
    projection: int = 0

    def __post_init__(self) -> None:
        choice("cell", self.cell, tuple(CELLS))
        choice("readout", self.readout, self.READOUTS)
        a_loss(self.loss, self.reduction)
        choice("backend", self.backend, ("reference", "compiled"))
        choice("checkpoint", self.checkpoint, ("none", "sqrt", "forward"))
        for name in ("inputs", "hidden", "outputs"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        object.__setattr__(self, "embedding", whole("embedding", self.embedding, least=0))
        object.__setattr__(self, "projection", whole("projection", self.projection, least=0))
        if self.projection:
            self._check_projection()
        number("gain", self.gain, "(-inf, inf)")
        if self.clip_step is not None:
            number("clip_step", self.clip_step, "(0, inf]")
        if self.clip_forward is not None:
            number("clip_forward", self.clip_forward, "(0, inf]")
            if self.backend != "reference":
                raise ValueError("clip_forward has no compiled kernel; use backend 'reference'")
        if self.gate.start:
            raise ValueError(f"gate is {self.gate.name}; need an activation that learns nothing")
        if self.cell == "cifg" and self.gate.name != "sigmoid":
            raise ValueError(
                f"gate is {self.gate.name}; need sigmoid for the cell cifg, whose 1 - s(a) is s(-a)"
            )
        kind("learn_h0", self.learn_h0, bool, "True or False")
        for used in (self.activation, self.gate):
            used.admit(self.hidden)

    def _check_projection(self) -> None:
        if (
            self.cell not in ("lstm", "cifg")
            or self.transition is not None
            or self.backend != "reference"
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
        """The cell on this net's backend, with the settings that it runs with.

        Raises ValueError for a cell without a compiled kernel: there is no silent fallback.
        """
        cells = CELLS
        if self.backend == "compiled":
            from refnet.compiled.kernels import KERNELS as cells  # Numba is slow to import
        if self.cell not in cells:
            raise ValueError(
                f"cell {self.cell} has no compiled kernel yet; use backend "
                "'reference' (--backend reference)"
            )
        clip = self.clip_step
        if clip is not None and self.backend == "compiled":
            clip = float(clip)
        act, gate = self.activation, None if len(self.gates) == 1 else self.gate
        if self.clip_forward is not None:
            act = clipped(act, self.clip_forward)
            gate = gate and clipped(gate, self.clip_forward)
        keeps = self.checkpoint != "forward" or self.backend == "reference"
        return Layer(cells[self.cell], act, self.gain, clip, self.checkpoint == "sqrt", gate, keeps)

    def with_layers(self, change: Callable[[Layer], Layer]) -> "RecurrentNet":
        """A copy of the net that runs with ``change(layer)`` for a layer (``dataclasses.replace``
        of the copy has the net's own again).

        Checked by: tests/cells/test_layer_options.py::test_a_net_runs_with_other_layers.
        """
        net = replace(self)
        object.__setattr__(net, "layer", change(self.layer))
        return net

    @cached_property
    def losses(self) -> Mapping[str, Loss]:
        """The losses, example by example, on this net's backend."""
        return losses_of(self.backend)

    @cached_property
    def product(self) -> Callable[[Array, Array], Array]:
        """The product of two matrices in a read-out, on this net's backend."""
        return matmul_of(self.backend)

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
        own = (
            {"Whh": (G * H, P)}
            if self.transition is None
            else {
                f"{slot}.{part}": shape
                for slot in self.slots
                for part, shape in self.transition.shapes(H, H).items()
            }
        )
        own |= {
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
            **{name: (shape,) for name, shape in own.items()},
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
    def because(self) -> str:
        """Why the shapes are these, in the words of error messages."""
        return self._sizes()

    def _sizes(self) -> str:
        gates = f" and the gates of {self.cell} are {', '.join(self.gates)}"
        state = f", of which a projection makes P = {self.projection}," if self.projection else ""
        return (
            f"because the net has D = {self.inputs} inputs, H = {self.hidden} hidden units"
            f"{state} and C = {self.outputs} outputs" + (gates if len(self.gates) > 1 else "")
        )

    def admit(self, where: str, params: Params, x: Array, mask: Array | None = None) -> None:
        """Raise ValueError or TypeError, in one line, unless these arrays fit the net."""
        sizes = {"D": self.inputs}
        if (
            type(x) is not np.ndarray
            or x.ndim != 3
            or x.shape[2] != self.inputs
            or x.dtype.kind not in NUMBERS
        ):
            admit(where, {"x": x}, _INPUTS, sizes, self.because)
        sizes["T"], sizes["B"], _ = x.shape
        admit(where, params, self.shapes, sizes, self.because, self.required)
        if mask is not None:
            admit_mask(where, mask, x.shape[:2])

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
                matrix_of("recurrent", draw, (H, P), rng)
                if gate == cell.CANDIDATE
                else matrix_of("gates", gates or draw, (H, P), rng)
            )
            for slot, gate in zip(self.slots, self.gates)
        }
        shape, *embedding = self._input_shapes(H)
        made = [
            np.concatenate([matrix_of("inputs", inputs or weights, shape, rng) for _ in range(G)]),
            *(gaussian(wide, rng, sd=0.01) for wide in embedding),
        ]
        params: Params = {
            **dict(zip(self._input_parts, made)),
            "Why": matrix_of("weights", weights, (self.outputs, P), rng),
            "by": np.zeros(self.outputs),
            **_started(self.cell, H, cell_options),
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
            params["Whr"] = matrix_of("weights", weights, (P, H), rng)
        if self.learn_h0:
            params["h0"] = np.zeros(H if cell.STATES == 1 else (cell.STATES, H))
        return {name: value.astype(dtype) for name, value in params.items()}

    @serial_blas
    def matrices(self, params: Params) -> tuple[Params, dict[str, Any]]:
        """The parameters with Wxh, Whh and each of its slots made; and the transition's tapes."""
        if self.embedding:
            params = {**params, "Wxh": matmul(params["Wxh.W"], params["Wxh.E"])}
        if self.transition is None:
            if self.slots == ("Whh",):
                return {**params}, {}
            blocks = params["Whh"].reshape(len(self.slots), self.hidden, -1)
            return {**params, **dict(zip(self.slots, blocks))}, {}
        made, tapes = assemble(self.transition, params, self.slots)
        return {**params, **made, "Whh": np.concatenate(list(made.values()))}, tapes

    def with_matrices(self, params: Params, made: Params) -> Params:
        """The parameters of a net without a transition, with these matrices replaced."""
        all_made = {**self.matrices(params)[0], **made}
        Whh = np.concatenate([all_made[slot] for slot in self.slots])
        return {**{name: all_made[name] for name in params}, "Whh": Whh}

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

    @serial_blas
    def forward(
        self, params: Params, x: Array, mask: Array | None = None, copy: bool = True
    ) -> tuple[Array, NetTape]:
        """Outputs (B, C) of the last step, or (T, B, C) of every step, and the tape.

        Shapes: x (T, B, D), mask (T, B) bool or None. Any dtype; x must fit the
        parameters' (``refnet.maths.kinds``). ``copy``: whether the tape gets its own copies of
        the parameters and x, as it must unless they stay as they are until ``backward``. Raises
        ValueError or TypeError on arrays that do not fit.
        """
        self.admit("RecurrentNet.forward", params, x, mask)
        if copy and self.checkpoint != "forward":
            params, x = copied(params, x)
        given = params
        params, x = same_kind(params, x)
        p, made = self.matrices(params)
        x = finite_input(x, mask)
        h0, (T, B), H = self.initial_state(params, x), x.shape[:2], self.width
        steps: Array | int | None = None
        if self.readout == "last":
            steps = T if mask is None else last_steps(mask)
            if T == 0 or mask is not None and (steps == T).all():
                steps = T if T else np.zeros(B, int)
        outputs: list[Array] = []
        rows = np.empty((0, H))

        def read(first: int, tape: Any) -> None:
            nonlocal rows
            if steps is None:
                states = tape.h[1:].reshape(-1, H)
                outputs.append(self._read_out(p, states))
                rows = states if self.checkpoint != "sqrt" else rows
            elif isinstance(steps, int):
                rows = tape.h[-1].copy()  # a view would hold the whole tape
            else:
                rows = rows if first else tape.h[0].copy()  # a sequence without steps: read at h0
                here = _read_within(steps, first, tape)
                rows[here] = tape.h[steps[here] - first, here]

        tape = self.layer.forward(p, x, h0, read, isinstance(steps, int))
        if steps is not None:
            return self._read_out(p, rows), NetTape(self, given, p, made, tape, rows, steps)
        return (
            np.concatenate(outputs).reshape(T, B, self.outputs),
            NetTape(self, given, p, made, tape, rows, steps),
        )

    @serial_blas
    def backward(
        self,
        params: Params,
        tape: NetTape,
        doutputs: Array,
        inputs: bool = True,
        extra: Params | None = None,
    ) -> Params:
        """Gradients in every parameter, in h0 and, if ``inputs``, in x (the VJP).

        ``doutputs``: the cotangent, shaped as the outputs. ``extra``: gradients to add, such as a
        penalty's: to the matrices before a transition pulls them back, or to its parts.
        Raises ValueError or TypeError on arrays that do not fit, and on a tape that another net
        made or that is not of these parameters.
        """
        self.admit_backward("RecurrentNet.backward", tape, params)
        lead = tape.cell.x.shape[:2] if tape.steps is None else tape.cell.x.shape[1:2]
        admit_gradients(
            "RecurrentNet.backward",
            doutputs,
            (*lead, self.outputs),
            extra,
            params | tape.p if extra else {},
        )
        grads = self._pull_states(tape, doutputs, inputs)
        ended = ends(doutputs, tape.steps)
        if ended is not None and has_nan(grads):
            grads = self._pull_states(tape, doutputs, inputs, ended)
        if "h0" in params and params["h0"].ndim < grads["h0"].ndim:
            grads["h0"] = grads["h0"].sum(axis=-2)
        if self.transition is None and not extra:
            grads["Whh"] = grads.pop("Whh")  # the last entry, as it is with a transition
            return self.pull_inputs(tape.p, grads)
        grads, extra = self.by_gate(grads, extra)
        grads = pulled(self, tape.p, tape.made, grads, extra)
        if self.transition is None:
            found = [grads.pop(slot) for slot in self.slots]
            grads["Whh"] = np.concatenate(found) if len(found) > 1 else found[0]
        return self.pull_inputs(tape.p, grads)

    def by_gate(
        self, grads: Params, extra: Params | None, suffix: str = ""
    ) -> tuple[Params, Params | None]:
        """Every gate's own gradient in place of that of Whh, to which ``extra`` may add, and what
        is left of ``extra``."""
        whole, slots = f"Whh{suffix}", [slot + suffix for slot in self.slots]
        grads = dict(grads)
        made = grads.pop(whole)
        if extra and whole in extra and slots != [whole]:
            made = made + extra[whole]
            extra = {name: value for name, value in extra.items() if name != whole}
        return grads | dict(zip(slots, made.reshape(len(slots), self.hidden, -1))), extra

    def admit_backward(self, where: str, tape: NetTape, params: Params) -> None:
        """As ``admit_tape``; and raise ValueError for a net that only runs forward."""
        if self.checkpoint == "forward":
            raise ValueError(
                f"{where}: a net with checkpoint='forward' keeps no tape; run forward "
                "and backward of dataclasses.replace(net, checkpoint='none')"
            )
        admit_tape(where, self, tape, params)

    def pull_inputs(self, p: Params, grads: Params) -> Params:
        """With ``Wxh = W E``: ``dW = dWxh E'``, ``dE = W' dWxh``."""
        if self.embedding:
            dWxh = grads.pop("Wxh")
            grads = added(
                grads, {"Wxh.W": matmul(dWxh, p["Wxh.E"].T), "Wxh.E": matmul(p["Wxh.W"].T, dWxh)}
            )
        return grads

    def _pull_states(
        self, tape: NetTape, doutputs: Array, inputs: bool, ended: Array | None = None
    ) -> Params:
        """What the layer's backward pass gives, and the gradients of Why and by; ``ended`` as
        for ``Layer.backward``."""
        p, steps, H = tape.p, tape.steps, self.width
        T, B = tape.cell.x.shape[:2]
        flat = doutputs.reshape(T * B if steps is None else B, self.outputs)
        sums: list[Array] = []
        drows = flat if steps is None else self.product(flat, p["Why"])

        def pull(first: int, part: Any) -> Array:
            end = first + len(part.h) - 1
            if steps is None:
                dpart = flat[first * B : end * B]
                if self.checkpoint != "none" or ended is not None:
                    sums.append(self.product(dpart.T, part.h[1:].reshape(-1, H)))
                return self.product(dpart, p["Why"]).reshape(end - first, B, H)
            if isinstance(steps, int):
                return drows[None] if end == steps else np.zeros_like(drows)[None]
            here = _read_within(steps, first, part)
            earliest = steps[here].min(initial=end)
            dh = np.zeros_like(drows, shape=(end - earliest + 1, B, H))
            dh[steps[here] - earliest, here] = drows[here]
            return dh

        grads = self.layer.backward(p, tape.cell, pull, inputs, ended)
        grads["Why"] = sum(sums[1:], sums[0]) if sums else self.product(flat.T, tape.rows)
        grads["by"] = doutputs.sum(axis=0).reshape(-1, self.outputs).sum(axis=0)
        if steps is not None and not isinstance(steps, int):
            h0 = grads["h0"].copy()
            h0[(0,) * (h0.ndim - 2)][:, :H] += np.where((steps == 0)[:, None], drows, 0)
            grads["h0"] = h0
        return grads

    def _read_out(self, p: Params, rows: Array) -> Array:
        return self.product(rows, p["Why"].T) + p["by"]


def _started(name: str, hidden: int, options: dict[str, Any]) -> Params:
    """The cell's own start, with its own options alone."""
    known = list(signature(CELLS[name].init).parameters)[1:]
    for option in options.keys() - set(known):
        raise TypeError(
            f"init: the cell {name} has no option {option}; "
            + (f"need {' or '.join(known)}" if known else "it has none")
        )
    made: Params = CELLS[name].init(hidden, **options)
    return made


def _read_within(steps: Array, first: int, tape: Any) -> Array:
    """The sequences whose last state is one that a segment's tape adds, h[first + 1] onwards."""
    return np.flatnonzero((first < steps) & (steps < first + len(tape.h)))
