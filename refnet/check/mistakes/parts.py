"""Mistakes in the products of a gate's gradient: another slope, another operand, another cotangent.

A gate v multiplies an operand in the forward pass. The gradient of its pre-activation is its slope
times the operand times the cotangent of the product. Each of the three can be another array of the
same shape: that of another gate, of another step, or none.
"""

from collections.abc import Iterator

from refnet.check.mistakes.base import Mistakes, mistake
from refnet.nets.recurrent import RecurrentNet

__all__ = ["of_the_carry", "of_the_products"]

AT = "s.v[s.t][:, {}]"
STATES = {"h[t]": "s.h[s.t]", "h[t+1]": "s.h[s.t + 1]"}
CELLS = {"c[t]": "s.c[s.t]", "c[t+1]": "s.c[s.t + 1]", "tanh(c[t+1])": "s.k[s.t]"}
LSTM = {"i": ("g", "dc"), "f": ("c[t]", "dc"), "g": ("i", "dc"), "o": ("tanh(c[t+1])", "dh")}
"""Of each gate: the operand, and the product's cotangent."""
GRU = {"r": ("u", "du"), "z": ("h[t] - n", "dh"), "n": ("1 - z", "dh")}


def of_the_products(net: RecurrentNet) -> Mistakes:
    """Every gate's slope, operand and cotangent."""
    gates = net.gates
    values = {name: AT.format(n) for n, name in enumerate(gates)}
    lstm = net.cell == "lstm"
    operands = {**values, **STATES, **(CELLS if lstm else {})}
    if not lstm:
        h, n, z = STATES["h[t]"], values["n"], values["z"]
        operands |= {
            "h[t] - n": f"({h} - {n})",
            "h[t+1] - n": f"({STATES['h[t+1]']} - {n})",
            "1 - z": f"(1 - {z})",
            "-n": f"-{n}",
        }
        if net.cell == "gru":
            operands |= {"u": "s.u[s.t]", "u without bhn": "(s.u[s.t] - s.p['bhn'])"}
    for number, (gate, (right, cotangent)) in enumerate((LSTM if lstm else GRU).items()):
        here = f"if s.gate == {number} else v"
        shown = right if right != "u" else ("u = Whn h[t] + bhn" if net.cell == "gru" else "h[t]")
        for other, text in {**operands, "1": "1 + 0 * v"}.items():
            if other not in (right, shown):
                yield mistake(
                    f"the gradient of gate {gate} takes {other} for {shown}",
                    common=False,
                    operand=f"{text} {here}",
                )
        if cotangent != "dh":
            yield mistake(
                f"the gradient of gate {gate} takes dh for {cotangent}",
                common=False,
                cotangent=f"s.e {here}",
            )
        if lstm and cotangent == "dh":
            yield mistake(
                f"the gradient of gate {gate} takes the dc of the next step for dh",
                common=False,
                cotangent=f"s.q {here}",
            )
        for name, text in _slopes(net, gate, values):
            yield mistake(
                f"the slope of gate {gate} {name}",
                common=False,
                gate=f"({text}) * s.product_of {here}",
            )
        yield mistake(f"the gradient of gate {gate} has the wrong sign", gate=f"-v {here}")


def _slopes(net: RecurrentNet, gate: str, values: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Other slopes than the gate's: what they are, and their formula."""
    v, gates = values[gate], net.gates
    a = f"s.a[s.t][:, {gates.index(gate)}]"
    squashed = "n" if net.cell != "lstm" else "g"
    if gate == squashed:
        right, lstm = f"1 - {gate}^2", net.cell == "lstm"
        if lstm:  # in a GRU they are those of the activation
            yield "is left out", "1"
        if net.activation.name != "tanh":
            return
        if lstm:
            yield f"is 1 - {gate}, without the square", f"1 - {v}"
            yield f"is (1 - {gate})^2, not {right}", f"(1 - {v}) ** 2"
        yield f"is {gate}^2, not {right}", f"{v} ** 2"
        yield f"is taken of the pre-activation: 1 - a^2, not {right}", f"1 - {a} ** 2"
        yield f"is that of a sigmoid: {gate} (1 - {gate}), not {right}", f"{v} * (1 - {v})"
        for other, w in values.items():
            if other != gate:
                yield f"is 1 - {other}^2, not {right}", f"1 - {w} ** 2"
        if lstm:
            yield f"is that of tanh(c[t+1]), not {right}", "1 - s.k[s.t] ** 2"
        return
    yield "is left out", "1"
    right = f"{gate} (1 - {gate})"
    yield f"is {gate}, not {right}", v
    yield f"is 1 - {gate}, not {right}", f"1 - {v}"
    yield f"is {gate}^2, not {right}", f"{v} ** 2"
    yield f"is that of tanh: 1 - {gate}^2, not {right}", f"1 - {v} ** 2"
    yield f"is taken of the pre-activation: a (1 - a), not {right}", f"{a} * (1 - {a})"
    for other, w in values.items():
        if other != gate:
            yield f"is that of {other}: {other} (1 - {other}), not {right}", f"{w} * (1 - {w})"
            yield f"is {gate} (1 - {other}), not {right}", f"{v} * (1 - {w})"
            yield f"is {other} (1 - {gate}), not {right}", f"{w} * (1 - {v})"


def of_the_carry(net: RecurrentNet) -> Mistakes:
    """What the gradient of the old state or cell is multiplied by."""
    if net.cell == "rnn":
        return
    lstm, number = net.cell == "lstm", 1
    right, whole = ("f", "s.full") if lstm else ("z", "s.e")
    v = AT.format(number)
    others = {name: AT.format(n) for n, name in enumerate(net.gates) if n != number}
    others |= {
        "1": "1",
        f"1 - {right}": f"(1 - {v})",
        f"{right}[t-1]": f"s.v[max(s.t - 1, 0)][:, {number}]",
        f"{right}[t+1]": f"s.v[min(s.t + 1, len(s.x) - 1)][:, {number}]",
    }
    what = "the gradient of the cell" if lstm else "the state's own gradient"
    for other, text in others.items():
        change = f"({text} - {v}) * {whole}"
        yield mistake(
            f"{what} is carried by {other}, not {right}",
            common=False,
            carry=f"(v[0], v[1] + {change})" if lstm else f"(v[0] + {change}, v[1])",
        )
    if net.cell == "gru_before":
        for share, text in (("is not carried", "0"), ("is carried without r", "s.w")):
            yield mistake(
                f"the reset state's gradient {share}",
                common=False,
                carry=f"(v[0] - s.v[s.t][:, 0] * s.w + {text}, v[1])",
            )
    if lstm:
        ways = {f"reaches c by {name}, not o": AT.format(n) for n, name in enumerate(net.gates[:3])}
        ways |= {
            "does not reach c": "0",
            "reaches c by 1, not o": "1",
            "reaches c by o[t-1], not o": "s.v[max(s.t - 1, 0)][:, 3]",
            "reaches c by o[t-1], not o (at the first step the last one)": "s.v[s.t - 1][:, 3]",
            "reaches c by o[t+1], not o": "s.v[min(s.t + 1, len(s.x) - 1)][:, 3]",
        }
        for how, text in ways.items():
            change = f"s.k_pull(s.c[s.t + 1], s.k[s.t], ({text} - {AT.format(3)}) * s.e)"
            yield mistake(f"the gradient of h {how}", common=False, q=f"v + {change}")
    else:
        reset = "put(s.da, np.s_[:, 2], s.v[s.t][:, 0] * s.da[:, 2]).reshape(len(s.e), -1)"
        for name, text in ("Wxh", f"{reset}.T @ s.x[s.t]"), ("bh", f"{reset}.sum(axis=0)"):
            label = f"the gradient of {name} is that of the reset gate's product in gate n"
            yield mistake(label, common=False, parts=f"{{**v, '{name}': {text}}}")
