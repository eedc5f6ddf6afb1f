"""PyTorch (extra ``torch``): the tensors of its recurrent layers and a Linear read-out.

Checked by: tests/check/test_torch.py.
"""

from functools import partial
from typing import Any, TypeAlias

import numpy as np

from refnet.batch import Array, Params
from refnet.interop import as_stack, exact_sum, package, two_biases
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = [
    "ACTIVATIONS",
    "LAYER_NAMES",
    "Torch",
    "array",
    "from_state_dict",
    "layer_state_dict",
    "refuse",
    "state_dict",
    "tensor",
    "torch_package",
]

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
}


LAYER_NAMES = {"Wxh": "weight_ih", "Whh": "weight_hh", "Whr": "weight_hr", "bh": "bias_ih"}


torch_package = partial(package, "torch", called="PyTorch")


def tensor(array: Array) -> Torch:
    """A copy on torch's default device (``torch.set_default_device``)."""
    return torch_package().tensor(np.array(array, order="C"))


def array(tensor: Torch) -> Array:
    """On the CPU; bfloat16, which NumPy lacks, as float32."""
    torch, values = torch_package(), tensor.detach().cpu()
    return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())


def layer_state_dict(net: StackedNet, params: Params, bias: bool = True) -> dict[str, Torch]:
    """The tensors of torch.nn.RNN, LSTM or GRU; bias_hh is zero unless there is a bhh, and of the
    GRU's n it is bhn."""
    arrays: Params = {}
    for suffix in net.every_cell:
        p = net.of(params, suffix)
        arrays |= {f"weight_ih{suffix}": p["Wxh"], f"weight_hh{suffix}": p["Whh"]}
        if "Whr" in p:
            arrays[f"weight_hr{suffix}"] = p["Whr"]
        if bias:
            arrays |= dict(zip((f"bias_ih{suffix}", f"bias_hh{suffix}"), two_biases(net, p)))
    return {name: tensor(value) for name, value in arrays.items()}


def state_dict(
    net: RecurrentNet, params: Params, prefix: str = "rnn.", head: str = "head."
) -> dict[str, Torch]:
    """torch.nn.RNN, LSTM or GRU's tensors, and a Linear read-out's under ``head``.

    The gates are stacked as in torch. All of bh goes to bias_ih; bias_hh is zero but for the
    GRU's bhn. Raises ValueError for a net torch has no layer for.
    """
    refuse(net)
    layer = layer_state_dict(*as_stack(net, params))
    return {f"{prefix}{name}": value for name, value in layer.items()} | {
        f"{head}weight": tensor(params["Why"]),
        f"{head}bias": tensor(params["by"]),
    }


def from_state_dict(
    net: RecurrentNet, state: dict[str, Torch], prefix: str = "rnn.", head: str = "head."
) -> Params:
    """The parameters in a state dict; the two biases are added without rounding.

    Raises ValueError naming what is missing, ambiguous (more layers, both directions) or of
    another shape.
    """
    refuse(net)
    H, G = net.hidden, len(net.gates)
    more = [name for name in state if name.startswith(prefix) and not name.endswith("_l0")]
    if more:
        raise ValueError(
            f"from_state_dict: {more[0]} belongs to a second layer or direction; "
            "refnet's nets have one: pass each layer's weights by themselves"
        )
    need = {
        f"{prefix}weight_ih_l0": (G * H, net.inputs),
        f"{prefix}weight_hh_l0": (G * H, H),
        f"{prefix}bias_ih_l0": (G * H,),
        f"{prefix}bias_hh_l0": (G * H,),
        f"{head}weight": (net.outputs, H),
        f"{head}bias": (net.outputs,),
    }
    for name, shape in need.items():
        if name not in state:
            raise ValueError(f"from_state_dict: {name} is missing; there are {', '.join(state)}")
        if tuple(state[name].shape) != shape:
            raise ValueError(
                f"from_state_dict: {name} has shape {tuple(state[name].shape)}; need "
                f"{shape}, because the net has H = {H}, D = {net.inputs}, "
                f"C = {net.outputs} and the cell {net.cell}"
            )
    Wxh, Whh, first, second, Why, by = (array(state[name]) for name in need)
    params = {"Wxh": Wxh, "Whh": Whh, "Why": Why, "by": by}
    if net.cell == "gru":
        params["bhn"] = second[2 * H :]
        second = np.where(np.arange(G * H) < 2 * H, second, 0)
    return {**params, "bh": exact_sum(first, second)}


def refuse(net: RecurrentNet) -> None:
    if net.cell not in ("rnn", "lstm", "gru") or net.transition is not None or net.gain != 1:
        raise ValueError(
            f"torch has no layer for the cell {net.cell} with this transition and "
            "gain; it has rnn, lstm and gru (reset after the product)"
        )
    if net.activation.name not in (("tanh", "relu") if net.cell == "rnn" else ("tanh",)):
        raise ValueError(f"torch's {net.cell} has no activation {net.activation.name}")
