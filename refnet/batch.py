"""The unit of data that every task yields and every net consumes."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Params = dict[str, Array]
Scalar: TypeAlias = Any
"""A number of any kind: a float, a Fraction, a ball, a dual number."""


class Batch(NamedTuple):
    """Inputs, targets, the steps that count and how much, and cotangents of the final states.

    ``x``: (T, B, D) for a recurrent net (time-major), or symbols (T, B) for one with an embedding;
    (B, D) for a feedforward net.
    ``y``: integer classes (B,) or (T, B), or real targets (B, C) or (T, B, C); the
    form with T is for a read-out at every step.
    ``mask``: None (every step counts) or bool (T, B). With a read-out at every step a
    masked step adds nothing to the loss, and its y is not looked at; with a read-out at the
    last step each sequence is read at its own last unmasked step (a fully masked one at h0).
    The state is updated at masked steps too, so x has to be right at every step up to the
    sequence's last unmasked one. After that x may hold anything, NaN and infinity included: no
    loss and no gradient depends on it, and its own gradient is 0. (Outputs and states there are
    computed all the same, with 0 for what is not finite. Kernels compute no state past the end of
    a sequence that is read at its last step: it is 0.)
    ``weights``: None (all predictions count alike) or real numbers, none negative, that multiply
    the losses of the predictions: (B,), or (T, B) with a read-out at every step. A prediction of
    weight 0 is as one of a masked step.
    ``final``: None or cotangents of a recurrent net's states after the last step, by the names and
    in the shapes of initial ones: h0 (B, H) or, of h and c, (2, B, H); of a StackedNet h0_l0, ...
    The loss then has the sum of ``state * cotangent`` besides; all sequences need T steps.

    >>> batch = Batch(x=np.zeros((7, 3, 2)), y=np.array([0, 1, 1]))  # T = 7, B = 3, D = 2
    >>> batch.mask is None
    True

    Checked by: tests/nets/test_padding.py::test_garbage_does_not_count,
    tests/nets/test_weights.py, tests/nets/test_final_cotangents.py.
    """

    x: Array
    y: Array
    mask: Array | None = None
    weights: Array | None = None
    final: Params | None = None


def examples(batch: Batch, rows: slice | Array, every: bool, recurrent: bool = True) -> Batch:
    """Some examples of a batch; ``every``: whether its targets are those of every step;
    ``recurrent``: whether x has a time axis.

    >>> examples(Batch(np.zeros((7, 3, 2)), np.array([0, 1, 2])), slice(1, 3), False).y.tolist()
    [1, 2]
    """

    def of(values: Array | None, timed: bool) -> Any:
        return None if values is None else values[:, rows] if timed else values[rows]

    x, y, mask, weights, final = batch
    if final is not None:
        final = {name: value[..., rows, :] for name, value in final.items()}
    timed = weights is not None and weights.ndim == 2
    return Batch(of(x, recurrent), of(y, every), of(mask, True), of(weights, timed), final)


def last_steps(mask: Array) -> Array:
    """How many steps each sequence has: (B,), the index of its last True + 1, 0 if none.

    >>> last_steps(np.array([[True, True], [True, False], [True, False]])).tolist()
    [3, 1]
    """
    if not len(mask):
        return np.zeros(mask.shape[1], int)
    return np.where(mask.any(axis=0), len(mask) - mask[::-1].argmax(axis=0), 0)
