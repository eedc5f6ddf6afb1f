"""The recurrent net around a cell, and what it shares with the feedforward one.

Both offer ``init``, ``forward(params, x, mask) -> (outputs, tape)`` and, directly beneath,
``backward(params, tape, doutputs) -> gradients``. ``params`` is a flat dict of arrays whose
dtype decides the arithmetic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refnet import checkpointing
from refnet.activations import ACTIVATIONS, Activation
from refnet.batch import Array, Params, last_steps
from refnet.initializers import glorot_uniform
from refnet.losses import LOSSES, REDUCTIONS, Loss
from refnet.numeric import matmul
from refnet.transitions import Transition, assemble, pull_back

if TYPE_CHECKING:
    from refnet.feedforward import FeedforwardNet

__all__ = ["CELLS", "Initializer", "NetTape", "RecurrentNet", "choice", "pulled", "same_kind"]

CELLS = ("rnn", "lstm", "gru", "gru_before")
_GAINED = ("Whh", "Wxh", "bh", "bhn", "Wpi", "Wpf", "Wpo")
Initializer = Callable[[tuple[int, int], np.random.Generator], Array]
_load = cache(import_module)  # several times a step, for nets that take a millisecond


class NetTape(NamedTuple):
    """What a net's backward pass needs.

    ``p``: the parameters with every transition's matrix made. ``made``: the transitions'
    tapes. ``cell``: the cell's tape, or its checkpoints, or the feedforward net's
    pre-activations. ``rows``: the states read out, as rows (of a net with checkpoints: at
    the last step only). ``steps``: for a read-out at the last step, the index of each
    sequence's last state in h[0] .. h[T], one number if it is T for all; None for a read-out
    at every step.
    """

    p: Params
    made: dict[str, Any]
    cell: Any
    rows: Array
    steps: Array | int | None


def choice(what: str, value: str, options: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``options``."""
    if value not in options:
        raise ValueError(f"{what} {value!r} is unknown; choose one of {', '.join(options)}")


def _merge(a: Params, b: Params) -> Params:
    """``a`` with ``b`` added entry by entry."""
    return {**a, **{name: a[name] + value if name in a else value for name, value in b.items()}}


def pulled(net: "RecurrentNet | FeedforwardNet", params: Params, made: dict[str, Any],
           grads: Params, extra: Params | None) -> Params:
    """Add ``extra`` to the matrices' gradients, pull these back to their parts if the net's
    transition made them, and add what of ``extra`` is for the parts themselves."""
    extra = extra or {}
    grads = _merge(grads, {name: value for name, value in extra.items() if name in grads})
    rest = {name: value for name, value in extra.items() if name not in grads}
    if net.transition is not None:
        matrices = {slot: grads.pop(slot) for slot in net.slots}
        grads |= pull_back(net.transition, params, made, matrices)
    return _merge(grads, rest)


def same_kind(params: Params, x: Array) -> None:
    """Refuse a mix of floats and exact numbers: it would silently compute in floats."""
    exact = x.dtype == object
    for name, value in params.items():
        if (value.dtype == object) != exact:
            raise ValueError(f"{name} is {value.dtype} while x is {x.dtype}; exact numbers and "
                             "floats do not mix: lift both (refnet.exact.lift)")


@dataclass(frozen=True)
class RecurrentNet:
    """A recurrent cell with a linear read-out: ``y = Why h + by``.

    ``cell``: rnn, lstm, gru or gru_before. ``transition``: None (dense: the parameter is Whh
    itself) or what Whh is made of. ``readout``: "last" or "every" step. ``gain`` multiplies the
    pre-activation (Vorontsov et al., 3.1.3). ``learn_h0``: h0 is a parameter, (H,), shared
    by the batch; otherwise it is zero, unless ``params["h0"]`` gives it as (H,) or (B, H).
    ``clip_step``: bound of the pre-activation gradient's entries inside the recursion.
    ``backend``: "reference" (any dtype) or "compiled" (float32 and float64, Numba).
    ``checkpoint``: "none", or "sqrt" to hold the tape of about 20 sqrt(T) steps rather than of T
    and run all others forward twice (``refnet.checkpointing``).

    Source: Manchev & Spratling, eqs. 1-4 as corrected.
    Checked by: tests/test_exact.py, tests/test_gradients.py.
    """

    inputs: int
    hidden: int
    outputs: int
    cell: str = "rnn"
    activation: Activation = ACTIVATIONS["tanh"]
    transition: Transition | None = None
    readout: str = "last"
    loss: str = "cross_entropy"
    reduction: str = "mean"
    gain: float = 1
    learn_h0: bool = False
    clip_step: float | None = None
    backend: str = "reference"
    checkpoint: str = "none"

    def __post_init__(self) -> None:
        choice("cell", self.cell, CELLS)
        choice("readout", self.readout, ("last", "every"))
        choice("loss", self.loss, tuple(LOSSES))
        choice("reduction", self.reduction, REDUCTIONS)
        choice("backend", self.backend, ("reference", "compiled"))
        choice("checkpoint", self.checkpoint, ("none", "sqrt"))
        for name in ("inputs", "hidden", "outputs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; need at least 1")

    @property
    def module(self) -> ModuleType:
        """The cell's forward and backward on this net's backend.

        Raises ValueError for a cell without a compiled kernel: there is no silent fallback.
        """
        room = "cells" if self.backend == "reference" else "compiled"
        try:
            return _load(f"refnet.{room}.{self.cell}")
        except ModuleNotFoundError as error:
            if error.name != f"refnet.{room}.{self.cell}":
                raise
            raise ValueError(f"cell {self.cell} has no compiled kernel yet; use backend "
                             "'reference' (--backend reference)") from None

    @property
    def losses(self) -> Mapping[str, Loss]:
        """The losses, example by example, on this net's backend."""
        return LOSSES if self.backend == "reference" else _load("refnet.compiled.losses").LOSSES

    @property
    def clipping(self) -> dict[str, float]:
        """The option of the cell's backward pass that bounds its pre-activation gradients."""
        return {} if self.clip_step is None else {"clip": self.clip_step}

    @cached_property
    def gates(self) -> tuple[str, ...]:
        """The gates of the cell, in the order in which Whh, Wxh and bh stack them."""
        return tuple(_load(f"refnet.cells.{self.cell}").GATES)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The recurrent matrices, one (H, H) a gate, that a transition makes."""
        return ("Whh",) if len(self.gates) == 1 else tuple(f"Whh_{gate}" for gate in self.gates)

    def init(self, rng: np.random.Generator, dtype: Any = np.float32,
             weights: Initializer = glorot_uniform, recurrent: Initializer | None = None,
             inputs: Initializer | None = None, gates: Initializer | None = None,
             **cell_options: Any) -> Params:
        """Start values: ``weights`` draws Why, ``recurrent`` Whh and ``inputs`` Wxh (the same
        if None), gate by gate; ``gates``, if given, draws the blocks of Whh that only open and
        close, so that a chain with ``ramp`` gates is Orhan & Pitkow's mixed start. The cell's
        own ``init`` takes ``cell_options`` (an LSTM's ``forget`` and ``peepholes``) and starts
        its biases; h0 is zero. Drawn in float64, then rounded.
        """
        cell = _load(f"refnet.cells.{self.cell}")
        H, G = self.hidden, len(self.gates)
        draw = recurrent or weights
        start = {slot: (draw if gate == cell.CANDIDATE else gates or draw)((H, H), rng)
                 for slot, gate in zip(self.slots, self.gates)}
        params: Params = {
            "Wxh": np.concatenate([(inputs or weights)((H, self.inputs), rng)
                                   for _ in range(G)]),
            "Why": weights((self.outputs, H), rng),
            "by": np.zeros(self.outputs),
            **cell.init(H, **cell_options),
            **self.activation.init(H),
        }
        if self.transition is None:
            params["Whh"] = np.concatenate(list(start.values()))
        else:
            for slot, matrix in start.items():
                params |= {f"{slot}.{part}": value
                           for part, value in self.transition.init(matrix).items()}
        if self.learn_h0:
            params["h0"] = np.zeros(H if cell.STATES == 1 else (cell.STATES, H))
        return {name: value.astype(dtype) for name, value in params.items()}

    def matrices(self, params: Params) -> tuple[Params, dict[str, Any]]:
        """The parameters with Whh, and each of its slots, made; and the transition's tapes."""
        if self.transition is None:
            blocks = params["Whh"].reshape(len(self.slots), self.hidden, self.hidden)
            return {**params, **dict(zip(self.slots, blocks))}, {}
        made, tapes = assemble(self.transition, params, self.slots)
        return {**params, **made, "Whh": np.concatenate(list(made.values()))}, tapes

    def with_matrices(self, params: Params, made: Params) -> Params:
        """The parameters of a net without a transition, with these matrices replaced."""
        all_made = {**self.matrices(params)[0], **made}
        Whh = np.concatenate([all_made[slot] for slot in self.slots])
        return {**{name: all_made[name] for name in params}, "Whh": Whh}

    def scaled(self, p: Params) -> Params:
        """The parameters that the cell sees: those of the pre-activation times the gain."""
        if self.gain == 1:
            return p
        return {**p, **{name: p[name] * self.gain for name in _GAINED if name in p}}

    def initial_state(self, params: Params, x: Array) -> Array:
        """h0 for every sequence of the batch: (B, H), or (2, B, H) for the LSTM's [h0, c0]."""
        states = _load(f"refnet.cells.{self.cell}").STATES
        lead = () if states == 1 else (states,)
        need = (*lead, x.shape[1], self.hidden)
        if "h0" not in params:
            return np.zeros(need, np.result_type(x, params["Wxh"]))
        h0 = params["h0"]
        if h0.shape == need:
            return h0
        if h0.shape != (*lead, self.hidden):
            raise ValueError(f"h0 has shape {h0.shape}; need {(*lead, self.hidden)} (shared by "
                             f"the batch) or {need}, because x is {x.shape}")
        return np.array(np.broadcast_to(h0[..., None, :], need))

    def forward(self, params: Params, x: Array, mask: Array | None = None
                ) -> tuple[Array, NetTape]:
        """Outputs (B, C) of the last step, or (T, B, C) of every step, and the tape.

        Shapes: x (T, B, D), mask (T, B) bool or None. Any dtype; x and params must both be
        floats or both objects. Raises ValueError on shapes or dtypes that do not fit.
        """
        same_kind(params, x)
        p, made = self.matrices(params)
        if mask is not None and mask.shape != x.shape[:2]:
            raise ValueError(f"mask has shape {mask.shape}; need (T, B) = {x.shape[:2]}, "
                             f"because x is {x.shape}")
        h0, (T, B) = self.initial_state(params, x), x.shape[:2]
        steps: Array | int | None = None
        if self.readout == "last":
            steps = T if mask is None else last_steps(mask)
        tape: Any
        if self.checkpoint == "sqrt":
            outputs, rows, tape = checkpointing.forward(self, p, x, h0, steps)
        else:
            tape = self.module.forward(self.scaled(p), x, h0, self.activation)
            rows = (tape.h[1:].reshape(T * B, self.hidden) if steps is None
                    else tape.h[T] if isinstance(steps, int) else tape.h[steps, np.arange(B)])
            outputs = self.read_out(p, rows)
        shape = (T, B) if steps is None else (B,)
        return outputs.reshape(*shape, self.outputs), NetTape(p, made, tape, rows, steps)

    def read_out(self, p: Params, rows: Array) -> Array:
        """``Why h + by`` of states as rows."""
        return matmul(rows, p["Why"].T) + p["by"]

    def backward(self, params: Params, tape: NetTape, doutputs: Array, inputs: bool = True,
                 extra: Params | None = None) -> Params:
        """Gradients in every parameter, in h0 and, if ``inputs``, in x (the VJP).

        ``doutputs``: the cotangent, shaped as the outputs. ``extra``: gradients to add, such as a
        penalty's: to the matrices before a transition pulls them back, or to its parts.
        """
        pull = (checkpointing.backward if isinstance(tape.cell, checkpointing.Checkpoints)
                else RecurrentNet._pull_states)
        grads = pull(self, tape, doutputs, inputs)
        if self.gain != 1:
            grads |= {name: grads[name] * self.gain for name in _GAINED if name in tape.p}
        if "h0" in params and params["h0"].ndim < grads["h0"].ndim:
            grads["h0"] = grads["h0"].sum(axis=-2)
        if self.transition is None and not extra:
            grads["Whh"] = grads.pop("Whh")  # the last entry in any case
            return grads
        blocks = grads.pop("Whh").reshape(len(self.slots), self.hidden, self.hidden)
        grads = pulled(self, params, tape.made, {**grads, **dict(zip(self.slots, blocks))}, extra)
        if self.transition is None:
            found = [grads.pop(slot) for slot in self.slots]
            grads["Whh"] = np.concatenate(found) if len(found) > 1 else found[0]
        return grads

    def _pull_states(self, tape: NetTape, doutputs: Array, inputs: bool) -> Params:
        """What the cell's own backward pass gives, and the gradients of Why and by."""
        p, _, cell, rows, steps = tape
        T, B, H = cell.h.shape[0] - 1, cell.h.shape[1], self.hidden
        flat = doutputs.reshape(len(rows), self.outputs)
        drows = matmul(flat, p["Why"])
        dstart = None
        if steps is None:
            dh = drows.reshape(T, B, H)
        elif T and (isinstance(steps, int) or (steps == T).all()):
            dh = drows[None]
        else:
            every = np.zeros(cell.h.shape, drows.dtype)
            every[steps, np.arange(B)] = drows
            dstart, dh = every[0], every[1:]
        grads: Params = self.module.backward(self.scaled(p), cell, dh, self.activation, inputs,
                                             **self.clipping)
        grads["Why"], grads["by"] = matmul(flat.T, rows), flat.sum(axis=0)
        if dstart is not None:
            h0 = grads["h0"].copy()
            h0[(0,) * (h0.ndim - 2)] += dstart
            grads["h0"] = h0
        return grads
