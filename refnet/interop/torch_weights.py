"""PyTorch (extra ``torch``): the tensors of its recurrent layers, of an Embedding before them and
of a Linear read-out, and those of a Sequential of Linear layers.

The gates are stacked as refnet's; bias_ih is bh, bias_hh is bhh and, of a GRU's n, bhn.
Checked by: tests/check/test_torch.py, tests/interop/test_travel.py.
"""

from functools import partial
from typing import Any, TypeAlias

import numpy as np

from refnet.batch import Array, Params
from refnet.interop import (
    as_stack,
    embedded,
    feedforward,
    package,
    refuse_states,
    resolved,
    split_biases,
    two_biases,
)
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, named, plain

Torch: TypeAlias = Any
"""A tensor, module or dtype of PyTorch's, which is an optional package."""
ACTIVATIONS = {
    "tanh": "Tanh",
    "relu": "ReLU",
    "sigmoid": "Sigmoid",
    "softsign": "Softsign",
    "elu": "ELU",
    "leaky_relu": "LeakyReLU",
    "identity": "Identity",
    "prelu": "PReLU",
}
LAYER_NAMES = {"Wxh": "weight_ih", "Whh": "weight_hh", "Whr": "weight_hr", "bh": "bias_ih"}
GATES = {1: "rnn", 3: "gru", 4: "lstm"}
"""The cells by the number of their gates."""

torch_package = partial(package, "torch", called="PyTorch")


def tensor(array: Array) -> Torch:
    """A copy on torch's default device (``torch.set_default_device``)."""
    return torch_package().tensor(np.array(array, order="C"))


def array(tensor: Torch) -> Array:
    """On the CPU; bfloat16, which NumPy lacks, as float32."""
    torch, values = torch_package(), tensor.detach().cpu()
    return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())


def _layer_arrays(net: StackedNet, params: Params, bias: bool = True) -> Params:
    arrays: Params = {}
    for suffix in net.every_cell:
        p = net.of(params, suffix)
        arrays |= {f"weight_ih{suffix}": p["Wxh"], f"weight_hh{suffix}": p["Whh"]}
        if "Whr" in p:
            arrays[f"weight_hr{suffix}"] = p["Whr"]
        if bias:
            arrays |= dict(zip((f"bias_ih{suffix}", f"bias_hh{suffix}"), two_biases(net, p)))
    return arrays


def layer_state_dict(net: StackedNet, params: Params, bias: bool = True) -> dict[str, Torch]:
    """The tensors of torch.nn.RNN, LSTM or GRU; bias_hh is zero unless there is a bhh, and of the
    GRU's n it is bhn."""
    return {name: tensor(value) for name, value in _layer_arrays(net, params, bias).items()}


def arrays_of(net: Net, params: Params, prefix: str = "rnn.", head: str = "head.") -> Params:
    """The arrays of a state dict: embedding.weight, torch.nn.RNN, LSTM or GRU's under ``prefix``,
    a Linear read-out's under ``head``; of a feedforward net those of a Sequential.

    Transitions give the matrix that they make, and a cifg is an LSTM. Raises ValueError for a net
    that torch has no layer for.
    """
    net, params, vectors = resolved(net, params)
    if isinstance(net, FeedforwardNet):
        _activation(net)
        names = {"W": "weight", "b": "bias"}
        linear = {
            f"{2 * (layer - 1)}.{names[kind]}": params[f"{kind}{layer}"]
            for layer in range(1, net.depth + 2)
            for kind in names
        }
        slopes = {name.removeprefix("slope"): params[name] for name in params if "slope" in name}
        return linear | {f"{2 * int(n) - 1}.weight": np.atleast_1d(a) for n, a in slopes.items()}
    refuse(net)
    refuse_states("torch", params)
    arrays = {} if vectors is None else {"embedding.weight": vectors}
    arrays |= {f"{prefix}{name}": value for name, value in _layer_arrays(net, params).items()}
    if "Why" in params:
        arrays |= {f"{head}weight": params["Why"], f"{head}bias": params["by"]}
    return arrays


def state_dict(
    net: Net, params: Params, prefix: str = "rnn.", head: str = "head."
) -> dict[str, Torch]:
    """``arrays_of`` as tensors."""
    return {name: tensor(value) for name, value in arrays_of(net, params, prefix, head).items()}


def from_state_dict(
    net: RecurrentNet, state: dict[str, Torch], prefix: str = "rnn.", head: str = "head."
) -> Params:
    """The parameters in a state dict of tensors or arrays; a second bias that is not 0 is bhh.

    Raises ValueError naming what is missing, of another layer or of another shape.
    """
    refuse(net)
    H, G = net.hidden, len(net.gates)
    stack = as_stack(net, {})[0]
    need: dict[str, tuple[int, ...]] = {}
    for suffix, cell in stack.every_cell.items():
        need |= {
            f"{prefix}weight_ih{suffix}": (G * H, cell.inputs),
            f"{prefix}weight_hh{suffix}": (G * H, cell.width),
            f"{prefix}bias_ih{suffix}": (G * H,),
            f"{prefix}bias_hh{suffix}": (G * H,),
        }
        if net.projection:
            need[f"{prefix}weight_hr{suffix}"] = (net.projection, H)
    if net.readout != "none":
        need |= {f"{head}weight": (net.outputs, net.width), f"{head}bias": (net.outputs,)}
    more = [name for name in state if name.startswith(prefix) and name not in need]
    if more:
        raise ValueError(
            f"from_state_dict: {more[0]} belongs to a second layer or direction, or to what the "
            f"net lacks; it has {stack.layers} layer(s), bidirectional={stack.bidirectional}"
        )
    for name, shape in need.items():
        if name not in state:
            raise ValueError(f"from_state_dict: {name} is missing; there are {', '.join(state)}")
        if tuple(state[name].shape) != shape:
            raise ValueError(
                f"from_state_dict: {name} has shape {tuple(state[name].shape)}; need "
                f"{shape}, because the net has H = {H}, D = {net.inputs}, "
                f"C = {net.outputs} and the cell {net.cell}"
            )
    arrays = {
        name: value if isinstance(value, np.ndarray) else array(value)
        for name, value in state.items()
        if name in need
    }
    params: Params = {}
    for suffix, cell in stack.every_cell.items():
        p = {
            name: arrays[f"{prefix}{theirs}{suffix}"]
            for name, theirs in LAYER_NAMES.items()
            if f"{prefix}{theirs}{suffix}" in arrays
        }
        p |= split_biases(cell, p["bh"], arrays[f"{prefix}bias_hh{suffix}"])
        params |= {named(name, suffix): value for name, value in p.items()}
    if net.readout != "none":
        params |= {"Why": arrays[f"{head}weight"], "by": arrays[f"{head}bias"]}
    return params if net is stack else {plain(name): value for name, value in params.items()}


def net_of(arrays: Params, activation: str = "tanh", readout: str = "last") -> tuple[Net, Params]:
    """The net whose weights have PyTorch's names, and its parameters. ``activation`` and
    ``readout`` are not in the weights.

    Raises ValueError naming a weight that is part of no such net.
    """
    inputs = [name for name in arrays if name.endswith("weight_ih_l0")]
    if not inputs:
        return _feedforward(arrays, activation)
    prefix = inputs[0].removesuffix("weight_ih_l0")
    W, U = arrays[inputs[0]], arrays[f"{prefix}weight_hh_l0"]
    layer = {name: value for name, value in arrays.items() if name.startswith(prefix)}
    if prefix == "":
        layer = {name: value for name, value in arrays.items() if "_l" in name}
    rest = [name for name in arrays if name not in layer]
    weights = [name for name in rest if name.endswith("weight") and arrays[name].ndim == 2]
    tables = [name for name in weights if f"{name.removesuffix('weight')}bias" not in arrays]
    heads = [name for name in weights if name not in tables]
    known = {*weights, *(f"{name.removesuffix('weight')}bias" for name in heads)}
    strange = [*sorted({*rest} - known), *tables[1:], *heads[1:]]
    projection = arrays.get(f"{prefix}weight_hr_l0")
    H = U.shape[1] if projection is None else projection.shape[1]
    if strange or len(W) // H not in GATES:
        raise ValueError(
            f"{', '.join(strange) or inputs[0]}: need the weights of an embedding, of one RNN, "
            "LSTM or GRU and of one read-out, or some of these"
        )
    suffixes = [name.removeprefix(f"{prefix}weight_ih") for name in layer if "weight_ih" in name]
    both = any(suffix.endswith("_reverse") for suffix in suffixes)
    width = (1 + both) * U.shape[1]
    net = StackedNet(
        W.shape[1],
        H,
        len(arrays[heads[0]]) if heads else width,
        cell=GATES[len(W) // H],
        activation=activation,
        readout=readout if heads else "none",
        layers=len(suffixes) // (1 + both),
        bidirectional=both,
        projection=0 if projection is None else U.shape[1],
    )
    biases = {f"{prefix}bias_{kind}{suffix}" for kind in ("ih", "hh") for suffix in suffixes}
    state = {name: np.zeros(len(W), W.dtype) for name in biases} | layer
    head = heads[0].removesuffix("weight") if heads else ""
    state |= {name: arrays[name] for name in (f"{head}weight", f"{head}bias") if heads}
    params = from_state_dict(net, state, prefix, head)
    return embedded(net, params, arrays[tables[0]]) if tables else (net, params)


def _feedforward(arrays: Params, activation: str) -> tuple[Net, Params]:
    """A Sequential of Linear layers, of which each has the same activation between."""
    weights = [name for name in arrays if name.endswith("weight") and arrays[name].ndim == 2]
    slopes = [name for name in arrays if name.endswith("weight") and arrays[name].ndim == 1]
    biases = [f"{name.removesuffix('weight')}bias" for name in weights]
    strange = {*arrays} - {*weights, *biases, *slopes}
    if strange or not weights or len(slopes) not in (0, len(weights) - 1):
        raise ValueError(
            f"{', '.join(strange) or 'the weights'}: need those of an RNN, LSTM or GRU, or of "
            "Linear layers one after the other"
        )
    matrices = [arrays[name] for name in weights]
    vectors = [arrays.get(bias, np.zeros(len(W), W.dtype)) for bias, W in zip(biases, matrices)]
    shared = [arrays[name] for name in slopes]
    return feedforward(zip(matrices, vectors), shared, "prelu" if slopes else activation)


def _activation(net: Net) -> None:
    act = net.activation
    usual = {"leaky_relu": 0.01, "elu": 1}.get(act.name, 0)
    if act.name not in ACTIVATIONS or act.alpha != usual:
        raise ValueError(f"torch has no activation {act.name} with constant {act.alpha}")


def refuse(net: RecurrentNet) -> None:
    """Raise ValueError for a net that torch has no layer for."""
    if net.cell not in ("rnn", "lstm", "gru") or net.transition is not None or net.gain != 1:
        raise ValueError(
            f"torch has no layer for the cell {net.cell} with this transition and "
            "gain; it has rnn, lstm and gru (reset after the product)"
        )
    if net.activation.name not in (("tanh", "relu") if net.cell == "rnn" else ("tanh",)):
        raise ValueError(f"torch's {net.cell} has no activation {net.activation.name}")
    if net.gate.name != "sigmoid" or net.clip_forward is not None:
        raise ValueError(
            f"torch's {net.cell} has no gate {net.gate.name} and no clip_forward {net.clip_forward}"
        )
