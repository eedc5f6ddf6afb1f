"""PyTorch's recurrent layers, and refnet's nets as functions of PyTorch; ``refnet.interop`` has a
page with examples.

Checked by: tests/interop/test_torch_modules.py.
"""

from refnet.interop.torch_cells import function
from refnet.interop.torch_modules import GRU, LSTM, RNN, accelerate, restore

__all__ = ["GRU", "LSTM", "RNN", "accelerate", "function", "restore"]
