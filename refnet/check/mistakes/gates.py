"""Mistakes in the cells: other activations, other gates, gates in another order.

These have names that users know, such as the order in which Keras stacks gates; what no row here
gives is named by its formula (``refnet.check.programs.grammar``).

Checked by: tests/check/test_mistake_names.py.
"""

from collections.abc import Iterator
from itertools import combinations, permutations

from refnet.batch import Batch, Params
from refnet.check.mistakes.backward import counts
from refnet.check.mistakes.base import Mistake, Mistakes, mistake, reading
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
    """Mistakes in the activation: another function, or another derivative of it."""
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
    """Mistakes that only gated cells can have."""
    if net.cell == "rnn":
        return
    yield from of_the_order(net.gates, STACKED)
    yield from _gate_by_gate(net)
    for names in (*STACKED.split(), "Wxh and bh"):
        yield from of_the_order(net.gates, names, f" of {names} alone")
    if net.cell == "lstm":
        yield from _of_the_lstm(net)
        yield from _of_the_peepholes(params)
    else:
        yield from _of_the_gru("bhn" in params)
        yield from _of_the_reset("bhn" in params)


def orders(gates: tuple[str, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every other order of the gates, with their names in that order."""
    usual = tuple(range(len(gates)))
    for order in permutations(usual):
        if order != usual:
            yield order, ", ".join(gates[n] for n in order)


def of_the_order(gates: tuple[str, ...], stacked: str, alone: str = "") -> Mistakes:
    """Mistakes in the order in which the gates are stacked in the named parameters."""
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


def _of_the_lstm(net: RecurrentNet) -> Mistakes:
    f = f"np.s_[{net.hidden}:{2 * net.hidden}]"
    for sign, word in (("+", "added to"), ("-", "subtracted from")):
        yield reading(
            f"1 is {word} the forget gate's bias", "bh", f"put(w, {f}, w[{f}] {sign} {net.gain})"
        )


def _of_the_peepholes(params: Params) -> Mistakes:
    peepholes = [name for name in PEEPHOLES if name in params]
    if peepholes:
        nothing = "np.zeros_like(w)"
        yield reading("the peepholes are ignored", " ".join(peepholes), nothing, nothing)
        to_the_cell = "lambda line, pull: any(f.name[:2] == 'Wp' for f in pull.terms[0].factors)"
        yield counts("the cell's gradient leaves out the peepholes", to_the_cell, "0 * t")
        for name in ("Wpi", "Wpf"):
            for other in peepholes if name in peepholes else ():
                if other != name:
                    label = f"the gradient of {name} takes the gate of {other}"
                    yield taking(label, name, f"d a.{name[2]}", f"d a.{other[2]}")
        for a, b in combinations(peepholes, 2):
            swap = f"{{**v, '{a}': v['{b}'], '{b}': v['{a}']}}"
            yield mistake(f"the peepholes {a} and {b} are swapped", p=swap, grads=swap)
    if "Wpo" in peepholes:
        gate = "o = sigmoid {GATE.format(n=3)}"
        yield mistake(
            "the output gate's peephole sees the old cell c[t], not the new one",
            cell=f"relined(v, o=f'{gate} + Wpo c-')",
        )
        yield mistake(
            "the output gate's peephole is added outside the sigmoid",
            cell=f"relined(v, o=f'q{gate}; o = qo + Wpo c')",
        )
    if "Wpf" in peepholes:
        label = "the gradients of Wpi and Wpf take the new cell c[t+1]"
        edits = " + ".join(f"taking(s, '{name}', 's', 'c')" for name in ("Wpi", "Wpf"))
        yield mistake(label, pulls=f"v + {edits}")


def _of_the_gru(after: bool) -> Mistakes:
    n = "n = act Wxh2 x + bh2 + u" if after else "n = act Wxh2 x + Whh2 y + bh2"
    for label, line in (
        ("z and 1 - z change places: h = z n + (1 - z) h", "h='h = z n + (1-z) h-'"),
        ("the reset gate is left out (always 1)", f"n='{n}'"),
    ):
        yield mistake(label, cell=f"relined(v, {line})")


def _of_the_reset(after: bool) -> Mistakes:
    """Before or after the product, which of the two has a bias bhn."""
    if not after:
        yield mistake("the GRU resets after the product, not before", cell="CELLS['gru']")
        return
    label, before = "the GRU resets the state before the product", "CELLS['gru_before']"
    yield mistake(f"{label}, not after", cell=before)
    zero = "{**v, 'bhn': np.zeros_like(s.p['bhn'])}"
    yield mistake(f"{label}, and dbhn is zero", cell=before, grads=zero)
    added = "v = r y; n = act Wxh2 x + Whh2 v + bh2 + bhn"
    yield mistake(f"{label}, with bhn added to the bias", cell=f"relined(v, n='{added}')")
    outside = "n = act Wxh2 x + bh2 + bhn + r w"
    yield mistake("bhn is added outside the reset gate", cell=f"relined(v, n='{outside}')")
    yield reading("the bias bhn is left out", "bhn", "0 * w")
    label = "the gradient of Whn h leaves out the reset gate"
    yield taking(label, "d u", "r")
    yield taking(f"{label}, though not that of bhn", "d w", "d u", "d a.n")
    yield taking("the gradient of bhn leaves out the reset gate", "bhn", "d u", "d a.n")


def taking(label: str, target: str, old: str, new: str = "") -> Mistake:
    """The mistake that the pulls to ``target`` have the factor ``new`` for ``old``, or none."""
    return mistake(label, pulls=f"v + taking(s, '{target}', '{old}', '{new}')")
