"""PyTorch's recurrent layers on refnet's kernels (extra ``torch``)::

import refnet.torch

refnet.torch.accelerate(model)         # every torch.nn.RNN, LSTM and GRU in it
layer = refnet.torch.LSTM(64, 128)     # as torch.nn.LSTM
"""

from refnet.interop.torch_modules import GRU, LSTM, RNN, accelerate, restore

__all__ = ["GRU", "LSTM", "RNN", "accelerate", "restore"]
