"""torch.nn.RNN, LSTM and GRU on refnet's kernels: PyTorch's own classes with another forward.

What stands between the cells (dropout, directions side by side, sums of biases) is PyTorch's.

Checked by: tests/interop/test_torch_modules.py, benchmarks/judge/torch_modules.py.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeAlias

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.rnn import PackedSequence

from refnet.cells import CELLS
from refnet.interop.torch_cells import Steps, Tensor, admit, packed_steps, run_cell

Input: TypeAlias = Tensor | PackedSequence
States: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""h_n, or (h_n, c_n)."""
MODES = {
    "RNN_TANH": ("rnn", "tanh"),
    "RNN_RELU": ("rnn", "relu"),
    "LSTM": ("lstm", "tanh"),
    "GRU": ("gru", "tanh"),
}
"""PyTorch's name of a layer's cell: ours, and the activation."""


def _cell_params(cell: str, module: nn.RNNBase, suffix: str) -> dict[str, Tensor]:
    """A cell's parameters by refnet's names; of a GRU's second bias, the part of n is bhn."""
    Wxh, Whh = (getattr(module, f"weight_{kind}_{suffix}") for kind in ("ih", "hh"))
    H = module.hidden_size
    if module.bias:
        bh, second = (getattr(module, f"bias_{kind}_{suffix}") for kind in ("ih", "hh"))
    else:
        bh = second = Wxh.new_zeros(len(Wxh))
    params = {"Wxh": Wxh, "Whh": Whh}
    if cell != "gru":
        return {**params, "bh": bh + second}
    bhn = second[2 * H :]
    both = torch.cat([bh[: 2 * H] + second[: 2 * H], bh[2 * H :]])
    return {**params, "bh": both, "bhn": bhn}


def _by_torch(module: nn.RNNBase) -> bool:
    """Whether PyTorch's own code computes: it alone has a projection, and what records or
    transforms PyTorch's operations (traces, exports, torch.func) has to see them."""
    return bool(
        module.proj_size or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active()
    )


class _Layers(nn.RNNBase):  # type: ignore[misc]
    """What the three classes share: the forward pass."""

    def forward(self, input: Input, hx: States | None = None) -> Any:
        """As of PyTorch's class: the outputs (T, B, H), (B, T, H), (T, H) or packed, and h_n, of
        an LSTM (h_n, c_n). Raises RuntimeError or ValueError where PyTorch's does, and for tensors
        that are not on the CPU, or neither float32 nor float64."""
        if torch.compiler.is_exporting():
            return super().forward(input, hx)
        if torch.compiler.is_compiling():  # torch.compile does not look into it
            return torch.compiler.disable(self._run)(input, hx)
        return self._run(input, hx)

    def _run(self, input: Input, hx: States | None) -> Any:
        if _by_torch(self):
            return super().forward(input, hx)
        return run_layers(self, input, hx)

    def kernel(self) -> tuple[str, str]:
        """The cell and its activation."""
        return MODES[self.mode]

    def cell_params(self, suffix: str) -> dict[str, Tensor]:
        """A cell's parameters by refnet's names."""
        return _cell_params(self.kernel()[0], self, suffix)

    def __prepare_scriptable__(self) -> NoReturn:
        raise RuntimeError(
            f"refnet.torch.{self._get_name()}: TorchScript cannot call refnet; need PyTorch's own "
            "layers: refnet.torch.restore(model)"
        )


def run_layers(module: nn.Module, input: Input, hx: States | None) -> tuple[Input, States]:
    """The outputs and h_n, or (h_n, c_n), of layers that have ``kernel`` and ``cell_params``."""
    packed = input if isinstance(input, PackedSequence) else None
    x = input if packed is None else packed.data
    _admit_input(module, x, packed is not None)
    single = packed is None and x.dim() == 2
    if single:
        x = x.unsqueeze(1)
    elif packed is None and module.batch_first:
        x = x.transpose(0, 1)
    states = _initial(module, x, hx, single, packed)
    x, ends = _run_stack(module, x, states, packed)
    if packed is not None:
        if packed.unsorted_indices is not None:
            ends = ends.index_select(2, packed.unsorted_indices)
        x = PackedSequence(x, *packed[1:])
    elif single:
        x, ends = x.squeeze(1), ends.squeeze(2)
    elif module.batch_first:
        x = x.transpose(0, 1)
    return x, ends[0] if len(ends) == 1 else tuple(ends)


def _admit_input(module: nn.Module, x: Tensor, packed: bool) -> None:
    """Raise what PyTorch's layer raises for x of another shape."""
    name = module._get_name()
    if x.dim() not in ((2,) if packed else (2, 3)):
        raise ValueError(f"{name}: Expected input to be 2D or 3D, got {x.dim()}D tensor instead")
    if x.shape[-1] != module.input_size:
        raise RuntimeError(
            f"{name}: input.size(-1) must be equal to input_size. Expected {module.input_size}, "
            f"got {x.shape[-1]}"
        )


def _initial(
    module: nn.Module, x: Tensor, hx: States | None, single: bool, packed: PackedSequence | None
) -> Tensor:
    """The states (S, cells, B, H) that a layer starts from, S = 2 for an LSTM."""
    count = CELLS[module.kernel()[0]].STATES
    B = x.shape[1] if packed is None else int(packed.batch_sizes[0])
    size = (module.num_layers * (1 + module.bidirectional), B, module.hidden_size)
    if hx is None:
        return x.new_zeros(count, *size)
    states = hx if count == 2 else (hx,)
    admit(module._get_name(), [x, *states])
    need = (size[0], size[2]) if single else size
    for n, state in enumerate(states):
        module.check_hidden_size(state, need, f"Expected hidden[{n}] size {{}}, got {{}}")
    start = torch.stack(tuple(states))
    if single:
        return start.unsqueeze(2)
    if packed is None or packed.sorted_indices is None:
        return start
    return start.index_select(2, packed.sorted_indices)


def _run_stack(
    module: nn.Module, x: Tensor, states: Tensor, packed: PackedSequence | None
) -> tuple[Tensor, Tensor]:
    """The outputs of the last layer, (T, B, W) or (N, W) packed, and all states at the end."""
    cell, activation = module.kernel()
    ways = {"": Steps(), "_reverse": Steps(reverse=True)}
    if packed is not None:
        sizes, dtype = packed.batch_sizes.numpy(), x.new_empty(0).numpy().dtype
        ways = packed_steps(sizes, dtype, cell, module.hidden_size)
    if not module.bidirectional:
        del ways["_reverse"]
    ends: list[Tensor] = []
    for layer in range(module.num_layers):
        if layer and module.dropout and module.training:
            x = nn.functional.dropout(x, module.dropout)
        outputs = []
        for way, steps in ways.items():
            params = module.cell_params(f"l{layer}{way}")
            admit(module._get_name(), [x, *params.values()])
            h, end = run_cell(cell, activation, x, states[:, len(ends)], params, steps)
            outputs.append(h)
            ends.append(end)
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
    return x, ends[0].unsqueeze(1) if len(ends) == 1 else torch.stack(ends, dim=1)


class RNN(_Layers, nn.RNN):  # type: ignore[misc]
    """torch.nn.RNN on refnet's kernels: the same constructor, parameters and results.

    >>> layer = RNN(3, 4, num_layers=2, bidirectional=True)
    >>> outputs, h_n = layer(torch.ones(5, 2, 3))
    >>> outputs.shape, h_n.shape
    (torch.Size([5, 2, 8]), torch.Size([4, 2, 4]))
    """


class LSTM(_Layers, nn.LSTM):  # type: ignore[misc]
    """torch.nn.LSTM on refnet's kernels: the same constructor, parameters and results. PyTorch's
    own code computes a projection (``proj_size``), for which there is no kernel.

    >>> layer = LSTM(3, 4, batch_first=True)
    >>> outputs, (h_n, c_n) = layer(torch.ones(2, 5, 3))
    >>> outputs.shape, bool((outputs[:, -1] == h_n[0]).all())
    (torch.Size([2, 5, 4]), True)
    """


class GRU(_Layers, nn.GRU):  # type: ignore[misc]
    """torch.nn.GRU on refnet's kernels: the same constructor, parameters and results.

    >>> layer = GRU(3, 4)
    >>> layer.load_state_dict(torch.nn.GRU(3, 4).state_dict())
    <All keys matched successfully>
    """


@cache
def _ours(cls: type) -> type:
    """A subclass of PyTorch's class, or of one of a user's, that runs on refnet."""
    if cls in (nn.RNN, nn.LSTM, nn.GRU):
        return next(each for each in (RNN, LSTM, GRU) if issubclass(each, cls))

    def reduced(self: nn.Module) -> tuple[object, ...]:
        return _rebuilt, (cls,), self.__getstate__()

    space = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__reduce__": reduced}
    return type(cls.__name__, (_Layers, cls), space)


def _rebuilt(cls: type) -> nn.Module:
    return object.__new__(_ours(cls))


def _change(module: nn.Module, change: Callable[[type], type]) -> None:
    """Give the module another class; one with parametrizations, whose class has their properties,
    the same over another base."""
    cls = type(module)
    if not is_parametrized(module):
        module.__class__ = change(cls)
        return
    space = {name: value for name, value in vars(cls).items() if name != "__dict__"}
    module.__class__ = type(cls.__name__, (change(cls.__bases__[0]),), space)


def _reason(module: nn.Module) -> str:
    """Why a recurrent layer stays PyTorch's; empty if it need not."""
    weight = next(module.parameters(), module.weight_hh_l0)
    if module.proj_size:
        return "its projection has no kernel"
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return f"its weights are {weight.dtype} on {weight.device}; need float32 or float64, cpu"
    if type(module).forward not in (nn.RNN.forward, nn.LSTM.forward, nn.GRU.forward):
        return f"{type(module).__name__} has a forward of its own"
    return ""


def accelerate(model: nn.Module) -> dict[str, nn.Module]:
    """Let every torch.nn.RNN, LSTM and GRU of a model run on refnet's kernels.

    Each layer stays the object that it is, with its parameters, hooks and state: only its class
    changes. Returns the layers changed, by their names in the model, "" for the model itself.
    A layer that cannot change (of another device or type of number, with a projection, or of a
    class with its own ``forward``) stays PyTorch's, and a warning says why.

    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LSTM(4, 5))
    >>> accelerate(model)
    {'1': LSTM(4, 5)}
    >>> type(model[1]).__module__
    'refnet.interop.torch_modules'
    """
    changed = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.RNNBase) or isinstance(module, _Layers):
            continue
        if reason := _reason(module):
            where = f"refnet.torch.accelerate: {name or 'the model itself'}"
            warnings.warn(f"{where} stays PyTorch's: {reason}", stacklevel=2)
            continue
        _change(module, _ours)
        changed[name] = module
    return changed


def restore(model: nn.Module) -> dict[str, nn.Module]:
    """Let every layer of a model that runs on refnet be PyTorch's own again, whether
    ``accelerate`` or its constructor made it so. Returns the layers changed, by their names.

    >>> model = torch.nn.Sequential(LSTM(4, 5))
    >>> restore(model), type(model[0]) is torch.nn.LSTM
    ({'0': LSTM(4, 5)}, True)
    """
    changed = {}
    for name, module in model.named_modules():
        cls = type(module).__bases__[0] if is_parametrized(module) else type(module)
        if _Layers in cls.__bases__:
            _change(module, _theirs)
            changed[name] = module
    return changed


def _theirs(cls: type) -> type:
    return cls.__bases__[-1]
