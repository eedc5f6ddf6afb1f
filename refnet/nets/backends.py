"""What computes a net: NumPy for numbers of any type (the reference), or Numba's kernels for
float32 and float64 (compiled).

Both run the same formulas. With ``backend="auto"`` the numbers of each call decide.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.cells.common import CellTape, Cotangents
from refnet.common.arguments import array, short, turned
from refnet.maths.activations import Activation
from refnet.maths.losses import LOSSES, Loss, smoothed, softmax
from refnet.maths.numeric import Number, matmul

BACKENDS = ("auto", "compiled", "reference")


@cache
def compiled(module: str) -> Any:
    """A module of refnet.compiled, imported at its first use, because Numba is slow to import.

    >>> compiled("plan").CHUNK
    96
    """
    return import_module(f"refnet.compiled.{module}")


def losses_of(backend: str, smoothing: Number = 0) -> Mapping[str, Loss]:
    """The losses, example by example, on a backend.

    >>> sorted(losses_of("reference"))
    ['cross_entropy', 'none', 'squared_error']
    """
    known: Mapping[str, Loss] = LOSSES
    if backend == "compiled":
        known = compiled("losses").LOSSES
    if not smoothing:
        return known
    return {**known, "cross_entropy": smoothed(known["cross_entropy"], smoothing)}


def passes_of(cell: str, backend: str) -> Any:
    """The module with a cell's forward and backward pass on a backend. Raises ValueError for a
    cell without a compiled kernel.

    >>> passes_of("rnn", "reference").__name__
    'refnet.cells.rnn'
    """
    if backend == "reference":
        return CELLS[cell]
    if (kernel := compiled("kernels").kernel_of(cell)) is None:
        raise ValueError(
            f"cell {cell} has no compiled kernel yet; use backend 'reference' (--backend reference)"
        )
    return kernel


class ByNumbers(NamedTuple):
    """The passes of a net with ``backend="auto"``: for every call those that its numbers need."""

    net: Any
    reference: Any

    def _passes(self, dtype: DTypeLike) -> Any:
        compiled = self.net.backend_for(dtype) == "compiled"
        return passes_of(self.net.cell, "compiled") if compiled else self.reference

    def forward(self, p: Params, x: Array, h0: Array, act: Activation, **options: Any) -> CellTape:
        """The cell's tape; the reference always keeps all of it."""
        passes = self._passes(x.dtype)
        if passes is self.reference:
            options.pop("keeps", None)
        tape: CellTape = passes.forward(p, x, h0, act, **options)
        return tape

    def backward(
        self,
        p: Params,
        tape: CellTape,
        dh: Cotangents,
        act: Activation,
        inputs: bool = True,
        **options: Any,
    ) -> Params:
        """The gradients, by the backend that made the tape."""
        passes = self._passes(tape.x.dtype)
        grads: Params = passes.backward(p, tape, dh, act, inputs, **options)
        return grads


def changed(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass's instance that do not have their default.

    >>> from refnet import RecurrentNet
    >>> changed(RecurrentNet(2, 4, 3, readout="every"))
    {'inputs': 2, 'hidden': 4, 'outputs': 3, 'readout': 'every'}
    """
    values = {entry.name: (getattr(instance, entry.name), entry) for entry in fields(instance)}
    return {name: value for name, (value, entry) in values.items() if value != entry.default}


class Backed:
    """What nets share: the choice of a backend, predictions, and a repr without defaults."""

    backend: str

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in changed(self).items())
        return f"{type(self).__name__}({options})"

    @property
    def has_kernels(self) -> bool:
        """Whether the compiled core can run this net."""
        raise NotImplementedError

    def _need_kernels(self, cell: str, *used: Activation) -> None:
        """Raise ValueError if the backend is "compiled" and there is no kernel for one of them."""
        if self.backend == "compiled":
            passes_of(cell, "compiled")
            for act in used:
                compiled("activations").settings(act, np.dtype(float))

    def backend_for(self, dtype: DTypeLike = np.float32) -> str:
        """What computes numbers of this dtype: "compiled" or "reference".

        With ``backend="auto"`` float32 and float64 are compiled if there are kernels for the
        net's cell, activations and options; all other numbers take the reference.

        >>> from refnet import RecurrentNet
        >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
        >>> net.backend, net.backend_for(np.float32), net.backend_for(object)
        ('auto', 'compiled', 'reference')

        Checked by: tests/nets/test_backends.py.
        """
        if self.backend != "auto":
            return self.backend
        return "compiled" if np.dtype(dtype).char in "fd" and self.has_kernels else "reference"

    def predict(
        self,
        params: Params,
        x: Array,
        mask: Array | None = None,
        lengths: Array | None = None,
        probabilities: bool = False,
    ) -> Array:
        """The most probable class of each sequence (B,) or step (T, B), or with the loss
        squared_error or none the outputs (..., C); no tape is made.

        Shapes: x (T, B, D), or (B, D) of a feedforward net; ``mask`` as of a Batch, or instead of
        it ``lengths`` (B,), the steps that each sequence has. ``probabilities``: the softmax of the
        outputs, (..., C). Any dtype, as of ``forward``, whose errors it raises.

        >>> from refnet import RecurrentNet
        >>> net = RecurrentNet(inputs=1, hidden=2, outputs=3)
        >>> params = net.init(np.random.default_rng(0)) | {"by": np.array([0, 9, 0], np.float32)}
        >>> net.predict(params, np.ones((5, 2, 1), np.float32), lengths=np.array([5, 3]))
        array([1, 1])

        Checked by: tests/nets/test_predict.py.
        """
        if lengths is not None:
            if mask is not None:
                raise ValueError("predict: mask and lengths are both given; need one of them")
            array("predict: lengths", lengths, ("B",), kinds="iu")
            if lengths.shape != np.shape(x)[1:2] or (lengths < 0).any() or lengths.max() > len(x):
                raise ValueError(
                    f"predict: lengths are {short(lengths.tolist())} of x {np.shape(x)}; need "
                    f"0 to T for each of the B sequences{turned(len(lengths) == len(x))}"
                )
            mask = np.arange(len(x))[:, None] < lengths
        changes = {"checkpoint": "forward"} if hasattr(self, "checkpoint") else {}
        net: Any = replace(self, **changes)  # type: ignore[type-var]
        outputs: Array = net.forward(params, x, mask, copy=False)[0]
        if net.loss != "cross_entropy" and not probabilities:
            return outputs
        if not probabilities:
            return np.asarray(outputs.argmax(axis=-1))
        return softmax(outputs)

    def product(self, a: Array, b: Array) -> Array:
        """The product of two matrices in a read-out."""
        if self.backend_for(a.dtype) == "reference":
            return matmul(a, b)
        product: Array = compiled("products").matmul(a, b)
        return product
