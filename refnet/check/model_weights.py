"""Which weights of an ONNX model are not those of the net that was meant, and what became of them.

Both are constants, so that this is read from them; ``models`` asks whether it explains the outputs.

Checked by: tests/check/test_onnx_models.py::test_weights_that_were_not_meant_have_a_name.
"""

from collections.abc import Iterator

import numpy as np

from refnet.batch import Array, Params
from refnet.check.mistakes.gates import orders
from refnet.interop.onnx_graph import RECURRENT, constants
from refnet.interop.onnx_models import affine
from refnet.interop.onnx_nodes import Proto

__all__ = ["GATES", "with_their_weights"]

GATES = {"RNN": ("h",), "LSTM": ("i", "o", "f", "c"), "GRU": ("z", "r", "h")}
"""The gates as ONNX's operators stack them."""
MULTIPLES = {0.0: "zero", 2.0: "doubled", 0.5: "halved", -1.0: "of the wrong sign"}
NEAR = 1e-5
"""How far off a weight may be, of the largest of its matrix: a file may have rounded it."""


def with_their_weights(proto: Proto, definition: Proto) -> Iterator[tuple[str, Proto]]:
    """The ``definition``, made of ``proto`` by ``models.meant``, with the weights of ``proto``, and
    in words which of them differ; nothing if none do."""
    copy = type(proto)()
    copy.CopyFrom(definition)
    known, said = constants(definition), []
    pairs = [*zip(_recurrent(copy), _recurrent(proto))]
    for number, (node, theirs) in enumerate(pairs, 1):
        right, given = _gate_by_gate(node, node, known), _gate_by_gate(theirs, node, known)
        layer = f" of layer {number}" * (len(pairs) > 1)
        changes = {name: _change(given[name], right[name], GATES[node.op_type]) for name in given}
        said += [f"{name}{layer} {how}" for name, how in changes.items() if how]
        places = [*theirs.input][1:4]
        node.input[1 : 1 + len(places)] = places
        node.input[1 + len(places) : 4] = [""] * (3 - len(places))
    for head, theirs in zip(*([*affine([*p.graph.node], known)][-1:] for p in (copy, proto))):
        parts = zip(("matrix", "bias"), theirs.values(known), head.values(known))
        changes = {name: _change(a[None, None], b[None, None], ()) for name, a, b in parts}
        said += [f"the read-out's {name} {how}" for name, how in changes.items() if how]
        head.product.input[1] = theirs.product.input[1]
        if head.added is not None:
            head.added.input[head.place] = theirs.added.input[theirs.place]
    if said:
        yield "; ".join(said), copy


def _recurrent(proto: Proto) -> list[Proto]:
    return [node for node in proto.graph.node if node.op_type in RECURRENT]


def _gate_by_gate(node: Proto, meant: Proto, known: Params) -> Params:
    """The weights of a node, (directions, G, H, ...), as far as they are constants. Its two biases
    are added, except where a reset comes between them."""
    names = [*node.input, "", ""]
    if not {*names[1:3]} <= {*known}:
        return {}
    G, (W, R) = len(GATES[node.op_type]), (known[name] for name in names[1:3])
    D, H = len(R), R.shape[-1]
    parts = {"W": W.reshape(D, G, H, -1), "R": R.reshape(D, G, H, H)}
    both = known[names[3]] if names[3] in known else np.zeros((D, 2 * G * H), R.dtype)
    of_W, of_R = both.reshape(D, 2, G, H).swapaxes(0, 1)
    if any(entry.name == "linear_before_reset" and entry.i for entry in meant.attribute):
        parts["the bias that the reset multiplies"] = of_R[:, 2:]
        of_R = np.concatenate([of_R[:, :2], 0 * of_R[:, 2:]], axis=1)
    return {**parts, "the bias": of_W + of_R}


def _change(a: Array, b: Array, gates: tuple[str, ...]) -> str:
    """What made ``a`` of ``b``, which both are (directions, G, ...); "" if they are the same."""

    def near(other: Array) -> bool:
        return bool(other.shape == a.shape and abs(a - other).max() <= NEAR * abs(b).max())

    if a.shape != b.shape or near(b):
        return ""
    for order, names in orders(gates) if b.shape[1] == len(gates) else ():
        if near(b[:, order]):
            return f"has its gates in the order {names}, not {', '.join(gates)}"
    for factor, text in MULTIPLES.items():
        if near(factor * b):
            return f"is {text}"
    if b.ndim == 4 and near(b.swapaxes(-1, -2)):
        return "is transposed" + ", gate by gate" * (len(gates) > 1)
    if near(b[::-1]):
        return "is that of the other direction"
    axes = tuple(n for n in range(b.ndim) if n != 1)
    wrong = np.flatnonzero(abs(a - b).max(axis=axes) > NEAR * abs(b).max())
    few = len(wrong) < b.shape[1] == len(gates)
    return f"differs in {', '.join(gates[n] for n in wrong)}" if few else "differs"
