"""Nets in other frameworks' terms: their names, shapes and orders of the gates, in and out.

A file a framework; what all of them need stands here. Checked by: tests/interop/test_travel.py.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.common.names import reference
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import HEAD, StackedNet, named


def package(name: str, extra: str = "", called: str = "") -> ModuleType:
    """An optional package's module; ImportError names the package and the extra that brings it."""
    try:
        return import_module(name)
    except ImportError:
        top = name.partition(".")[0]
        raise ImportError(
            f"this needs {called or top}: pip install 'refnet[{extra or top}]'"
        ) from None


def reorder(stacked: Array, order: tuple[int, ...], blocks: int = 0) -> Array:
    """The gates' blocks along the first axis in another order: block n is old block order[n].
    ``blocks``: how many there are, by default those that the order names."""
    size = len(stacked) // (blocks or len({*order}))
    rows: Array = stacked[np.concatenate([np.arange(n * size, (n + 1) * size) for n in order])]
    return rows


def as_stack(net: RecurrentNet, params: Params) -> tuple[StackedNet, Params]:
    """The net as a stack of one layer, and its parameters by the stack's names."""
    if isinstance(net, StackedNet):
        return net, params
    options: dict[str, Any] = {entry.name: getattr(net, entry.name) for entry in fields(net)}
    return StackedNet(**options), {
        name if name in HEAD else named(name, "_l0"): value for name, value in params.items()
    }


def bare_stack(inputs: int, hidden: int, both: bool, **options: Any) -> StackedNet:
    """A stack without read-out and loss, in one direction or ``both``."""
    outputs = (1 + both) * (options.get("projection") or hidden)
    options |= {"readout": "none", "loss": "none", "reduction": "sum", "bidirectional": both}
    return StackedNet(inputs, hidden, outputs, **options)


def refuse_states(framework: str, params: Params) -> None:
    """ValueError for initial states and peepholes that are not 0."""
    for name, value in params.items():
        if name.startswith(("Wp", "h0")) and value.any():
            what = "initial states" if name.startswith("h0") else "peepholes"
            raise ValueError(f"{framework}'s layers hold no {what}, and the net has {name}")


def two_biases(net: RecurrentNet, p: Params, numpy: ModuleType = np) -> tuple[Array, Array]:
    """The biases of the input's and of the state's product, for one cell's parameters.
    ``numpy``: the module of the arrays, NumPy or JAX's."""
    bh = p["bh"]
    second = p.get("bhh", numpy.zeros_like(bh[: 2 * net.hidden] if net.cell == "gru" else bh))
    return bh, numpy.concatenate([second, p["bhn"]]) if net.cell == "gru" else second


def split_biases(net: RecurrentNet, first: Array, second: Array) -> Params:
    """The parameters bh, bhn of a gru, and bhh where it is not 0, from a cell's two biases."""
    size = 2 * net.hidden if net.cell == "gru" else len(second)
    biases = {"bh": first, **({"bhn": second[size:]} if net.cell == "gru" else {})}
    rest = second[:size]
    return biases if rest.dtype.kind == "f" and not rest.any() else {**biases, "bhh": rest}


def initial_states(net: StackedNet, params: Params, x: Array) -> Params:
    """h0 of every cell for every sequence, zero where it is not given."""
    return {
        f"h0{suffix}": cell.initial_state(net.of(params, suffix), x)
        for suffix, cell in net.every_cell.items()
    }


class Resolved(NamedTuple):
    """A net without what only refnet has. ``embedding``: the vectors (D, W) of the symbols that
    are its inputs, or None."""

    net: StackedNet | FeedforwardNet
    params: Params
    embedding: Array | None = None


def resolved(net: Net, params: Params) -> Resolved:
    """The net as a stack, with the matrices that transitions make, the gain multiplied into
    them, and a cifg as the lstm whose forget gate has the negative pre-activation,
    ``1 - s(a) = s(-a)``. Raises ValueError for what no other framework has: a cell of your own,
    zoneout, an initial state for each sequence.

    >>> net = RecurrentNet(2, 3, 1, cell="cifg", transition="expm")
    >>> plain = resolved(net, net.init(np.random.default_rng(0)))
    >>> plain.net.cell, plain.params["Whh_l0"].shape
    ('lstm', (12, 3))

    Checked by: tests/interop/test_travel.py.
    """
    if isinstance(net, FeedforwardNet):
        p = net.matrices(params)[0]
        net = replace(net, transition=None, noise=None)
        return Resolved(net, {name: p[name] for name in net.shapes})
    if reference(net.cell) or net.zoneout:
        what = f"the cell {net.cell}" if reference(net.cell) else f"zoneout {net.zoneout}"
        raise ValueError(f"the net has {what}, which no other framework's layers have")
    stack, params = as_stack(net, params)
    p = stack.matrices(params, embedded=True)[0]
    vectors, inputs = None, stack.inputs
    if stack.embedding:
        vectors = [p[named("Wxh.E", suffix)].T for suffix in stack.cells[0]]
        if all((each == vectors[0]).all() for each in vectors):
            vectors = vectors[:1]
        for n, suffix in enumerate(stack.cells[0] if len(vectors) > 1 else ()):
            W = p[f"Wxh{suffix}"]  # of its own vectors alone
            p[f"Wxh{suffix}"] = np.concatenate([W * (m == n) for m in range(len(vectors))], axis=1)
        inputs = stack.embedding * len(vectors)
    cell = "lstm" if stack.cell == "cifg" else stack.cell
    options: dict[str, Any] = {"transition": None, "gain": 1, "noise": None, "cell": cell}
    flat = replace(stack, **options, embedding=0, inputs=inputs)
    arrays = {name: p[name] for name in HEAD if name in p}
    for suffix, cell_net in stack.every_cell.items():
        cell_p = _plain_cell(cell_net, stack.of(p, suffix), suffix)
        arrays |= {
            named(name, suffix): cell_p[name]
            for name in flat.every_cell[suffix].shapes
            if name in cell_p and name not in HEAD
        }
    return Resolved(flat, arrays, None if vectors is None else np.concatenate(vectors, axis=1))


def _plain_cell(net: RecurrentNet, p: Params, suffix: str) -> Params:
    """A cell's parameters without a gain, those of a cifg as an lstm's."""
    states = CELLS[net.cell].STATES
    if "h0" in p and p["h0"].ndim > states:
        raise ValueError(
            f"h0{suffix} has a state for each sequence; need one for all, because a model does "
            "not know the number of its sequences"
        )
    if net.gain != 1:
        p = net.layer.scaled(p)
    if net.cell != "cifg":
        return p
    with_forget = {"Wpf": -p["Wpi"]} if "Wpi" in p else {}
    for name in ("Whh", "Wxh", "bh", "bhh"):
        if name in p:
            i, rest = np.split(p[name], [net.hidden])
            with_forget[name] = np.concatenate([i, -i, rest])
    return p | with_forget


def unprojected(net: StackedNet, params: Params) -> tuple[StackedNet, Params]:
    """A net without projections that computes the same: each Whr is multiplied into the
    matrices that read the state, ``Whh Whr`` for Whh; without a read-out it becomes that.

    Raises ValueError for an initial state, which may be no projection of any.
    """
    if not net.projection:
        return net, params
    options: dict[str, Any] = {"projection": 0}
    if net.readout == "none":
        options["readout"] = "every"
        params = params | {
            "Why": np.eye(net.width, dtype=params["Whr_l0"].dtype),
            "by": np.zeros(net.width, params["Whr_l0"].dtype),
        }
    out = {"by": params["by"]}
    below: list[Array] = []
    for layer in net.cells:
        projections = []
        for suffix in layer:
            p = net.of(params, suffix)
            if "h0" in p and p["h0"].any():
                raise ValueError(f"h0{suffix} starts a state with a projection; need zeros here")
            p = {name: value for name, value in p.items() if name not in ("Whr", "h0")}
            p |= {"Whh": p["Whh"] @ params[f"Whr{suffix}"], "Wxh": _through(p["Wxh"], below)}
            projections.append(params[f"Whr{suffix}"])
            shapes = net.every_cell[suffix].shapes
            out |= {named(name, suffix): p[name] for name in p if name in shapes}
        below = projections
    return replace(net, **options, learn_h0=False), {**out, "Why": _through(params["Why"], below)}


def _through(W: Array, projections: list[Array]) -> Array:
    """W times the projections of the directions that it reads."""
    if not projections:
        return W
    parts = np.split(W, len(projections), axis=1)
    return np.concatenate([part @ Whr for part, Whr in zip(parts, projections)], axis=1)


def feedforward(
    linear: Iterable[tuple[Array, Array]], slopes: Iterable[Array], activation: str
) -> tuple[FeedforwardNet, Params]:
    """The net of these matrices and vectors, and its parameters; ``slopes``: those of a prelu."""
    params: Params = {}
    for n, (W, b) in enumerate(linear, 1):
        params |= {f"W{n}": W, f"b{n}": b}
    widths = (params["W1"].shape[1], *(len(W) for name, W in params.items() if name[0] == "W"))
    params |= {f"slope{n}": np.squeeze(slope) for n, slope in enumerate(slopes, 1)}
    return FeedforwardNet(widths, activation=activation), params


def embedded(net: StackedNet, params: Params, vectors: Array) -> tuple[StackedNet, Params]:
    """The net whose inputs are symbols, with these vectors (D, W)."""
    names = {f"Wxh{suffix}" for suffix in net.cells[0]}
    p = {f"{name}.W" if name in names else name: value for name, value in params.items()}
    p |= {f"{name}.E": vectors.T for name in names}
    return replace(net, inputs=len(vectors), embedding=vectors.shape[1]), p
