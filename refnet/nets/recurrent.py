"""The recurrent net: a layer with a linear read-out.

``forward(params, x, mask) -> (outputs, tape)`` and, directly beneath,
``backward(params, tape, doutputs) -> gradients``. ``params`` is a flat dict of arrays whose
dtype decides the arithmetic.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params, last_steps
from refnet.cells import CELLS
from refnet.common.arguments import NUMBERS, Shapes, admit, admit_mask
from refnet.common.process import serial_blas
from refnet.maths.numeric import matmul
from refnet.matrices.slots import Residuals, assemble
from refnet.nets import readout
from refnet.nets.backends import ByNumbers, compiled, passes_of
from refnet.nets.base import NetTape, add_gradients, admit_backward, begin, named, pull_to_parts
from refnet.nets.layer import Layer
from refnet.nets.padding import ends, finite_input, has_nan
from refnet.nets.settings import Settings

_INPUTS: Shapes = {"x": (("T", "B", "D"),)}


class RecurrentNet(Settings):
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

    _run_cells, _pull_cells = readout.forward, readout.backward

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
