"""PyTorch's recurrent layers on refnet's kernels (extra ``torch``)::

import refnet.torch

refnet.torch.accelerate(model)         # every torch.nn.RNN, LSTM and GRU in it
layer = refnet.torch.LSTM(64, 128)     # as torch.nn.LSTM
"""

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
    "matrices",
    "open_penalty",
    "open_update_",
    "orthogonalize_",
    "restore",
    "retract_",
]
