"""PyTorch's recurrent layers, and refnet's nets as functions of PyTorch; ``refnet.interop`` has a
page with examples.

Checked by: tests/interop/test_torch_modules.py.
"""

from refnet.interop.torch_cells import function
from refnet.interop.torch_matrices import (
    matrices,
    open_penalty,
    open_update_,
    orthogonalize_,
    retract_,
)
from refnet.interop.torch_modules import GRU, LSTM, RNN, accelerate, restore
from refnet.interop.torch_orthogonal import CIFG, GRUBefore, OrthogonalRNN, PeepholeLSTM

__all__ = [
    "CIFG",
    "GRU",
    "GRUBefore",
    "LSTM",
    "OrthogonalRNN",
    "PeepholeLSTM",
    "RNN",
    "accelerate",
    "function",
    "matrices",
    "open_penalty",
    "open_update_",
    "orthogonalize_",
    "restore",
    "retract_",
]
