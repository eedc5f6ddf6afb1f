"""Whole ONNX models judged: what a runtime computes of a graph by the definition of its operators,
or by that of the net that its author meant.

Checked by: tests/check/test_onnx_models.py.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from refnet.batch import Array, Params
from refnet.check.adapters import onnx_nets
from refnet.check.mistakes.gates import orders
from refnet.check.model_weights import GATES, with_their_weights
from refnet.check.noise import spread
from refnet.check.search import Search
from refnet.check.survey import Rows, by_runtimes
from refnet.check.tables import Row
from refnet.check.verdict import NOT_ROUNDING, Verdict, judged
from refnet.common.arguments import choice
from refnet.exact.convert import Lift, in_balls, in_float64
from refnet.exact.enclose import Progress
from refnet.exact.precision import Enclosures, Limits, float_values, search
from refnet.interop import resolved, unprojected
from refnet.interop.files import read
from refnet.interop.onnx_graph import RECURRENT, constants, evaluate, fitting, load
from refnet.interop.onnx_models import affine
from refnet.interop.onnx_nodes import OPERATORS, Proto, onnx_package, packed, to_onnx
from refnet.nets.stacked import StackedNet
from refnet.runs.read import reading

__all__ = ["CertifiedModel", "certify_model", "judged_rows", "meant", "readings", "rows"]

FEW = 5
"""Fewer steps and sequences than these are tried where a model is wrong."""
LIMITS: Limits = {"bits": 128, "max_bits": 8192, "max_seconds": 600}
"""Of the certificate of a model's outputs."""


RESET = {"gru": ": linear_before_reset is 1", "gru_before": ": linear_before_reset is 0"}
"""The attribute of ONNX's GRU that says which of the two it is."""
INPUTS = {
    3: "the biases are",
    4: "sequence_lens is",
    5: "the initial state is",
    6: "the initial cell is",
    7: "the peepholes are",
}


@dataclass(frozen=True, eq=False)
class CertifiedModel:
    """The outputs of a graph with proved enclosures, and the graph on numbers of any kind.
    ``axes``: what the axes of its outputs count, as far as it is known, by their lengths."""

    run: Callable[[Lift], Params]
    outputs: Enclosures
    axes: dict[int, str]

    def named(self) -> Enclosures:
        """The outputs by name."""
        return self.outputs


def certify_model(proto: Proto, inputs: Params, progress: Progress | None = None) -> CertifiedModel:
    """What the operators of a model's graph give by their definition, certified.

    Raises ValueError for a graph without outputs of float32 or float64.

    Checked by: tests/check/test_onnx_models.py.
    """
    floats = onnx_package().TensorProto
    names = [
        entry.name
        for entry in proto.graph.output
        if entry.type.tensor_type.elem_type in (floats.FLOAT, floats.DOUBLE)
    ]
    if not names:
        raise ValueError("the model has no output of float32 or float64")
    plain = {
        name for node in proto.graph.node if node.op_type in RECURRENT for name in node.input[1:3]
    }

    def run(lifted: Lift) -> Params:
        def of_kind(array: Array, name: str) -> Array:
            value = lifted(array, name)  # of runs, weights that enter products need no copies
            return np.asarray(array, float) if value.dtype.kind == "V" and name in plain else value

        return evaluate(proto, inputs, names, of_kind)

    def on_balls() -> Params:
        results = run(in_balls)
        return {name: value.astype(object, copy=False) for name, value in results.items()}

    outputs, _ = search(on_balls, "check onnx", LIMITS, 4, progress)
    return CertifiedModel(run, outputs, {})


def readings(
    proto: Proto, definition: Proto, inputs: Params, names: list[str]
) -> Iterator[tuple[str, Params]]:
    """What the meant model (``definition``) would give with other weights, those of ``proto``; and
    a runtime that ignores or misreads something of its recurrent layers."""
    for label, changed in with_their_weights(proto, definition):
        yield label, evaluate(changed, inputs, names, in_float64)
    changes: dict[str, str | int | tuple[int, ...]] = {
        f"the layers are computed as {cell}{RESET.get(cell, '')}": cell for cell in OPERATORS
    }
    changes |= {"the activations are ignored": "activation", "clip is ignored": "clip"}
    changes |= {f"{what} ignored": place for place, what in INPUTS.items()}
    for gates in GATES.values():
        for order, text in orders(gates):
            changes[f"the gates are read in the order {text}, not {', '.join(gates)}"] = order
    known = constants(definition)
    for label, change in changes.items():
        copy = type(proto)()
        copy.CopyFrom(definition)
        for node in copy.graph.node:
            if node.op_type in RECURRENT:
                _misread(copy, node, change, known)
        if copy != definition:
            with suppress(ValueError):  # a change that leaves no model
                yield label, evaluate(copy, inputs, names, in_float64)


def _misread(proto: Proto, node: Proto, change: str | int | tuple[int, ...], known: Params) -> None:
    """Computes a node as another cell, without an attribute or input, or with other gates."""
    if isinstance(change, int):
        if len(node.input) > change:
            node.input[change] = ""
    elif isinstance(change, tuple):
        H = known[node.input[2]].shape[-1] if node.input[2] in known else 0
        for place in range(1, min(4, len(node.input)) if H else 0):
            value = known.get(node.input[place])
            if value is not None and value.shape[1] % (len(change) * H) == 0:
                blocks = value.reshape(len(value), -1, len(change), H, *value.shape[2:])
                turned = blocks[:, :, [change.index(n) for n in range(len(change))]]
                node.input[place] = _constant(proto, turned.reshape(value.shape))
    elif OPERATORS.get(change) == node.op_type:
        _as_cell(node, change)
    elif change not in OPERATORS:
        _without(node, change)


def meant(proto: Proto, intended: str) -> Proto:
    """The model with the recurrent layers that were meant: ``intended`` is a cell, or the file of
    a net (``refnet.interop.files.read``) whose weights the layers and the read-out then have.

    Raises ValueError for a model with other operators or another number of layers.
    """
    net, params = None, Params()
    cell = intended
    if intended not in OPERATORS:
        if not Path(intended).suffix:
            choice("--as", intended, (*OPERATORS, "FILE"))
        flat, params, vectors = resolved(*read(intended))
        if not isinstance(flat, StackedNet):
            raise ValueError(f"{intended} is a feedforward net; need recurrent layers")
        net, params = unprojected(flat, params)
        cell = net.cell
    copy = type(proto)()
    copy.CopyFrom(proto)
    nodes = [node for node in copy.graph.node if node.op_type in RECURRENT]
    kinds = {node.op_type for node in nodes}
    if kinds != {OPERATORS[cell]}:
        raise ValueError(
            f"the model has {', '.join(kinds) or 'no recurrent layer'}; need {OPERATORS[cell]} "
            f"for {cell}"
        )
    for node in nodes:
        _reset(node, cell)
    if net is None:
        return copy
    layers = packed(net, params)
    if len(layers) != len(nodes):
        raise ValueError(f"the model has {len(nodes)} recurrent layers, {intended} {len(layers)}")
    for node, (layer, p) in zip(nodes, layers):
        while len(node.input) < 4:
            node.input.append("")
        for place, name in enumerate("WRB", 1):
            node.input[place] = _constant(copy, to_onnx(layer, p)[name])
    if vectors is not None:
        for node in copy.graph.node:
            if node.op_type == "Gather" and node.input[1] in {x.name for x in copy.graph.input}:
                node.input[0] = _constant(copy, vectors)
    heads = affine([*copy.graph.node], constants(proto))[-1:] if "Why" in params else []
    for head in heads:
        head.product.input[1] = _constant(copy, params["Why"] if head.rows else params["Why"].T)
        if head.added is not None:
            head.added.input[head.place] = _constant(copy, params["by"])
    return copy


def _reset(node: Proto, cell: str) -> None:
    """Give a node the attributes of a cell: direction, size, layout and, of an RNN, the
    activation are the model's."""
    names = ["direction", "hidden_size", "layout", *["activations"] * (cell == "rnn")]
    rest = [entry for entry in node.attribute if entry.name in names]
    del node.attribute[:]
    node.attribute.extend(rest)
    _as_cell(node, cell)


def _without(node: Proto, *starts: str) -> None:
    """Deletes the attributes whose names start so."""
    rest = [entry for entry in node.attribute if not entry.name.startswith(starts)]
    del node.attribute[:]
    node.attribute.extend(rest)


def _as_cell(node: Proto, cell: str) -> None:
    _without(node, "input_forget", "linear_before_reset")
    make = onnx_package().helper.make_attribute
    if cell == "cifg":
        node.attribute.append(make("input_forget", 1))
    if cell == "gru":
        node.attribute.append(make("linear_before_reset", 1))


def _constant(proto: Proto, value: Array) -> str:
    name = f"meant {len(proto.graph.initializer)}"
    tensor = onnx_package().numpy_helper.from_array(np.ascontiguousarray(value), name)
    proto.graph.initializer.append(tensor)
    return name


def rows(
    path: Path,
    T: int,
    B: int,
    seed: int = 0,
    progress: Progress | None = None,
    intended: str | None = None,
) -> Rows:
    """A model file's outputs by both runtimes, on inputs from N(0, 1), symbols or lengths; judged
    by its operators' definition, or by the net that was ``intended``."""
    proto = load(path)
    definition = proto if intended is None else meant(proto, intended)
    with reading(path, "need other --steps or --batch, or another model"):
        inputs = fitting(proto, T, B, np.random.default_rng(seed))
    cells = {node.op_type for node in proto.graph.node if node.op_type in RECURRENT}
    what = f"{path.name}: {intended or ', '.join(sorted(cells)) or 'no recurrent layer'}"
    for row in judged_rows(proto, definition, inputs, what, T, B, progress):
        if row["verdict"] == NOT_ROUNDING:
            row["where"] = (*row["where"], *_smallest(proto, definition, row, seed))
        yield row


def _smallest(proto: Proto, definition: Proto, wrong: Row, seed: int) -> Iterator[str]:
    """The fewest sequences and steps at which a row's outputs are not rounding, either."""
    for B, T in product(range(1, min(wrong["B"], FEW)), range(1, min(wrong["T"], FEW))):
        with suppress(ValueError):  # a model may be for other sizes
            inputs = fitting(proto, T, B, np.random.default_rng(seed))
            for row in judged_rows(proto, definition, inputs, "", T, B):
                if row["verdict"] == NOT_ROUNDING and row["framework"] == wrong["framework"]:
                    yield f"the smallest sizes at which it still shows: T = {T}, B = {B}"
                    return


def judged_rows(
    proto: Proto,
    definition: Proto,
    inputs: Params,
    what: str,
    T: int,
    B: int,
    progress: Progress | None = None,
) -> Rows:
    """A row for each runtime on ``what`` it computes of a model, judged by what the operators of
    ``definition`` give: where an output is wrong, and what explains it."""
    certified = certify_model(definition, inputs, progress)
    if B != T:
        certified.axes.update({B: "example", T: "step"})
    true, known = float_values(certified.named()), constants(proto)
    kinds = {value.dtype for value in known.values() if value.dtype.kind == "f"}
    dtype = min(kinds, default=np.dtype(np.float32))
    sigma = spread(certified, dtype)
    nodes = [node for node in proto.graph.node if node.op_type in RECURRENT]
    hidden = [known[node.input[2]].shape[-1] for node in nodes if node.input[2] in known]

    def results(runtime: str) -> Params:
        return dict(zip(true, onnx_nets.session_run(proto, [*true], inputs, runtime)))

    def explain(given: Params, wrong: list[str], sigma: Params, u: float) -> str:
        with np.errstate(all="ignore"):
            search = Search(SimpleNamespace(true=true), given, {*wrong}, sigma, u)
            return search.best(readings(proto, definition, inputs, [*true]))

    def verdict(theirs: Params) -> Verdict:
        return judged(theirs, certified, {"": dtype}, sigma, "", tuple(true), explain)

    H = hidden[0] if len({*hidden}) == 1 else ", ".join(map(str, hidden)) or 0
    yield from by_runtimes(results, verdict, what=what, dtype=dtype, T=T, H=H, B=B)
