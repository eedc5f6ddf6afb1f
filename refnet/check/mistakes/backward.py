"""Mistakes in the backward recursion and in the sums over the steps."""

from refnet.batch import Batch
from refnet.check.mistakes.base import Mistake, Mistakes, change, mistake
from refnet.check.naive import Change
from refnet.nets.recurrent import RecurrentNet

__all__ = ["of_the_recursion", "of_the_sums"]

FARTHEST = 64
"""The longest truncation that is looked for."""
WINDOW = 12
"""The same with a read-out at every step, where each k takes k passes."""
CUT = "(0 * v[0], 0 * v[1])"


def of_the_recursion(net: RecurrentNet, batch: Batch) -> Mistakes:
    """What is carried from step to step."""
    T = len(batch.x)
    if T > 1:
        yield mistake("the gradient is not carried from step to step", carry=CUT)
        yield from _truncated(net, batch)
        yield mistake("the backward pass leaves out the first step", da="v * (s.t > 0)")
        yield mistake(
            "the backward pass stops before the first step",
            da="v * (s.t > 0)",
            carry="v if s.t else (s.e, s.full if s.c else v[1])",
        )
    yield mistake("each pre-activation's gradient is not clipped", clip="None")
    for bound in (0.01, 0.1, 1, 5):
        if net.clip_step != bound:
            yield mistake(f"each pre-activation's gradient is clipped at {bound}", clip=str(bound))


def _truncated(net: RecurrentNet, batch: Batch) -> Mistakes:
    T = len(batch.x)
    every, steps = net.readout == "every", range(2, min(T, FARTHEST))
    truncated = "the gradient is truncated"
    if every or batch.mask is not None:
        for k in steps:
            yield mistake(
                f"{truncated}: the state is detached every {k} steps",
                common=False,
                carry=f"{CUT} if s.t and s.t % {k} == 0 else v",
            )
    if not every:
        for k in steps:
            yield mistake(
                f"{truncated} to the last {k} steps",
                common=False,
                carry=f"{CUT} if s.t == {T - k} else v",
            )
    elif net.clip_step is None:
        for k in range(2, min(T, WINDOW)):
            yield Mistake(
                f"{truncated}: each loss reaches {k} steps back",
                tuple(_window(k, r) for r in range(k)),
                common=False,
            )


def _window(k: int, r: int) -> Change:
    """The losses at steps r, r + k, r + 2 k, ... alone, each cut k steps back."""
    once = {"grads": "{**v, 'Why': 0 * v['Why'], 'by': 0 * v['by']}"} if r else {}
    return change(
        direct=f"put(v, np.arange(len(v)) % {k} != {r}, 0)",
        carry=f"{CUT} if s.t % {k} == {r} else v",
        **once,
    )


def of_the_sums(net: RecurrentNet, batch: Batch) -> Mistakes:
    """The weight gradients, summed over the steps."""
    T, B = batch.x.shape[:2]
    if T < 2:
        return
    for label, steps in (
        ("the first step is dropped from {}", range(1, T)),
        ("the last step is dropped from {}", range(T - 1)),
        ("only the first step counts in {} (overwritten, not summed)", range(1)),
        ("only the last step counts in {}", range(T - 1, T)),
    ):
        yield mistake(label, parts=f"each(v, lambda part: part * (s.t in {steps}))")
    yield mistake(
        "the sum over the steps is divided by T in {}", parts=f"each(v, lambda part: part / {T})"
    )
    if B > 1:
        for label, b in (("first", 0), ("last", B - 1)):
            yield mistake(
                f"the {label} example is left out of the gradients of Whh and Wxh",
                past=f"put(v, {b}, 0)",
                seen=f"put(v, {b}, 0)",
            )
