"""Mistakes in the cells: other activations, other gates, gates in another order."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.mistakes.base import Mistakes, changed, mistake, reading
from refnet.check.naive import PEEPHOLES, Pass
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["of_the_activation", "of_the_gates", "of_the_order", "orders", "taken"]

STACKED = ("Whh", "Wxh", "bh")
KNOWN = {
    "i, o, f, g": " (as ONNX stacks them)",
    "i, g, f, o": " (as TensorFlow's BasicLSTMCell stacks them)",
    "g, i, f, o": " (as Chainer stacks them)",
    "z, r, n": " (as Keras and ONNX stack them)",
}


def of_the_activation(net: Net) -> Mistakes:
    """Another function, or another derivative of it."""
    act = net.activation
    name = act.name
    if not act.start:
        for other in ACTIVATIONS.values():
            if other.name != name and not other.start and other.name != "oplu":
                yield mistake(
                    f"the activation is {other.name} instead of {name}",
                    act=lambda f, s, o=other: lambda a: o.value(a, {}, o.alpha),
                    act_pull=lambda f, s, o=other: (
                        lambda a, h, dh: o.pull(a, h, dh, {}, o.alpha)[0]
                    ),
                )
    if name == "identity":
        return
    yield mistake(
        f"{name}' is taken of a where h belongs", act_pull=lambda f, s: lambda a, h, dh: f(a, a, dh)
    )
    yield mistake(
        f"{name}' is taken of h where a belongs",
        act_pull=lambda f, s: lambda a, h, dh: f(h, s.act(h), dh),
    )
    yield mistake(f"{name}' is left out", act_pull=lambda f, s: lambda a, h, dh: dh)
    if name == "tanh":
        yield mistake(
            "tanh' is 1 - h, without the square",
            act_pull=lambda f, s: lambda a, h, dh: (1 - h) * dh,
        )
    if name in ("relu", "leaky_relu", "prelu"):
        yield mistake(
            f"{name}' at 0 is that from the right, 1",
            act_pull=lambda f, s: lambda a, h, dh: f(*_right_of_zero(a, h), dh),
        )
    if name in ("relu", "leaky_relu"):
        yield mistake(
            f"{name}' at 0 is the mean of those from both sides",
            act_pull=lambda f, s: lambda a, h, dh: (f(a, h, dh) + f(*_right_of_zero(a, h), dh)) / 2,
        )


def _right_of_zero(a: Array, h: Array) -> tuple[Array, Array]:
    return np.where(a == 0, 1, a), np.where(a == 0, 1, h)


def of_the_gates(net: RecurrentNet, params: Params, batch: Batch) -> Mistakes:
    """What only gated cells have."""
    if net.cell == "rnn":
        if len(batch.x) > 1:
            yield mistake(
                f"{net.activation.name}' is taken of the state one step earlier",
                act_pull=lambda f, s: lambda a, h, dh: f(a, s.h[s.t], dh),
            )
        return
    yield from of_the_order(net.gates, *STACKED)
    yield from _one_by_one(net)
    yield from _of_the_sigmoid(net)
    yield from (_of_the_lstm if net.cell == "lstm" else _of_the_gru)(net, params)


def orders(gates: tuple[str, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every other order of the gates, and their names in it."""
    usual = tuple(range(len(gates)))
    for order in permutations(usual):
        if order != usual:
            yield order, ", ".join(gates[n] for n in order)


def taken(order: tuple[int, ...]) -> Callable[[Array], Array]:
    """Block n of the result is block order[n]."""

    def take(stacked: Array) -> Array:
        parts = np.split(stacked, len(order))
        return np.concatenate([parts[n] for n in order])

    return take


def of_the_order(gates: tuple[str, ...], *stacked: str) -> Mistakes:
    """The gates in another order in the parameters of these names."""
    for order, names in orders(gates):
        source = KNOWN.get(names, "")
        # block m is their gate order[m]: gate n finds its rows in block order.index(n)
        there = tuple(order.index(n) for n in range(len(gates)))
        yield reading(
            f"the gates are read in the order {names}{source}",
            taken(there),
            taken(order),
            *stacked,
            common=bool(source),
        )


def _one_by_one(net: RecurrentNet) -> Mistakes:
    G, H, gates = len(net.gates), net.hidden, net.gates
    if H > 1:
        yield reading(
            "the gates are interleaved, unit by unit",
            lambda v: v.reshape(H, G, *v.shape[1:]).swapaxes(0, 1).reshape(v.shape),
            lambda v: v.reshape(G, H, *v.shape[1:]).swapaxes(0, 1).reshape(v.shape),
            *STACKED,
        )
    for n, gate in enumerate(gates if net.cell == "lstm" else gates[:2]):
        yield mistake(f"no gradient flows through the gate {gate}", da=_without(n))


def _with_gate(n: int, value: float) -> Callable[[Array, Pass], Array]:
    """The gate n of (B, G, H) at a value."""

    def change(v: Array, s: Pass) -> Array:
        v = v.copy()
        v[:, n] = value
        return v

    return change


def _without(n: int) -> Callable[[Array, Pass], Array]:
    return _with_gate(n, 0)


def _open(n: int) -> Callable[[Array, Pass], Array]:
    """The gate n at 1: its sigmoid is 1 in any float type."""
    return _with_gate(n, 100)


def _of_the_sigmoid(net: RecurrentNet) -> Mistakes:
    for name, slope in (("max(0, min(1, 0.2 a + 0.5))", 5), ("max(0, min(1, a / 6 + 0.5))", 6)):
        yield mistake(
            f"the gates' sigmoid is the hard one, {name}",
            sigmoid=lambda f, s, n=slope: lambda a: np.clip(a / n + a.dtype.type(0.5), 0, 1),
            sigmoid_pull=lambda f, s, n=slope: (
                lambda a, v, dv: np.where((v > 0) & (v < 1), dv / n, 0)
            ),
        )
    yield mistake(
        "the gates use tanh instead of the sigmoid",
        sigmoid=lambda f, s: np.tanh,
        sigmoid_pull=lambda f, s: lambda a, v, dv: dv * (1 - v * v),
    )
    yield mistake(
        "the gates' sigmoid' is taken of a: a (1 - a)",
        sigmoid_pull=lambda f, s: lambda a, v, dv: f(a, a, dv),
    )
    yield mistake(
        "the gates' sigmoid' is taken of the sigmoid's value",
        sigmoid_pull=lambda f, s: lambda a, v, dv: f(v, s.sigmoid(v), dv),
    )
    yield mistake("the gates' sigmoid' is left out", sigmoid_pull=lambda f, s: lambda a, v, dv: dv)
    yield mistake(
        "the gates' sigmoid' is s, not s (1 - s)", sigmoid_pull=lambda f, s: lambda a, v, dv: dv * v
    )


def _rows(H: int, n: int) -> slice:
    """The rows of gate n in a stacked array."""
    return slice(n * H, (n + 1) * H)


def altered(part: slice, change: Any) -> Any:
    """Applies ``change`` to some rows."""

    def apply(v: Array) -> Array:
        v = v.copy()
        v[part] = change(v[part])
        return v

    return apply


def _of_the_lstm(net: RecurrentNet, params: Params) -> Mistakes:
    H, act = net.hidden, net.activation.name
    i, f, g = (_rows(H, n) for n in range(3))
    for value in (1, -1):
        word = "added to" if value > 0 else "subtracted from"
        yield mistake(
            f"1 is {word} the forget gate's bias",
            p=changed(altered(f, lambda b, v=value: b + v * net.gain), "bh"),
        )
    for label, n in (("forget", 1), ("input", 0), ("output", 3)):
        yield mistake(f"the {label} gate is left out (always 1)", a=_open(n), da=_without(n))
    if not any(name in params for name in PEEPHOLES):
        for source, lost, name in (
            (i, f, "the forget gate is 1 - i, not its own"),
            (f, i, "the input gate is 1 - f, not its own"),
        ):

            def coupled(v: Array, source: slice = source, lost: slice = lost) -> Array:
                v = v.copy()
                v[lost] = -v[source]
                return v

            def pulled(v: Array, source: slice = source, lost: slice = lost) -> Array:
                v = v.copy()
                v[source], v[lost] = v[source] - v[lost], 0
                return v

            yield reading(name, coupled, pulled, *STACKED)
    if net.activation.name == "tanh":
        yield mistake(
            "the candidate g takes the sigmoid instead of tanh",
            g=lambda f, s: s.sigmoid,
            g_pull=lambda f, s: s.sigmoid_pull,
        )
    if act != "identity":
        yield mistake(
            f"h = o c, without {act}",
            k=lambda f, s: lambda c: c,
            k_pull=lambda f, s: lambda c, k, dk: dk,
        )
        yield mistake(
            f"{act}'(c) is left out of the backward pass", k_pull=lambda f, s: lambda c, k, dk: dk
        )
        yield mistake(
            f"{act}' is taken of c where {act}(c) belongs",
            k_pull=lambda f, s: lambda c, k, dk: f(c, c, dk),
        )
        yield mistake(
            f"{act}'(c) is taken of the cell one step earlier",
            k_pull=lambda f, s: lambda c, k, dk: f(s.c[s.t], s.act(s.c[s.t]), dk),
        )
    yield from _of_the_cell()
    yield from _of_the_peepholes(params)


def _of_the_cell() -> Mistakes:
    yield mistake("no gradient is carried by the cell c", carry=lambda v, s: (v[0], 0 * v[1]))
    yield mistake(
        "the forget gate is left out where the cell's gradient is carried",
        carry=lambda v, s: (v[0], v[1] + (1 - s.v[s.t][:, 1]) * s.full),
    )
    yield mistake(
        "the gradient of c at h is left out at all but the last step",
        q=lambda v, s: s.q if s.t < len(s.x) - 1 else v,
    )
    yield mistake(
        "the forget gate's gradient takes the new cell c[t+1]",
        da=_scaled(1, lambda s: (s.c[s.t], s.c[s.t + 1])),
    )


def _scaled(n: int, pair: Any) -> Any:
    """The gate n's gradient with one factor in another one's place."""

    def change(da: Array, s: Pass) -> Array:
        old, new = pair(s)
        da = da.copy()
        da[:, n] = np.where(old == 0, 0, da[:, n] / np.where(old == 0, 1, old) * new)
        return da

    return change


def _of_the_peepholes(params: Params) -> Mistakes:
    peepholes = [name for name in PEEPHOLES if name in params]
    if peepholes:
        yield reading("the peepholes are ignored", np.zeros_like, np.zeros_like, *peepholes)
        yield mistake(
            "the cell's gradient leaves out the peepholes",
            q=lambda v, s: v - s.p["Wpo"] * s.da[:, 3] if "Wpo" in s.p else v,
            carry=lambda v, s: (v[0], s.v[s.t][:, 1] * s.full),
        )
        for names in (("Wpi", "Wpf"), ("Wpi", "Wpo"), ("Wpf", "Wpo")):
            if set(names) <= set(peepholes):
                swap = dict(zip(names, names[::-1]))

                def swapped(p: Params, s: Pass, swap: dict[str, str] = swap) -> Params:
                    return {**p, **{name: p[other] for name, other in swap.items()}}

                yield mistake(
                    f"the peepholes {' and '.join(names)} are swapped", p=swapped, grads=swapped
                )
    if "Wpo" in peepholes:
        yield mistake(
            "the output gate's peephole sees the old cell c[t], not the new one",
            peep=lambda v, s: s.c[s.t],
            q=lambda v, s: v - s.p["Wpo"] * s.da[:, 3],
            carry=lambda v, s: (v[0], v[1] + s.p["Wpo"] * s.da[:, 3]),
            parts=lambda v, s: {**v, "Wpo": (s.da[:, 3] * s.c[s.t]).sum(axis=0)},
        )
        yield mistake(
            "the gradient of Wpo takes the old cell c[t]",
            parts=lambda v, s: {**v, "Wpo": (s.da[:, 3] * s.c[s.t]).sum(axis=0)},
        )
    if "Wpf" in peepholes:
        yield mistake(
            "the gradients of Wpi and Wpf take the new cell c[t+1]",
            parts=lambda v, s: {
                **v,
                **{
                    name: (s.da[:, n] * s.c[s.t + 1]).sum(axis=0)
                    for n, name in enumerate(("Wpi", "Wpf"))
                    if name in s.p
                },
            },
        )


def _of_the_gru(net: RecurrentNet, params: Params) -> Mistakes:
    H = net.hidden
    z, n = _rows(H, 1), _rows(H, 2)
    negate = changed(altered(z, np.negative), *STACKED)
    yield mistake("z and 1 - z change places: h = z n + (1 - z) h", p=negate, grads=negate)
    yield mistake("the reset gate is left out (always 1)", a=_open(0), da=_without(0))
    yield mistake(
        "the update gate z is left out: h = n", common=False, a=_with_gate(1, -80), da=_without(1)
    )
    yield mistake(
        "the gradient of z has the wrong sign: n - h for h - n",
        da=_scaled(1, lambda s: (np.ones(1, s.x.dtype), -np.ones(1, s.x.dtype))),
    )
    yield mistake(
        "the gradient of z leaves out n: h for h - n",
        da=_scaled(1, lambda s: (s.h[s.t] - s.v[s.t][:, 2], s.h[s.t])),
    )
    yield mistake(
        "the gradient's share z e of the old state is not carried",
        carry=lambda v, s: (v[0] - s.v[s.t][:, 1] * s.e, v[1]),
    )
    yield mistake(
        "the old state's gradient is carried without the factor z",
        carry=lambda v, s: (v[0] + (1 - s.v[s.t][:, 1]) * s.e, v[1]),
    )
    if "bhn" not in params:
        yield mistake(
            "the GRU resets after the product, not before",
            p=lambda p, s: {**p, "bhn": np.zeros(H, p["bh"].dtype)},
            grads=lambda g, s: {name: v for name, v in g.items() if name != "bhn"},
        )
        return

    def before(p: Params, s: Pass) -> Params:
        return {name: value for name, value in p.items() if name != "bhn"}

    def folded(p: Params, s: Pass) -> Params:
        p = {**p, "bh": p["bh"].copy()}
        p["bh"][n] += p["bhn"]
        return p

    yield mistake("the GRU resets the state before the product, not after", p=before)
    yield mistake(
        "the GRU resets the state before the product, and dbhn is zero",
        p=before,
        grads=lambda g, s: {**g, "bhn": np.zeros_like(g["bh"][n])},
    )
    yield mistake(
        "the GRU resets the state before the product, with bhn added to the bias",
        p=lambda p, s: before(folded(p, s), s),
        grads=lambda g, s: {**g, "bhn": g["bh"][n].copy()},
    )
    yield mistake(
        "bhn is added outside the reset gate",
        p=lambda p, s: {**folded(p, s), "bhn": 0 * p["bhn"]},
        grads=lambda g, s: {**g, "bhn": g["bh"][n].copy()},
    )
    yield mistake("the bias bhn is left out", p=changed(lambda b: 0 * b, "bhn"))
    yield mistake("the gradient of Whn h leaves out the reset gate", rec=lambda v, s: s.da)
    yield mistake(
        "the gradient of bhn leaves out the reset gate",
        parts=lambda v, s: {**v, "bhn": s.da[:, 2].sum(axis=0)},
    )
    yield mistake(
        "the reset gate's gradient leaves out bhn",
        da=_scaled(0, lambda s: (s.u[s.t], s.u[s.t] - s.p["bhn"])),
    )
