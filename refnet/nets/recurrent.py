"""The recurrent net: a layer with a linear read-out.

``forward(params, x, mask) -> (outputs, tape)`` and, directly beneath,
``backward(params, tape, doutputs) -> gradients``. ``params`` is a flat dict of arrays whose
dtype decides the arithmetic.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params, last_steps
from refnet.cells import CELLS
from refnet.cells.common import CellTape
from refnet.common.arguments import (
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
from refnet.common.names import absolute
from refnet.common.process import serial_blas
from refnet.maths.activations import ACTIVATIONS, Activation, clipped
from refnet.maths.numeric import Number, matmul
from refnet.matrices.initializers import gaussian, glorot_uniform
from refnet.matrices.slots import Residuals, Transition, assemble
from refnet.nets.backends import BACKENDS, Backed, ByNumbers, compiled, passes_of
from refnet.nets.base import (
    Initializer,
    Named,
    NetTape,
    add_gradients,
    admit_backward,
    begin,
    check_loss,
    draw_matrix,
    float_type,
    named,
    parameter_shapes,
    pull_to_parts,
    to_activation,
    to_transition,
)
from refnet.nets.layer import Layer
from refnet.nets.noise import Noise, Zoned
from refnet.nets.padding import ends, finite_input, has_nan

_INPUTS: Shapes = {"x": (("T", "B", "D"),)}


@dataclass(frozen=True, repr=False)
class RecurrentNet(Backed):
    """A recurrent cell with a linear read-out: ``y = Why h + by``.

    The simple cell, rnn, is ``h[t+1] = f(Wxh x[t] + Whh h[t] + bh)``; the equations of the others
    stand in their modules, ``refnet.cells``. Whh is (G H, H), Wxh (G H, D) and bh (G H,) with G
    gates (1 for rnn), Why (C, H) and by (C,).

    What runs:

    - ``inputs``, ``hidden``, ``outputs``: D, H and C.
    - ``cell``: rnn, lstm, gru, gru_before, cifg or one of yours, FILE.py:NAME.
    - ``activation``: an activation or its name.
    - ``gate``: the activation of a gated cell's gates, or its name.
    - ``gain``: a factor on the pre-activation (Vorontsov et al., 3.1.3).
    - ``transition``: what Whh is made of, or its name; None: the parameter is Whh itself (dense).
    - ``embedding``: if above 0, the rows of a matrix Wxh.E that the inputs go through first,
      ``Wxh = Wxh.W Wxh.E``, as characters do in the released code of Vorontsov et al.; it starts
      from N(0, .01^2), as there. x may then be symbols, integers (T, B) from 0 to D - 1, which
      name columns of Wxh.E: the same as one-hot vectors (T, B, D), without a product with them.
    - ``projection``: if above 0, the units P < H of an LSTM's state h: the cell's output is
      multiplied by Whr (P, H), as by torch's proj_size (reference backend). Whh is (4H, P) and
      Why (C, P); h0 stays (2, H) or (2, B, H), and of its h the first P entries count.
    - ``learn_h0``: whether h0 is a parameter, (H,), shared by the batch; otherwise it is zero,
      unless ``params["h0"]`` gives it as (H,) or (B, H).

    What is read out:

    - ``readout``: the "last" or "every" step.
    - ``loss``: cross_entropy, squared_error or none (the cotangent is taken as it is given).
    - ``reduction``: what the summed loss is divided by, see ``refnet.maths.losses``.
    - ``smoothing``: s of the labels ``(1 - s) onehot + s / C`` of a cross-entropy.

    What is clipped:

    - ``clip_step``: bound of the pre-activation gradient's entries inside the recursion.
    - ``clip_forward``: bound of the input of every activation, as in ONNX's attribute ``clip``
      (reference backend).

    How it is computed:

    - ``backend``: "auto": Numba's kernels where the numbers are float32 or float64 and there is a
      kernel for cell, activation and options, else NumPy (``backend_for`` says which);
      "reference": NumPy, any dtype; "compiled": the kernels, or at once an error.
    - ``zoneout``: the share z of the old state in every new one, ``z h[t] + (1 - z) h~[t+1]``
      (Krueger et al. 2017, at test time); in training ``noise.zoneout`` takes its place.
    - ``noise``: the random numbers of a batch in training (``refnet.nets.noise``), or None.
    - ``checkpoint``: "none"; "sqrt": hold the tape of about 10 sqrt(T) steps instead of T, and run
      the others forward twice (``refnet.nets.layer``); "forward": keep what forward alone needs,
      for a net whose ``backward`` is never called, and refuses.

    The optional parameter bhh, a second bias, is added to bh; a gru's is (2H,), for r and z,
    because bhn is that of n.

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

    def with_layers(self, change: Callable[[Layer], Layer]) -> "RecurrentNet":
        """A copy of the net that runs with ``change(layer)`` for a layer (``dataclasses.replace``
        of the copy has the net's own again).

        Checked by: tests/cells/test_layer_options.py::test_a_net_runs_with_other_layers.
        """
        net = replace(self)
        object.__setattr__(net, "layer", change(self.layer))
        return net

    @property
    def cells(self) -> "tuple[dict[str, RecurrentNet], ...]":
        """The cells of every layer by their names' suffix, each as a net of one layer."""
        return ({"": self},)

    @cached_property
    def every_cell(self) -> "dict[str, RecurrentNet]":
        """The cells of all layers by their names' suffix."""
        return {suffix: cell for layer in self.cells for suffix, cell in layer.items()}

    def of(self, params: Params, suffix: str) -> Params:
        """The parameters of one cell, by the names of a net of one layer."""
        return params

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

    def admit(self, where: str, params: Params, x: Array, mask: Array | None = None) -> None:
        """Raise ValueError or TypeError, in one line, unless these arrays fit the net."""
        sizes = {"D": self.inputs}
        if self.embedding and type(x) is np.ndarray and x.ndim == 2 and x.dtype.kind in "iu":
            sizes["T"], sizes["B"] = x.shape
        elif (
            type(x) is not np.ndarray
            or x.ndim != 3
            or x.shape[2] != self.inputs
            or x.dtype.kind not in NUMBERS
        ):
            symbols = np.ndim(x) == 2 and not self.embedding
            wanted = ", or a net with an embedding for symbols (T, B)" if symbols else ""
            admit(where, {"x": x}, _INPUTS, sizes, self.reason + wanted)
        sizes["T"], sizes["B"] = x.shape[:2]
        admit(where, params, self.shapes, sizes, self.reason, self.required)
        if mask is not None:
            admit_mask(where, mask, x.shape[:2])
        if self.noise is not None:
            T, B, P = *x.shape[:2], self.projection or self.hidden
            lead = () if CELLS[self.cell].STATES == 1 else (2,)
            shapes: dict[str, tuple[int, ...]] = {
                f"outputs[{layer}]": (B, self.width) for layer in range(len(self.cells))
            }
            for suffix in self.every_cell:
                shapes[f"products[{suffix!r}]"] = (B, P)
                shapes[f"zoneout[{suffix!r}]"] = (T, *lead, B, self.hidden)
                shapes[f"added[{suffix!r}]"] = (T, B, P)
            self.noise.admit(where, shapes, self.reason)

    def _deals(self, dtype: DTypeLike) -> bool:
        """Whether sequences are dealt onto blocks by length, and none is computed past its end:
        where kernels run all of them and no output is of a step past an end."""
        if self.readout != "last" or self.backend_for(dtype) != "compiled":
            return False
        kernel = passes_of(self.cell, "compiled")
        passes = [cell.layer.passes for cell in self.every_cell.values()]
        return all(isinstance(each, ByNumbers) or each is kernel for each in passes)

    def _dealt(self, order: Array) -> "RecurrentNet":
        """The net for a batch in that order: with the noise that belongs to each sequence."""
        return self if self.noise is None else replace(self, noise=self.noise.examples(order))

    def _thinned(self, rows: Array, layer: int) -> Array:
        """A layer's output or its gradient, with the dropout that ``noise`` has for it."""
        return rows if self.noise is None else self.noise.thinned(rows, layer)

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

    def matrices(self, params: Params, embedded: bool = False) -> tuple[Params, Residuals]:
        """The parameters with Wxh, Whh and each of its slots made; the transition's residuals.
        ``embedded``: Wxh is for inputs that are columns of the embedding already."""
        if self.embedding:
            W = params["Wxh.W"]
            E = params["Wxh.E"]
            params = {**params, "Wxh": W if embedded else serial_blas(matmul)(W, E)}
        if self.transition is None:
            if self.slots == ("Whh",):
                return {**params}, {}
            rows = params["Whh"].reshape(len(self.slots), self.hidden, -1)
            return {**params, **dict(zip(self.slots, rows))}, {}
        blocks, residuals = assemble(self.transition, params, self.slots)
        return {**params, **blocks, "Whh": np.concatenate(list(blocks.values()))}, residuals

    def with_matrices(self, params: Params, matrices: Params) -> Params:
        """The parameters of a net without a transition, with these matrices replaced."""
        p = {**self.matrices(params)[0], **matrices}
        whole = {
            f"Whh{suffix}": np.concatenate([p[slot + suffix] for slot in cell.slots])
            for suffix, cell in self.every_cell.items()
        }
        return {**{name: p[name] for name in params}, **whole}

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

    @serial_blas
    def forward(
        self, params: Params, x: Array, mask: Array | None = None, copy: bool = True
    ) -> tuple[Array, NetTape]:
        """Outputs (B, C) of the last step, or (T, B, C) of every step, and the tape; of a
        StackedNet without a read-out (T, B, H) or (T, B, 2 H).

        Shapes: x (T, B, D), or symbols (T, B) of a net with an embedding; mask (T, B) bool or
        None. Any dtype; x must fit the parameters' (``refnet.maths.kinds``). ``copy``: whether
        the tape gets its own copies of the parameters and x, as it must unless they stay as they
        are until ``backward``. Raises
        ValueError or TypeError on arrays that do not fit.
        """
        tape, x = begin(self, params, x, mask, copy and self.checkpoint != "forward")
        if mask is None or mask[-1:].all():
            return self._run_cells(tape, x)
        lengths = last_steps(mask)
        dtype = next(iter(tape.p.values())).dtype
        if not self._deals(dtype):
            return self._run_cells(tape, finite_input(x, mask), lengths)
        order = compiled("layout").deal(lengths, dtype, len(self.gates) * self.hidden, self.hidden)
        p = {**tape.p}
        for suffix, cell in self.every_cell.items():
            name = f"h0{suffix}"
            if name in p and p[name].ndim == len(cell.shapes["h0"][1]):
                p[name] = p[name].take(order, axis=-2)
        x = x.take(order, axis=1)
        symbols = None if tape.symbols is None else x
        lengths, place = lengths[order], order.argsort()
        tape = tape._replace(p=p, lengths=lengths, order=order, place=place, symbols=symbols)
        outputs, tape = self._dealt(order)._run_cells(tape, x, lengths)
        return outputs.take(place, axis=-2), tape

    def _run_cells(
        self, tape: NetTape, x: Array, lengths: Array | None = None
    ) -> tuple[Array, NetTape]:
        """The outputs, and the complete tape; ``lengths`` of the sequences, if not all of them
        have T steps."""
        p = tape.p
        x = self.embedded(p, x) if x.ndim == 2 else x
        h0, (T, B), H = self.initial_state(p, x), x.shape[:2], self.width
        steps: Array | int | None = None
        if self.readout == "last":
            steps = lengths if lengths is not None else T or np.zeros(B, int)
        outputs: list[Array] = []
        rows = np.empty((0, H))

        def read(first: int, part: CellTape) -> None:
            nonlocal rows
            if steps is None:
                states = part.h[1:].reshape(-1, H)
                outputs.append(self._read_out(p, states))
                rows = states if self.checkpoint != "sqrt" else rows
            elif isinstance(steps, int):
                rows = part.h[-1].copy()  # a view would hold the whole tape
            else:
                here = steps  # of one segment, which has every end
                if len(part.h) <= T:
                    here = np.minimum(np.maximum(steps, first) - first, len(part.h) - 1)
                last = part.h[here, np.arange(B)]
                rows = np.where((steps > first)[:, None], last, rows) if first else last

        cell = self.layer.forward(p, x, h0, read, isinstance(steps, int), tape.lengths)
        result = (
            np.concatenate(outputs).reshape(T, B, self.outputs)
            if steps is None
            else self._read_out(p, rows)
        )
        return result, NetTape(*tape[:4], cell, rows, steps, result.shape, *tape[8:])

    @serial_blas
    def backward(
        self,
        params: Params,
        tape: NetTape,
        doutputs: Array,
        inputs: bool = True,
        extra: Params | None = None,
        final: Params | None = None,
    ) -> Params:
        """Gradients in every parameter, in every h0 and, if ``inputs``, in an x that is no symbols
        (the VJP).

        ``doutputs``: the cotangent, shaped as the outputs. ``extra``: gradients to add, such as a
        penalty's: to the matrices before a transition pulls them back, or to its parts. ``final``:
        cotangents of ``tape.final``, by its names, where all sequences have T >= 1 steps.
        Raises ValueError or TypeError on arrays that do not fit, and on a tape that another net
        made or that is not of these parameters.
        """
        admit_backward(self, params, tape, doutputs, extra)
        net = self
        if tape.order is not None:
            net = self._dealt(tape.order)
            dtype = next(iter(tape.p.values())).dtype
            doutputs = doutputs.take(tape.order, axis=-2).astype(dtype, copy=False)
        if final:
            known = {name: (value.shape,) for name, value in tape.final.items()}
            admit(f"{type(self).__name__}.backward: final", final, known, {}, "as tape.final has")
        grads = net._pull_cells(tape, doutputs, inputs, final=final)
        if tape.place is None:
            ended = None if final else ends(doutputs, tape.steps)
            if ended is not None and has_nan(grads):
                grads = net._pull_cells(tape, doutputs, inputs, ended)
        else:
            for name in [name for name in grads if name == "x" or name.startswith("h0")]:
                grads[name] = grads[name].take(tape.place, axis=-2)
        return self.gathered(params, tape.p, tape.residuals, grads, extra)

    def gathered(
        self,
        params: Params,
        p: Params,
        residuals: Residuals,
        grads: Params,
        extra: Params | None = None,
    ) -> Params:
        """The gradients of ``params`` from those of what every cell sees; ``p`` and ``residuals``
        as ``matrices`` gives them, ``extra`` as for ``backward``. With ``Wxh = W E``:
        ``dW = dWxh E'``, ``dE = W' dWxh``; of symbols ``grads`` has dE already, and dWxh is dW."""
        embedded = bool(self.embedding) and any(
            named("Wxh.E", suffix) in grads for suffix in self.every_cell
        )
        by_slot = self.transition is not None or bool(extra)
        grads, extra = dict(grads), dict(extra or {})
        for suffix, cell in self.every_cell.items():
            h0 = f"h0{suffix}"
            if h0 in params and params[h0].ndim < grads[h0].ndim:
                grads[h0] = grads[h0].sum(axis=-2)
            if by_slot:
                whole, slots = f"Whh{suffix}", [slot + suffix for slot in cell.slots]
                dWhh = grads.pop(whole)
                if slots != [whole] and whole in extra:
                    dWhh = dWhh + extra.pop(whole)
                grads |= dict(zip(slots, dWhh.reshape(len(slots), self.hidden, -1)))
        grads = pull_to_parts(self, p, residuals, grads, extra)
        for suffix, cell in self.every_cell.items():
            if by_slot and self.transition is None:
                blocks = [grads.pop(slot + suffix) for slot in cell.slots]
                grads[f"Whh{suffix}"] = np.concatenate(blocks)
            if cell.embedding:
                W, E = (named(f"Wxh.{factor}", suffix) for factor in "WE")
                dWxh = grads.pop(f"Wxh{suffix}")
                grads = add_gradients(
                    grads,
                    {W: dWxh} if embedded else {W: matmul(dWxh, p[E].T), E: matmul(p[W].T, dWxh)},
                )
        return grads

    def _pull_cells(
        self,
        tape: NetTape,
        doutputs: Array,
        inputs: bool,
        ended: Array | None = None,
        final: Params | None = None,
    ) -> Params:
        """What the layer's backward pass gives, and the gradients of Why and by; ``ended`` as
        for ``Layer.backward``, ``final`` as for ``backward``."""
        p, steps, H = tape.p, tape.steps, self.width
        T, B = tape.cell.x.shape[:2]
        flat = doutputs.reshape(T * B if steps is None else B, self.outputs)
        sums: list[Array] = []
        drows = flat if steps is None else self._thinned(self.product(flat, p["Why"]), 0)

        def pull(first: int, part: CellTape) -> Array:
            end = first + len(part.h) - 1
            if steps is None:
                dpart = flat[first * B : end * B]
                if self.checkpoint != "none" or ended is not None:
                    states = self._thinned(part.h[1:].reshape(-1, H), 0)
                    sums.append(self.product(dpart.T, states))
                dh = self._thinned(self.product(dpart, p["Why"]), 0)
                return dh.reshape(end - first, B, H)
            if isinstance(steps, int) or tape.lengths is not None:  # kernels take it at each end
                if end < T:
                    done = np.reshape(steps <= end, (-1, 1))
                    return np.where(done, drows, np.zeros_like(drows))[None]
                return drows[None]
            here = np.flatnonzero((first < steps) & (steps <= end))
            earliest = steps[here].min(initial=end)
            dh = np.zeros_like(drows, shape=(end - earliest + 1, B, H))
            dh[steps[here] - earliest, here] = drows[here]
            return dh

        symbols = tape.symbols
        wanted = inputs or symbols is not None
        grads = self.layer.backward(
            p, tape.cell, pull, wanted, ended, tape.lengths, (final or {}).get("h0")
        )
        if symbols is not None:
            grads["Wxh.E"] = columns(symbols, grads.pop("x"), self.inputs)
        rows = self._thinned(tape.rows, 0)
        grads["Why"] = sum(sums[1:], sums[0]) if sums else self.product(flat.T, rows)
        by_sequence = np.add.reduce(doutputs) if steps is None else doutputs
        grads["by"] = np.asanyarray(np.add.reduce(by_sequence))
        if steps is not None and not isinstance(steps, int) and not steps.all():
            h0 = grads["h0"].copy()
            h0[(0,) * (h0.ndim - 2)][:, :H] += np.where((steps == 0)[:, None], drows, 0)
            grads["h0"] = h0
        return grads

    def _read_out(self, p: Params, rows: Array) -> Array:
        rows = self._thinned(rows, len(self.cells) - 1)
        return self.product(rows, p["Why"].T) + p["by"]


def columns(symbols: Array, dx: Array, inputs: int) -> Array:
    """The gradient of an embedding (W, D) from those of its columns, dx (T, B, W), by symbol: the
    pullback of ``embedded``.

    >>> columns(np.array([[1], [1]]), np.array([[[2.0]], [[3.0]]]), 2).tolist()
    [[0.0, 5.0]]

    Checked by: tests/nets/test_symbols.py.
    """
    flat, dx = symbols.ravel(), dx.reshape(symbols.size, dx.shape[-1])
    if dx.dtype.char in "fd":  # the same sums, in the same order, as below, but faster
        from scipy.sparse import csr_array  # slow to import

        ones = np.ones(len(flat), dx.dtype)
        return np.asarray(
            (csr_array((ones, flat, np.arange(len(flat) + 1)), (len(flat), inputs)).T @ dx).T
        )
    total = np.zeros_like(dx, shape=(inputs, dx.shape[1]))
    np.add.at(total, flat, dx)
    return total.T


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
