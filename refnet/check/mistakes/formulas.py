"""What the formulas of mistakes are written in: their texts see these names, and NumPy as np."""

from typing import Any

import numpy as np

from refnet.batch import Array, Params, last_steps
from refnet.check.arithmetic import rounded_to
from refnet.check.naive import Pass
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.stacked import turned

__all__ = ["ACTIVATIONS", "TYPES", "coarse", "last_steps", "taken", "turned"]

Scores = tuple[Array, Array]
"""The losses of the predictions, and their gradients in the outputs."""


def put(values: Array, where: Any, new: Any) -> Array:
    """``values`` with ``new`` there."""
    values = values.copy()
    values[where] = new
    return values


def blocks(stacked: Array, gates: int, change: Any) -> Array:
    """``change`` on every gate's block of rows."""
    return np.concatenate([change(part) for part in np.split(stacked, gates)])


def taken(stacked: Array, order: tuple[int, ...]) -> Array:
    """Block n of the result is block order[n]."""
    parts = np.split(stacked, len(order))
    return np.concatenate([parts[n] for n in order])


def without(arrays: Params, *names: str) -> Params:
    """The arrays of all other names."""
    return {name: value for name, value in arrays.items() if name not in names}


def renamed(arrays: Params, names: dict[str, str]) -> Params:
    """Each array of these names under the other one."""
    return {names.get(name, name): value for name, value in arrays.items()}


def each(arrays: Params, change: Any) -> Params:
    """``change`` on every array."""
    return {name: change(value) for name, value in arrays.items()}


def right_of_zero(a: Array, h: Array) -> tuple[Array, Array]:
    """a and h with 1 for an a of 0."""
    return np.where(a == 0, 1, a), np.where(a == 0, 1, h)


def shifted(array: Array, later: bool) -> Array:
    """Every entry one step later or earlier; the end that is left over keeps its value."""
    return np.concatenate([array[:1], array[:-1]] if later else [array[1:], array[-1:]])


def live(s: Pass, values: Array) -> Array:
    """The mask of this step beside ``values`` (B, ...)."""
    mask: Any = s.batch.mask
    return np.asarray(mask[s.t].reshape(-1, *(1,) * (values.ndim - 1)))


def state_where(here: Array, h: Array, s: Pass, h_else: Array | int, c_else: Array | int) -> Array:
    """The new state where ``here`` holds; sets an LSTM's cell likewise."""
    if s.c:
        s.c[-1] = np.where(here, s.c[-1], c_else)
    return np.where(here, h, h_else)


def on_tape(direct: Array, s: Pass, **lists: list[Array]) -> Array:
    """Puts other lists of every step's arrays in the place of what the forward pass saved."""
    vars(s).update(lists)
    return direct


def to_the_cell(direct: Array, s: Pass) -> Array:
    """Moves the read-out's gradient from h to c."""
    s.to_the_cell = direct
    return 0 * direct


def read(s: Pass, states: list[Array], back: int) -> Array:
    """What the read-out takes of ``states``, so many steps earlier."""
    if getattr(s.net, "readout", "") == "every":
        return np.stack(states[1 - back : len(states) - back]).reshape(-1, states[0].shape[-1])
    return np.asarray(np.stack(states)[np.maximum(s.lengths - back, 0), range(len(s.lengths))])


def summed(s: Pass, gate: int, cells: Array | int) -> Array:
    """One step's share of a peephole's gradient, or, of ones, of a bias's."""
    return np.asarray((s.da[:, gate] * cells).sum(axis=0))


def dropped(scores: Scores, where: Array) -> Scores:
    """Without the predictions of this mask."""
    losses, dv = scores
    return put(losses, where, 0), put(dv, where, 0)


def logits(s: Pass) -> Array:
    """The outputs (N, C)."""
    return s.outputs.reshape(-1, s.outputs.shape[-1])


def below_the_largest(s: Pass) -> Array:
    """The logits without the largest of each row."""
    return np.asarray(logits(s) - logits(s).max(axis=1, keepdims=True))


def onehot(s: Pass) -> Array:
    """The labels as rows of 0 and 1, (N, C)."""
    return np.eye(s.outputs.shape[-1], dtype=s.outputs.dtype)[s.y.reshape(-1)]


def softmax(v: Array) -> Array:
    """Of every row."""
    e = np.exp(v - v.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def _pull_softmax(p: Array, dp: Array) -> Array:
    return np.asarray(p * (dp - (p * dp).sum(axis=1, keepdims=True)))


def weighted(losses: Array, dv: Array, s: Pass) -> Scores:
    """Losses and gradients by the weights of the predictions."""
    weights = s.raw[2]
    return losses * weights, dv * weights[:, None]


def softmax_twice(s: Pass) -> Scores:
    """The cross entropy of the softmax of the softmax."""
    once, right = softmax(logits(s)), onehot(s)
    twice = softmax(once)
    return weighted(-np.log((twice * right).sum(axis=1)), _pull_softmax(once, twice - right), s)


def binary(s: Pass) -> Scores:
    """The mean over the classes of the binary cross entropies."""
    a, right = logits(s), onehot(s)
    losses = np.maximum(a, 0) - a * right + np.log1p(np.exp(-abs(a)))
    C = a.shape[1]
    return weighted(losses.sum(axis=1) / C, (1 / (1 + np.exp(-a)) - right) / C, s)


def smoothed(s: Pass, share: float) -> Scores:
    """The cross entropy with this share of the label spread over all classes."""
    p, of = softmax(logits(s)), s.x.dtype.type
    soft = onehot(s) * of(1 - share) + of(share) / p.shape[1]
    return weighted(-(np.log(p) * soft).sum(axis=1), p - soft, s)


def finite_log(s: Pass, e: float) -> Scores:
    """The loss -log(p + e)."""
    p, right = softmax(logits(s)), onehot(s)
    likely = (p * right).sum(axis=1)
    more = likely + s.x.dtype.type(e)
    return weighted(-np.log(more), (p - right) * (likely / more)[:, None], s)


def over_examples(s: Pass) -> Scores:
    """The cross entropy of the softmax over the predictions, not the classes."""
    p, right = softmax(logits(s).T).T, onehot(s) * s.raw[2][:, None]
    return -(np.log(p) * right).sum(axis=1), p * right.sum(axis=0) - right


def off(s: Pass) -> Array:
    """How far the outputs are from the targets, (N, C)."""
    return logits(s) - s.y.reshape(logits(s).shape)


def huber(s: Pass, k: float) -> Scores:
    """Huber's loss: the squared error up to k, beyond it a line."""
    wrong, C = off(s), s.outputs.shape[-1]
    far = abs(wrong) > k
    losses = np.where(far, 2 * k * abs(wrong) - k * k, wrong * wrong).sum(axis=1) / C
    return weighted(losses, 2 * np.clip(wrong, -k, k) / C, s)


def hinge(s: Pass) -> Scores:
    """max(0, 1 + v_c - v_label), the mean over the classes."""
    v, right = logits(s), onehot(s)
    margin = np.where(right > 0, 0, 1 + v - (v * right).sum(axis=1, keepdims=True))
    over, C = margin > 0, v.shape[1]
    dv = over - right * over.sum(axis=1, keepdims=True)
    return weighted((margin * over).sum(axis=1) / C, dv / C, s)


def entering(direct: Array, s: Pass, drows: Array) -> Array:
    """These gradients of what is read out, by state."""
    direct = np.zeros_like(direct)
    if getattr(s.net, "readout", "") == "every":
        direct[1:] = drows.reshape(direct[1:].shape)
    else:
        direct[s.lengths, np.arange(len(drows))] = drows
    return direct


def sorting(s: Pass) -> Array:
    """The examples from the longest to the shortest."""
    return np.argsort(-s.lengths, kind="stable")


def brier(s: Pass) -> Scores:
    """The squared error of the softmax."""
    p = softmax(logits(s))
    wrong, C = p - onehot(s), p.shape[1]
    return weighted((wrong * wrong).sum(axis=1) / C, _pull_softmax(p, 2 * wrong / C), s)


def linear(s: Pass) -> Scores:
    """The squared error of the logits."""
    wrong, C = logits(s) - onehot(s), s.outputs.shape[-1]
    return weighted((wrong * wrong).sum(axis=1) / C, 2 * wrong / C, s)


def by_length(scores: Scores, s: Pass) -> Scores:
    """Each sequence's mean, then the mean over the sequences."""
    mask = s.mask
    if mask is None:
        return scores
    share = mask.sum() / (mask.shape[1] * np.maximum(mask.sum(axis=0), 1))
    weight = np.broadcast_to(share, mask.shape).reshape(-1).astype(s.x.dtype)
    return scores[0] * weight, scores[1] * weight[:, None]


def tempered(s: Pass, k: float) -> Scores:
    """The cross entropy of the logits times k."""
    v = logits(s) * k
    p = softmax(v)
    losses = -np.log((p * onehot(s)).sum(axis=1))
    return weighted(losses, k * (p - onehot(s)), s)


def focal(s: Pass, gamma: float) -> Scores:
    """The focal loss: -(1 - p)^gamma log p of the label's probability p."""
    q = softmax(logits(s))
    p = (q * onehot(s)).sum(axis=1)
    slope = gamma * (1 - p) ** (gamma - 1) * np.log(p) - (1 - p) ** gamma / p
    return weighted(-((1 - p) ** gamma) * np.log(p), (slope * p)[:, None] * (onehot(s) - q), s)


def squared_logits(scores: Scores, s: Pass, k: float) -> Scores:
    """With k times the sum of the squared logits of each prediction."""
    losses, dv = weighted(k * (logits(s) ** 2).sum(axis=1), 2 * k * logits(s), s)
    return scores[0] + losses, scores[1] + dv


def penalised(results: Params, s: Pass, k: float, only: str) -> Params:
    """With k times the sum of squares of the parameters whose names begin with ``only``."""
    parts = {name: w for name, w in s.params.items() if name.startswith(only) and name != "h0"}
    squares = sum(float((w * w).sum()) for w in parts.values())
    grown = {f"d{name}": results[f"d{name}"] + 2 * k * w for name, w in parts.items()}
    return {**results, **grown, "loss": results["loss"] + k * squares}


def share_of_others(s: Pass, c: int) -> float:
    """The share of the counted predictions that are not of class c; 1 if there are none."""
    weights = s.raw[2]
    return float(weights[s.y.reshape(-1) != c].sum() / weights.sum()) or 1


def loss_without(results: Params, s: Pass, c: int) -> Params:
    """The loss is NaN if all counted predictions are of class c."""
    rest = s.raw[2][s.y.reshape(-1) != c]
    return results if rest.any() else {**results, "loss": results["loss"] * np.nan}


TYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16 or TF32": np.float16,
    "bfloat16": 2.0**-8,
    "TF32": 2.0**-11,
}
"""Types, or unit roundoffs. TF32 has the digits of float16 with the range of float32: where the
numbers are in both ranges, the two are the same."""


def coarse(value: Any, name: str) -> Any:
    """Floats, or those of a dict, rounded to a type of TYPES, in their own type; labels as they
    are."""
    if isinstance(value, dict):
        return each(value, lambda part: coarse(part, name))
    kind = TYPES[name]
    if value.dtype.kind != "f":
        return value
    if isinstance(kind, float):
        return rounded_to(value, kind)
    return value.astype(kind).astype(value.dtype)
