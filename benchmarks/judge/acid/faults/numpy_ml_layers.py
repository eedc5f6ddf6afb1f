"""numpy-ml: the layers RNN and LSTM cannot be made, and their cells not used twice

package: numpy-ml
known: not in its tracker's issues as far as they were searched

- `LayerBase.__init__` (neural_nets/layers/layers.py) sets `self.gradients` and other names that
  `RNN` and `LSTM` define as properties without setters; `_init_params` of both then passes `n_in`
  to cells whose constructors have no such argument.
- `LSTM.backward` unpacks an array: `dLdXt, _ = self.cell.backward(...)`. With two examples dx is
  that of the first example alone; with another number of examples it is an error.
- `flush_gradients` of the cells, which `update` calls, sets `dLdA_accumulator` to [] where a
  backward pass asks whether it is None: after the first update there is no second one.

The forward and backward passes of the cells themselves, step by step, are explained by rounding.
The package imports on Python 3.10 and later only with `collections.Hashable` put back.
"""

import collections
import collections.abc

import numpy as np

collections.Hashable = collections.abc.Hashable
from numpy_ml.neural_nets.layers import LSTM, RNN, LSTMCell, RNNCell  # noqa: E402

x = np.ones((2, 1, 1))  # two examples, one input, one step
for layer in (RNN, LSTM):
    try:
        layer(1)
    except AttributeError as error:
        print(f"{layer.__name__}(1): AttributeError: {error}")

lstm = LSTM.__new__(LSTM)
lstm.cell, lstm.is_initialized = LSTMCell(1), True
lstm.forward(x)
print("LSTM, shape of dx:", lstm.backward(np.ones((2, 1, 1))).shape, "right", x.shape)

cell = RNNCell(1)
for turn in ("first", "second"):
    cell.forward(x[:, :, 0])
    try:
        print(f"RNNCell, {turn} backward pass: shape of dx", cell.backward(np.ones((2, 1))).shape)
    except (ValueError, TypeError) as error:
        print(f"RNNCell, {turn} backward pass: {type(error).__name__}: {error}")
    cell.flush_gradients()
