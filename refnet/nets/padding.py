"""Padding: what follows the end of a sequence never affects the loss or a gradient.

With a mask, a sequence of a batch ends at its last True; what follows is padding, which may hold
anything: uninitialized memory, NaN, infinity. The outputs and states of those steps are computed
from it (where it is not finite, from 0), but neither the loss nor any gradient depends on it, and
the gradient in the padding is 0. With a read-out at the last step the compiled backend computes no
such steps: their states on the tape may be anything, and nothing reads them. A step that is masked
*before* the end of its sequence is not padding: the state after it, computed from its x, is carried
on to the steps that count.

The gradient at a padded state is 0, so padding that is computed can reach another gradient only as
0 times infinity or 0 times NaN, which is NaN. Hence ``RecurrentNet.backward`` searches its result
for NaN, and runs again with zeros in place of the padding only if it finds one.

Checked by: tests/nets/test_padding.py.
"""

from typing import Any, TypeVar

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps

Tape = TypeVar("Tape", bound=Any)


def finite_input(x: Array, mask: Array | None) -> Array:
    """``x`` (T, B, D) with 0 for what is not finite in the padding; x itself if all is.

    Exact numbers are finite.

    >>> x = np.array([[[1.0]], [[np.nan]]])
    >>> finite_input(x, np.array([[True], [False]])).ravel().tolist()
    [1.0, 0.0]
    """
    if mask is None or x.dtype.kind not in "fc":
        return x
    padding = np.arange(len(x))[:, None] >= last_steps(mask)
    bad = padding[:, :, None] & ~np.isfinite(x)
    return np.where(bad, 0, x) if bad.any() else x


def known_symbols(x: Array, mask: Array | None, symbols: int) -> Array:
    """``x`` (T, B) with 0 in the padding, which may hold any integer. Raises ValueError unless all
    else is from 0 to ``symbols`` - 1.

    >>> known_symbols(np.array([[3], [-1]]), np.array([[True], [False]]), 4).tolist()
    [[3], [0]]
    """
    if mask is not None:
        x = np.where(np.arange(len(x))[:, None] < last_steps(mask), x, 0)
    if x.size and not 0 <= x.min() <= x.max() < symbols:
        raise ValueError(
            f"x has symbols from {x.min()} to {x.max()}; need 0 to {symbols - 1}, because the net "
            f"has D = {symbols} inputs"
        )
    return x


def settled(batch: Batch, net: Any) -> Batch:
    """The batch of a recurrent net with values that exact numbers can hold: x as ``finite_input``
    gives it, and 0 for the targets of masked steps that are not finite, or not one of the classes.

    >>> from refnet import RecurrentNet
    >>> x, mask = np.array([[[1.0]], [[np.nan]]]), np.array([[True], [False]])
    >>> net = RecurrentNet(1, 2, outputs=2, readout="every")
    >>> settled(Batch(x, np.array([[1], [-1]]), mask), net).y.ravel().tolist()
    [1, 0]
    """
    x, y, mask = batch[:3]
    if (
        mask is not None
        and net.readout != "last"
        and (y.shape[:2] == mask.shape and y.dtype.kind in "iuf")
    ):
        valid = (0 <= y) & (y < net.outputs) if net.loss == "cross_entropy" else np.isfinite(y)
        y = np.where(valid | mask.astype(bool).reshape(*mask.shape, *(1,) * (y.ndim - 2)), y, 0)
    return batch._replace(x=finite_input(x, mask), y=y)


def ends(doutputs: Array, steps: Array | int | None) -> Array | None:
    """How many steps of each sequence have a gradient, (B,): all later cotangents are zero.

    ``doutputs`` (T, B, C) or (B, C) and ``steps`` as in ``NetTape``; None if no sequence ends
    early, and for numbers other than floats: exact ones need none of this.

    >>> ends(np.array([[[1.0], [1.0]], [[1.0], [0.0]]]), None).tolist()
    [2, 1]
    """
    if doutputs.dtype.kind not in "fc" or isinstance(steps, int):
        return None
    if steps is not None:
        return steps
    if np.asarray(doutputs[-1:].any(axis=-1)).all():
        return None
    return last_steps(np.asarray(doutputs.any(axis=-1)))


def emptied(tape: Tape, ends: Array) -> Tape:
    """A cell's tape with zeros in place of the padding: of its T steps from ``ends`` (B,) on, and
    of its T + 1 states after h[ends].

    >>> from refnet.cells.rnn import Tape
    >>> tape = Tape(x=np.ones((2, 1, 1)), a=np.ones((2, 1, 1)), h=np.ones((3, 1, 1)))
    >>> emptied(tape, np.array([1])).h.ravel().tolist()
    [1.0, 1.0, 0.0]
    """
    T = len(tape.x)

    def cleared(values: Any) -> Any:
        if values is None:
            return None
        if isinstance(values, list):  # tapes of single steps
            return [emptied(part, ends - t) for t, part in enumerate(values)]
        padding = np.arange(T - len(values), T)[:, None] >= ends
        return np.where(padding.reshape(*padding.shape, *(1,) * (values.ndim - 2)), 0, values)

    result: Tape = type(tape)(*map(cleared, tape))
    return result


def has_nan(gradients: Params) -> bool:
    """Whether any gradient in floats holds a NaN.

    >>> has_nan({"Whh": np.array([1.0, np.nan])})
    True
    """
    return any(value.dtype.kind in "fc" and np.isnan(value).any() for value in gradients.values())
