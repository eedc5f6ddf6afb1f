"""Mistakes in the backward recursion and in the sums over the steps."""

from typing import Any

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
    if net.hidden > 1 and T > 1:
        yield mistake(
            "Whh is transposed in the backward recursion only",
            W=f"blocks(v, {len(net.gates)}, np.transpose)",
        )
    if T > 1:
        yield mistake("the gradient is not carried from step to step", carry=CUT)
        if net.cell != "rnn":
            yield mistake("no gradient is carried through Whh", W="0 * v")
        yield from _truncated(net, batch)
        yield from _of_the_tape(net)
        yield mistake("the backward pass leaves out the first step", da="v * (s.t > 0)")
    yield mistake("each pre-activation's gradient is not clipped", clip="None")
    for bound in (0.01, 0.1, 1, 5):
        if net.clip_step != bound:
            yield mistake(f"each pre-activation's gradient is clipped at {bound}", clip=str(bound))


TAPES = {"the states h": "h", "the gates": "a v u", "all": "h c k a v u", "the cells c": "c k"}
PLACES = {
    "those of the last step: arrays share memory": "{0}[-1:] * len({0})",
    "those of the last step, but the first: arrays share memory": (
        "{0}[:1] + {0}[-1:] * len({0}[1:])"
    ),
    "those of the step before": "{0}[:1] + {0}[:-1]",
    "those of the step before, at the first the last": "{0}[-1:] + {0}[:-1]",
    "those of the step after": "{0}[1:] + {0}[-1:]",
}


def _of_the_tape(net: RecurrentNet) -> Mistakes:
    """What the forward pass saved for another step."""
    for what, names in list(TAPES.items())[: {"rnn": 1, "lstm": 4}.get(net.cell, 3)]:
        for place, text in PLACES.items():
            lists = ", ".join(f"{name}={text.format(f's.{name}')}" for name in names.split())
            label = f"in the backward pass {what} are {place}"
            yield mistake(label, common=False, direct=f"on_tape(v, s, {lists})")
    if net.cell == "lstm":
        early = "on_tape(v, s, k=[s.k_of(c) for c in s.c[:-1]])"
        yield mistake("in the backward pass tanh(c[t]) stands for tanh(c[t+1])", direct=early)
        yield mistake(
            "the gradient of c begins with that of h: arrays share memory",
            q="v + s.e if s.t == len(s.x) - 1 else v",
        )


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
    yield mistake("the gradient of Whh takes h[t] for h[t-1]", past="s.h[s.t + 1]")
    end, start = "the last step's at the first", "the first step's at the last"
    for name, place, other, array in (
        ("Whh", "past", "h[t-2] for h[t-1]", "s.h"),
        ("Wxh", "seen", "x[t-1] for x[t]", "s.x"),
    ):
        for more, text in (
            ("", f"{array}[max(s.t - 1, 0)]"),
            (f", {end}", f"{array}[s.t - 1]"),
            (", zero at the first", f"{array}[max(s.t - 1, 0)] * (s.t > 0)"),
        ):
            places: dict[str, Any] = {place: text}
            yield mistake(f"the gradient of {name} takes {other}{more}", **places)
    label = "the gradient of Wxh takes x[t+1] for x[t]"
    yield mistake(label, seen=f"s.x[min(s.t + 1, {T - 1})]")
    yield mistake(f"{label}, {start}", seen=f"s.x[(s.t + 1) % {T}]")
    if net.cell == "gru_before":
        yield mistake("the gradient of Whh takes h[t-1] for r h[t-1] in gate n", reset="s.h[s.t]")
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
