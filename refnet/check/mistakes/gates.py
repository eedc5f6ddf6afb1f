"""Mistakes in the cells: other activations, other gates, gates in another order."""

from collections.abc import Iterator
from itertools import combinations, permutations

from refnet.batch import Batch, Params
from refnet.check.mistakes.base import Mistakes, mistake, reading
from refnet.check.naive import PEEPHOLES
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["of_the_activation", "of_the_gates", "of_the_order", "orders"]

STACKED = "Whh Wxh bh"
KNOWN = {
    "i, o, f, g": " (as ONNX stacks them)",
    "i, g, f, o": " (as TensorFlow's BasicLSTMCell stacks them)",
    "g, i, f, o": " (as Chainer stacks them)",
    "z, r, n": " (as Keras and ONNX stack them)",
}


def of_the_activation(net: Net) -> Mistakes:
    """Another function, or another derivative of it."""
    act, name = net.activation, net.activation.name
    if not act.start:
        for other in ACTIVATIONS.values():
            if other.name != name and not other.start and not other.pairs:
                entry = f"ACTIVATIONS['{other.name}']"
                yield mistake(
                    f"the activation is {other.name} instead of {name}",
                    act=f"{entry}.forward(a, {{}})",
                    act_pull=f"{entry}.backward(a, h, dh, {{}})[0]",
                )
    if name == "tanh":
        for label, formula in (
            ("x (27 + x^2) / (27 + 9 x^2)", "a * (27 + a * a) / (27 + 9 * a * a)"),
            ("x (15 + x^2) / (15 + 6 x^2)", "a * (15 + a * a) / (15 + 6 * a * a)"),
        ):
            for end, text in (("", formula), (", at most 1", f"np.clip({formula}, -1, 1)")):
                yield mistake(f"tanh(x) is approximated by {label}{end}", common=False, act=text)
    if name == "identity":
        return
    slopes = {
        "is taken of a where h belongs": "f(a, a, dh)",
        "is taken of h where a belongs": "f(h, s.act(h), dh)",
        "is left out": "dh",
    }
    right = "f(*right_of_zero(a, h), dh)"
    if name == "tanh":
        slopes["is 1 - h, without the square"] = "(1 - h) * dh"
        slopes["is (1 - h)^2, not 1 - h^2"] = "(1 - h) ** 2 * dh"
        slopes["is 1 + h^2, not 1 - h^2"] = "(1 + h * h) * dh"
    if name in ("relu", "leaky_relu", "prelu"):
        slopes["at 0 is that from the right, 1"] = right
    if name in ("relu", "leaky_relu"):
        slopes["at 0 is the mean of those from both sides"] = f"(f(a, h, dh) + {right}) / 2"
    for label, slope in slopes.items():
        yield mistake(f"{name}' {label}", act_pull=slope)


def of_the_gates(net: RecurrentNet, params: Params, batch: Batch) -> Mistakes:
    """What only gated cells have."""
    if net.cell == "rnn":
        return
    yield from of_the_order(net.gates, STACKED)
    yield from _gate_by_gate(net)
    for name in STACKED.split():
        yield from of_the_order(net.gates, name)
    if net.cell == "lstm":
        yield from _of_the_lstm(net, params)
        yield from _of_the_peepholes(params)
    else:
        yield from _of_the_gru(net.hidden)
        yield from _of_the_reset(net.hidden, "bhn" in params)


def orders(gates: tuple[str, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every other order of the gates, and their names in it."""
    usual = tuple(range(len(gates)))
    for order in permutations(usual):
        if order != usual:
            yield order, ", ".join(gates[n] for n in order)


def of_the_order(gates: tuple[str, ...], stacked: str) -> Mistakes:
    """The gates in another order in the parameters of these names."""
    alone = "" if " " in stacked else f" of {stacked} alone"
    for order, names in orders(gates):
        source = KNOWN.get(names, "")
        # block m is their gate order[m]: gate n finds its rows in block order.index(n)
        there = tuple(order.index(n) for n in range(len(gates)))
        yield reading(
            f"the gates{alone} are read in the order {names}{source}",
            stacked,
            f"taken(w, {there})",
            f"taken(w, {order})",
            common=bool(source) and not alone,
        )


def _at(gate: int, value: float) -> str:
    """The gate at a value. The sigmoid of 100 is 1 in any float type."""
    return f"put(v, np.s_[:, {gate}], {value})"


def _gate_by_gate(net: RecurrentNet) -> Mistakes:
    G, H = len(net.gates), net.hidden
    if H > 1:
        turned = "w.reshape({}, {}, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)"
        yield reading(
            "the gates are interleaved, unit by unit",
            STACKED,
            turned.format(H, G),
            turned.format(G, H),
        )


def _rows(H: int, n: int) -> str:
    """The rows of gate n in a stacked array."""
    return f"np.s_[{n * H}:{(n + 1) * H}]"


def _of_the_lstm(net: RecurrentNet, params: Params) -> Mistakes:
    i, f, _ = (_rows(net.hidden, n) for n in range(3))
    for sign, word in (("+", "added to"), ("-", "subtracted from")):
        yield reading(
            f"1 is {word} the forget gate's bias", "bh", f"put(w, {f}, w[{f}] {sign} {net.gain})"
        )
    for label, n in (("forget", 1), ("input", 0), ("output", 3)):
        yield mistake(f"the {label} gate is left out (always 1)", a=_at(n, 100), da=_at(n, 0))
    if not any(name in params for name in PEEPHOLES):
        for source, lost, name in (
            (i, f, "the forget gate is 1 - i, not its own"),
            (f, i, "the input gate is 1 - f, not its own"),
        ):
            yield reading(
                name,
                STACKED,
                f"put(w, {lost}, -w[{source}])",
                f"put(put(w, {source}, w[{source}] - w[{lost}]), {lost}, 0)",
            )


def _of_the_peepholes(params: Params) -> Mistakes:
    peepholes = [name for name in PEEPHOLES if name in params]
    old = "{**v, 'Wpo': summed(s, 3, s.c[s.t])}"
    if peepholes:
        nothing = "np.zeros_like(w)"
        yield reading("the peepholes are ignored", " ".join(peepholes), nothing, nothing)
        yield mistake(
            "the cell's gradient leaves out the peepholes",
            q="v - s.p['Wpo'] * s.da[:, 3] if 'Wpo' in s.p else v",
            carry="(v[0], s.v[s.t][:, 1] * s.full)",
        )
        for name in ("Wpi", "Wpf"):
            for other in peepholes if name in peepholes else ():
                if other != name:
                    part = f"summed(s, {PEEPHOLES[other]}, s.c[s.t])"
                    label = f"the gradient of {name} takes the gate of {other}"
                    yield mistake(label, parts=f"{{**v, '{name}': {part}}}")
        for a, b in combinations(peepholes, 2):
            swap = f"{{**v, '{a}': v['{b}'], '{b}': v['{a}']}}"
            yield mistake(f"the peepholes {a} and {b} are swapped", p=swap, grads=swap)
    if "Wpo" in peepholes:
        yield mistake(
            "the output gate's peephole sees the old cell c[t], not the new one",
            peep="s.c[s.t]",
            q="v - s.p['Wpo'] * s.da[:, 3]",
            carry="(v[0], v[1] + s.p['Wpo'] * s.da[:, 3])",
            parts=old,
        )
        out = "s.k[s.t] * s.e"
        yield mistake(
            "the output gate's peephole is added outside the sigmoid",
            peep="0 * v",
            o="v + s.p['Wpo'] * s.c[-1]",
            q=f"v + s.p['Wpo'] * ({out} - s.da[:, 3])",
            parts=f"{{**v, 'Wpo': ({out} * s.c[s.t + 1]).sum(axis=0)}}",
        )
    if "Wpf" in peepholes:
        names = {name: n for n, name in enumerate(("Wpi", "Wpf")) if name in peepholes}
        new = ", ".join(f"'{name}': summed(s, {n}, s.c[s.t + 1])" for name, n in names.items())
        yield mistake(
            "the gradients of Wpi and Wpf take the new cell c[t+1]", parts=f"{{**v, {new}}}"
        )


def _of_the_gru(H: int) -> Mistakes:
    negated = "put(w, {0}, -w[{0}])".format(_rows(H, 1))
    label = "z and 1 - z change places: h = z n + (1 - z) h"
    yield reading(label, STACKED, negated, negated)
    yield mistake("the reset gate is left out (always 1)", a=_at(0, 100), da=_at(0, 0))
    yield mistake("the update gate z is left out: h = n", common=False, a=_at(1, -80), da=_at(1, 0))


def _of_the_reset(H: int, after: bool) -> Mistakes:
    """Before or after the product, which of the two has a bias bhn."""
    n = _rows(H, 2)
    if not after:
        yield mistake(
            "the GRU resets after the product, not before",
            p=f"{{**v, 'bhn': np.zeros({H}, v['bh'].dtype)}}",
            grads="without(v, 'bhn')",
        )
        return
    before, label = "without(v, 'bhn')", "the GRU resets the state before the product"
    added = f"'bh': put(v['bh'], {n}, v['bh'][{n}] + v['bhn'])"
    copied = f"{{**v, 'bhn': v['bh'][{n}].copy()}}"
    yield mistake(f"{label}, not after", p=before)
    yield mistake(
        f"{label}, and dbhn is zero", p=before, grads=f"{{**v, 'bhn': np.zeros_like(v['bh'][{n}])}}"
    )
    yield mistake(
        f"{label}, with bhn added to the bias", p=f"{{**{before}, {added}}}", grads=copied
    )
    yield mistake(
        "bhn is added outside the reset gate",
        p=f"{{**v, {added}, 'bhn': 0 * v['bhn']}}",
        grads=copied,
    )
    yield reading("the bias bhn is left out", "bhn", "0 * w")
    label = "the gradient of Whn h leaves out the reset gate"
    yield mistake(label, rec="s.da")
    yield mistake(
        f"{label}, though not that of bhn",
        rec="s.da",
        parts="{**v, 'bhn': summed(s, 2, s.v[s.t][:, 0])}",
    )
    yield mistake(
        "the gradient of bhn leaves out the reset gate", parts="{**v, 'bhn': summed(s, 2, 1)}"
    )
