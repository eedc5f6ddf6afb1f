"""OINIT and OPEN on the matrices of PyTorch's modules, and steps on their manifolds.

A matrix is a tensor: a parameter or a view of one, such as the block of a gate.

Checked by: tests/interop/test_torch_orthogonal.py.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.interop.torch_cells import applied, array_of
from refnet.interop.torch_orthogonal import Matrix, multiples
from refnet.matrices import orthogonality
from refnet.runs.read import Record

GATES = {"LSTM": CELLS["lstm"].GATES, "GRU": CELLS["gru"].GATES}
"""The gates of PyTorch's layers, which it stacks as refnet does."""


def matrices(module: nn.Module) -> dict[str, Tensor]:
    """The matrices of a module: the recurrent ones of its layers, gate by gate, and the weights of
    its torch.nn.Linear, by their names. Of a matrix that a transition makes, the part that stands
    for it, or the matrix made if there is none. A dict comprehension chooses among them.

    >>> list(matrices(nn.ModuleDict({"rnn": nn.GRU(3, 4), "head": nn.Linear(4, 2)})))
    ['rnn.weight_hh_l0[r]', 'rnn.weight_hh_l0[z]', 'rnn.weight_hh_l0[n]', 'head.weight']
    """
    return {
        f"{name}.{key}" if name else key: value
        for name, part in module.named_modules()
        for key, value in _matrices_of(part)
    }


def _matrices_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    if isinstance(module, Matrix):
        if part := module.transition.orthogonalised:
            yield part, getattr(module, part)
        else:
            with torch.enable_grad():
                yield "matrix", module()
    elif isinstance(module, nn.Linear):
        yield "weight", module.weight
    else:
        gates = GATES.get(getattr(module, "mode", ""), ("",))
        gates = module.net.gates if hasattr(module, "net") else gates
        for name, value in module.named_parameters(recurse=False):
            if name.startswith(("weight_hh", "Whh")):
                for gate, block in zip(gates, value.chunk(len(gates))):
                    yield f"{name}[{gate}]" if len(gates) > 1 else name, block


Matrices: TypeAlias = nn.Module | Mapping[str, Tensor] | Tensor
"""A module, matrices by their names, or one."""


def _named(given: Matrices) -> dict[str, Tensor]:
    if isinstance(given, nn.Module):
        return matrices(given)
    return dict(given) if isinstance(given, Mapping) else {"W": given}


def orthogonalize_(given: Matrices, **options: Any) -> list[Record]:
    """OINIT: descend to the (semi-)orthogonal matrix near each of these, in place.

    ``options`` and what is raised: those of ``refnet.matrices.orthogonality.orthogonalize``.
    Returns a report a matrix. Nothing is changed unless every descent can converge.

    >>> torch.manual_seed(0).initial_seed()
    0
    >>> W = nn.Linear(5, 5).weight
    >>> report = orthogonalize_(W)
    >>> report[0]["stopped"], bool(torch.allclose(W @ W.T, torch.eye(5), atol=1e-2))
    ('cost', True)
    """
    tensors = _named(given)
    for name, tensor in tensors.items():
        if tensor.grad_fn is not None and tensor._base is None:
            raise ValueError(
                f"orthogonalize_: a transition makes {name} of its parts; need a parameter: leave "
                "it out, or start from an orthogonal matrix"
            )
    arrays = {name: array_of(tensor) for name, tensor in tensors.items()}
    descended, report = orthogonality.orthogonalize_params(arrays, **options)
    _assign(tensors, descended)
    return report


def _assign(tensors: Mapping[str, Tensor], arrays: Params) -> None:
    with torch.no_grad():
        for name, array in arrays.items():
            tensors[name].copy_(torch.from_numpy(np.array(array)))


def open_penalty(given: Matrices, strength: float, form: str = "squared") -> Tensor:
    """OPEN as a penalty: ``strength`` times the sum of the matrices' defects, to add to a loss.

    >>> W = torch.diag(torch.tensor([2.0, 1.0])).requires_grad_()
    >>> value = open_penalty(W, strength=0.5)
    >>> value.backward()
    >>> value.item(), W.grad.tolist()
    (4.5, [[12.0, 0.0], [0.0, 0.0]])
    """

    def run(arrays: Params) -> tuple[Array, Callable[[Array], Params]]:
        value, grads = orthogonality.open_penalty(arrays, strength, form)
        return value, partial(multiples, grads)

    return applied(run, _named(given))


def open_update_(given: Matrices, rate: float, strength: float, form: str = "squared") -> None:
    """OPEN as an update, in place, before an optimiser's step: ``W - rate strength gradient``.

    >>> W = torch.diag(torch.tensor([2.0, 1.0]))
    >>> open_update_(W, rate=0.125, strength=0.5)
    >>> W.tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    tensors = _named(given)
    update = orthogonality.open_update
    arrays = {name: array_of(tensor) for name, tensor in tensors.items()}
    _assign(tensors, {k: update(W, rate, strength, form) for k, W in arrays.items()})


def retract_(module: nn.Module, rate: float) -> dict[str, float]:
    """A step against their gradients for all parts of matrices that lie on a manifold, in place;
    the gradients become None, so that an optimiser that steps afterwards leaves these parts.
    Returns the parts' defects after it.

    >>> from refnet.interop.torch_orthogonal import OrthogonalRNN
    >>> layer = OrthogonalRNN(3, 4, transition="orthogonal")
    >>> layer(torch.ones(5, 2, 3))[0].sum().backward()
    >>> list(retract_(layer, rate=0.1)), layer.Whh_l0.M.grad
    (['Whh_l0.M'], None)
    """
    defects: dict[str, float] = {}
    for name, part in module.named_modules():
        if isinstance(part, Matrix):
            prefix = f"{name}." if name else ""
            parts = {f"{prefix}{key}": value for key, value in part.parts().items()}
            moving = [f"{prefix}{key}" for key in part.transition.manifold]
            moving = [key for key in moving if parts[key].grad is not None]
            arrays = {key: array_of(value) for key, value in parts.items()}
            grads = {key: array_of(parts[key].grad) for key in moving}
            retracted = part.transition.retract(arrays, grads, tuple(moving), rate)
            _assign(parts, retracted.params)
            for key in moving:
                parts[key].grad = None
            defects |= retracted.defects
    return defects
