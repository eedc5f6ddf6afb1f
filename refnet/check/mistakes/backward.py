"""Mistakes in the backward recursion and in the sums over the steps.

Each is a weight of pulls by step (``formulas.counted``): truncation, steps that are passed over,
sums that lack a step.

Checked by: tests/check/test_mistake_names.py.
"""

from collections.abc import Callable
from typing import Any

from refnet.batch import Batch
from refnet.check.mistakes.base import Mistake, Mistakes, change, mistake
from refnet.check.naive import Change
from refnet.nets.recurrent import RecurrentNet

__all__ = ["counts", "of_the_recursion", "of_the_sums"]

GATES = "line.target.name[:2] == 'a.'"
MATRICES = "pull.target.name[:3] in ('Whh', 'Wxh')"
FARTHEST = 64
"""The longest truncation that is looked for."""
WINDOW = 12
"""The same with a read-out at every step, where each k takes k passes."""


def counts(
    name: str, chosen: str, weight: str, common: bool = True, **places: str | Callable[..., Any]
) -> Mistake:
    """The mistake of pulls that count otherwise: the ``chosen`` ones are multiplied by the text
    ``weight`` of the steps t."""
    pulls = f"v + counted(s, {chosen}, lambda t: {weight})"
    return mistake(name, common, pulls=pulls, **places)


def of_the_recursion(net: RecurrentNet, batch: Batch) -> Mistakes:
    """Mistakes in what is carried from step to step."""
    T = len(batch.x)
    if T > 1:
        yield counts("the gradient is not carried from step to step", "carried", "0 * t")
        yield from _truncated(net, batch)
        name = "the backward pass leaves out the first step"
        yield counts(name, f"lambda line, pull: {GATES}", "t > 0")
        yield counts(
            "the backward pass stops before the first step",
            f"lambda line, pull: {GATES} or carried(line, pull)",
            "t > 0",
            grads="{**v, 'h0': np.stack([*s.d.values()])[:, 1] if s.c else s.d['h'][1]}",
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
            name = f"{truncated}: the state is detached every {k} steps"
            yield counts(name, "carried", f"(t % {k} > 0) | (t == 0)", common=False)
    if not every:
        for k in steps:
            name = f"{truncated} to the last {k} steps"
            yield counts(name, "carried", f"t != {T - k}", common=False)
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
        pulls=f"v + counted(s, carried, lambda t: t % {k} != {r})",
        **once,
    )


def of_the_sums(net: RecurrentNet, batch: Batch) -> Mistakes:
    """Mistakes in the weight gradients, which are sums over the steps."""
    T, B = batch.x.shape[:2]
    if T < 2:
        return
    for label, steps in (
        ("the first step is dropped from {}", [*range(1, T)]),
        ("the last step is dropped from {}", [*range(T - 1)]),
        ("only the first step counts in {} (overwritten, not summed)", [0]),
        ("only the last step counts in {}", [T - 1]),
    ):
        yield counts(label, "summed", f"np.isin(t, {steps})")
    yield counts("the sum over the steps is divided by T in {}", "summed", f"1 / {T}")
    if B > 1:
        for label, b in (("first", 0), ("last", B - 1)):
            yield mistake(
                f"the {label} example is left out of the gradients of Whh and Wxh",
                pulls=f"v + counted(s, lambda line, pull: {MATRICES}, "
                f"lambda t: np.arange({B})[None, :, None] != {b})",
            )
