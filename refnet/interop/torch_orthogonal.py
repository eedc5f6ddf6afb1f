"""What PyTorch lacks, as its modules: recurrent layers whose matrices transitions make, and the
cells that it does not have.

A layer's parameters have the names, shapes and start values of ``layer.net``, a StackedNet without
a read-out: ``layer.state_dict()`` are its parameters. Matrices and their gradients are refnet's.

Checked by: tests/interop/test_torch_orthogonal.py.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from refnet.batch import Array, Params
from refnet.interop.torch_cells import Run, applied, array_of
from refnet.interop.torch_modules import Input, States, run_layers
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.slots import Transition, parts
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet


def multiples(grads: Params, d: Array) -> Params:
    """The pullback of a number d with these gradients."""
    return {name: d * grad for name, grad in grads.items()}


def _pulled(transition: Transition, part: str) -> Run:
    """``transition.matrix`` or ``transition.penalty`` with its pullback."""

    def matrix(parts: Params) -> tuple[Array, Callable[[Array], Params]]:
        W, residuals = transition.matrix(parts)
        return W.copy(), partial(transition.pull_back, parts, residuals)

    def penalty(parts: Params) -> tuple[Array, Callable[[Array], Params]]:
        value, grads = transition.penalty(parts)
        grads = {name: grads.get(name, np.zeros_like(part)) for name, part in parts.items()}
        dtype = next(iter(parts.values())).dtype
        return np.asarray(value, dtype), partial(multiples, grads)

    return {"matrix": matrix, "penalty": penalty}[part]


class Matrix(nn.Module):  # type: ignore[misc]
    """A matrix that a transition makes of its parts, which are the parameters; a constant part is
    a buffer. ``matrix()`` is the matrix, ``matrix.penalty()`` what the transition adds to a loss.

    >>> from refnet.transitions import transition
    >>> svd = transition("svd:margin=0.1")
    >>> matrix = Matrix(svd, svd.init(np.eye(3)))
    >>> sorted(matrix.state_dict()), matrix().shape
    (['U', 'V', 'p'], torch.Size([3, 3]))
    """

    def __init__(
        self, transition: Transition, parts: Params, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.transition, self.names = transition, tuple(parts)
        constant = getattr(transition, "constant", ())
        for name, value in parts.items():
            if name in constant:
                self.register_buffer(name, _tensor(value, dtype))
            else:
                self.register_parameter(name, nn.Parameter(_tensor(value, dtype)))

    def parts(self) -> dict[str, Tensor]:
        """The parts by their names."""
        return {name: getattr(self, name) for name in self.names}

    def forward(self) -> Tensor:
        """The matrix."""
        return applied(_pulled(self.transition, "matrix"), self.parts())

    def penalty(self) -> Tensor:
        """The transition's own loss: a prior on the spectrum, or soft orthogonality; or 0."""
        return applied(_pulled(self.transition, "penalty"), self.parts())

    def extra_repr(self) -> str:
        """The transition."""
        return repr(self.transition)


def _tensor(array: Array, dtype: torch.dtype | None) -> Tensor:
    return torch.from_numpy(np.array(array)).to(dtype or torch.get_default_dtype())


class _Layers(nn.Module):  # type: ignore[misc]
    """What the layers here share. ``net`` says what they compute."""

    check_hidden_size = nn.RNNBase.check_hidden_size

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: torch.dtype | None = None,
        **net: Any,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        start = {"peepholes": net.pop("peepholes")} if "peepholes" in net else {}
        self.fields = net | {
            "inputs": input_size,
            "hidden": hidden_size,
            "outputs": hidden_size * (1 + bidirectional),
            "layers": num_layers,
            "bidirectional": bidirectional,
            "readout": "none",
        }
        if ACTIVATIONS.get(self.net.activation.name) != self.net.activation or (
            self.net.activation.start or not self.net.has_kernels
        ):
            raise ValueError(
                f"refnet.torch: there is no kernel for {self.net}; need an activation without "
                "options or parameters, such as tanh or relu"
            )
        transition = self.net.transition
        recurrent = None if transition is None else "orthogonal"
        seed = np.random.default_rng(int(torch.randint(2**62, ())))
        params = self.net.init(seed, np.float64, recurrent=recurrent, **start)
        if transition is not None:
            for slot in self.net.slots:
                self.add_module(slot, Matrix(transition, parts(params, slot), dtype))
        for name, value in params.items():
            if "." not in name:
                self.register_parameter(name, nn.Parameter(_tensor(value, dtype)))

    @cached_property
    def net(self) -> RecurrentNet:
        """The StackedNet, of which the layer's parameters are."""
        return StackedNet(**self.fields)

    def __getstate__(self) -> dict[str, object]:  # a net's activations cannot be pickled
        return {name: value for name, value in self.__dict__.items() if name != "net"}

    def forward(self, input: Input, hx: States | None = None) -> tuple[Input, States]:
        """As of PyTorch's layers: the outputs, and h_n or (h_n, c_n), of x (T, B, D), (B, T, D) if
        ``batch_first``, (T, D) or a PackedSequence."""
        run = run_layers
        if torch.compiler.is_compiling():  # torch.compile does not look into it
            run = torch.compiler.disable(run_layers)
        return run(self, input, hx)

    def kernel(self) -> tuple[str, str]:
        """The cell and its activation."""
        return self.net.cell, self.net.activation.name

    def cell_params(self, suffix: str) -> dict[str, Tensor]:
        """A cell's parameters by refnet's names, with its matrices made."""
        cell = self.net.every_cell[f"_{suffix}"]
        p = {name: getattr(self, f"{name}_{suffix}", None) for name in cell.shapes}
        if self.net.transition is not None:
            p["Whh"] = torch.cat([getattr(self, f"{slot}_{suffix}")() for slot in cell.slots])
        return {name: value for name, value in p.items() if value is not None}

    def params(self) -> Params:
        """The parameters of ``net``: ``refnet.interop.files.write(file, net, params)`` writes both
        as ONNX, for PyTorch, for Keras or for refnet.

        Checked by: tests/interop/test_torch_orthogonal.py::test_layers_travel.
        """
        return {name: array_of(value) for name, value in self.state_dict().items()}

    def penalty(self) -> Tensor:
        """What the transitions add to a loss."""
        return torch.stack([getattr(self, slot).penalty() for slot in self.net.slots]).sum()

    def extra_repr(self) -> str:
        """The net."""
        return repr(self.net)


class OrthogonalRNN(_Layers):
    """torch.nn.RNN with recurrent matrices that a transition of ``refnet.transitions`` makes: by
    its name, such as "expm", "svd:margin=0.1" or "orthogonal", or an object. Parts that have to
    stay on a manifold move by ``retract_``.

    >>> layer = OrthogonalRNN(3, 4, transition="svd:margin=0.1", batch_first=True)
    >>> sorted(layer.state_dict())
    ['Whh_l0.U', 'Whh_l0.V', 'Whh_l0.p', 'Wxh_l0', 'bh_l0']
    >>> outputs, h_n = layer(torch.ones(2, 5, 3))
    >>> W = layer.Whh_l0()
    >>> outputs.shape, bool(torch.allclose(W @ W.T, torch.eye(4), atol=1e-5))
    (torch.Size([2, 5, 4]), True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        transition: Transition | str = "orthogonal",
        nonlinearity: str = "tanh",
        **options: Any,
    ) -> None:
        net: dict[str, Any] = {"cell": "rnn", "transition": transition, "activation": nonlinearity}
        super().__init__(input_size, hidden_size, num_layers, **net, **options)


class PeepholeLSTM(_Layers):
    """The LSTM whose gates see its cell; ``transition`` as of OrthogonalRNN, a matrix a gate.

    >>> layer = PeepholeLSTM(3, 4)
    >>> sorted(layer.state_dict())
    ['Whh_l0', 'Wpf_l0', 'Wpi_l0', 'Wpo_l0', 'Wxh_l0', 'bh_l0']
    """

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, cell="lstm", peepholes=True, **options)


class CIFG(_Layers):
    """The LSTM with coupled input and forget gates; ``transition`` as of OrthogonalRNN.

    >>> outputs, (h_n, c_n) = CIFG(3, 4)(torch.ones(5, 2, 3))
    >>> outputs.shape
    torch.Size([5, 2, 4])
    """

    def __init__(self, *sizes: int, peepholes: bool = False, **options: Any) -> None:
        super().__init__(*sizes, cell="cifg", peepholes=peepholes, **options)


class GRUBefore(_Layers):
    """The GRU that resets the state before the product, as in its paper (Cho et al. 2014);
    ``transition`` as of OrthogonalRNN.

    >>> outputs, h_n = GRUBefore(3, 4, num_layers=2)(torch.ones(5, 2, 3))
    >>> h_n.shape
    torch.Size([2, 2, 4])
    """

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, cell="gru_before", **options)
