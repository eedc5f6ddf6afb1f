"""Mistakes in the backward recursion and in the sums over the steps."""

from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.mistakes.base import Mistake, Mistakes, each_block, mistake
from refnet.check.naive import Change, Pass
from refnet.nets.recurrent import RecurrentNet

__all__ = ["of_the_recursion", "of_the_sums"]

FARTHEST = 64
"""The longest truncation that is looked for."""
WINDOW = 12
"""The same with a read-out at every step, where each k takes k passes."""


def of_the_recursion(net: RecurrentNet, batch: Batch) -> Mistakes:
    """What is carried from step to step."""
    G, T = len(net.gates), len(batch.x)
    turn = each_block(np.transpose, G)
    if net.hidden > 1 and T > 1:
        yield mistake("Whh is transposed in the backward recursion only", W=lambda v, s: turn(v))
    if T > 1:
        yield mistake(
            "the gradient is not carried from step to step", carry=lambda v, s: (0 * v[0], 0 * v[1])
        )
        if net.cell != "rnn":
            yield mistake("no gradient is carried through Whh", W=lambda v, s: 0 * v)
        yield from _truncated(net, batch)
    yield mistake("each pre-activation's gradient is not clipped", clip=lambda v, s: None)
    for bound in (0.01, 0.1, 1, 5):
        if net.clip_step != bound:
            yield mistake(
                f"each pre-activation's gradient is clipped at {bound}",
                clip=lambda v, s, bound=bound: bound,
            )


def _truncated(net: RecurrentNet, batch: Batch) -> Mistakes:
    T = len(batch.x)
    every = net.readout == "every"
    if every or batch.mask is not None:
        for k in range(2, min(T, FARTHEST)):
            yield mistake(
                f"the gradient is truncated: the state is detached every {k} steps",
                common=False,
                carry=_cut(lambda t, k=k: t and t % k == 0),
            )
    if not every:
        for k in range(2, min(T, FARTHEST)):
            yield mistake(
                f"the gradient is truncated to the last {k} steps",
                common=False,
                carry=_cut(lambda t, k=k: t == T - k),
            )
    elif net.clip_step is None:
        for k in range(2, min(T, WINDOW)):
            yield Mistake(
                f"the gradient is truncated: each loss reaches {k} steps back",
                tuple(_window(k, r) for r in range(k)),
                common=False,
            )


def _cut(at: Any) -> Any:
    return lambda v, s: (0 * v[0], 0 * v[1]) if at(s.t) else v


def _window(k: int, r: int) -> Change:
    """The losses at steps r, r + k, r + 2 k, ... alone, each cut k steps back."""

    def direct(v: Array, s: Pass) -> Array:
        v = v.copy()
        v[np.arange(len(v)) % k != r] = 0
        return v

    def once(grads: Params, s: Pass) -> Params:
        return grads if r == 0 else {**grads, "Why": 0 * grads["Why"], "by": 0 * grads["by"]}

    return {"direct": direct, "carry": _cut(lambda t: t % k == r), "grads": once}


def of_the_sums(net: RecurrentNet, batch: Batch) -> Mistakes:
    """The weight gradients, summed over the steps."""
    T = len(batch.x)
    if T < 2:
        return
    yield mistake("the gradient of Whh takes h[t] for h[t-1]", past=lambda v, s: s.h[s.t + 1])
    yield mistake(
        "the gradient of Whh takes h[t-2] for h[t-1]", past=lambda v, s: s.h[max(s.t - 1, 0)]
    )
    yield mistake(
        "the gradient of Wxh takes x[t-1] for x[t]", seen=lambda v, s: s.x[max(s.t - 1, 0)]
    )
    yield mistake(
        "the gradient of Wxh takes x[t+1] for x[t]", seen=lambda v, s: s.x[min(s.t + 1, T - 1)]
    )
    for label, steps in (
        ("the first step is dropped from {}", range(1, T)),
        ("the last step is dropped from {}", range(T - 1)),
        ("only the first step counts in {} (overwritten, not summed)", range(1)),
        ("only the last step counts in {}", range(T - 1, T)),
    ):
        yield mistake(
            label,
            parts=lambda v, s, steps=steps: (
                v if s.t in steps else {name: 0 * part for name, part in v.items()}
            ),
        )
    yield mistake(
        "the sum over the steps is divided by T in {}",
        parts=lambda v, s: {name: part / T for name, part in v.items()},
    )
    B = batch.x.shape[1]
    if B > 1:
        for label, b in (("first", 0), ("last", B - 1)):
            yield mistake(
                f"the {label} example is left out of the gradients of Whh and Wxh",
                past=_cleared(b),
                seen=_cleared(b),
            )


def _cleared(b: int) -> Any:
    def clear(rows: Array, s: Pass) -> Array:
        rows = rows.copy()
        rows[b] = 0
        return rows

    return clear
