"""thinc: the gradients of the LSTM are not those of its forward pass

package: thinc
known: not in its tracker's issues as far as they were searched

`backprop_lstm` in thinc/backends/numpy_ops.pyx has three faults (the forward pass is right):

- `layer_grads, params_i = _split_weights(params, i, nO, n_inputs, params_i)` where `d_params` is
  meant: the gradients start from a copy of the weights, so that every gradient of a weight and
  bias is the weight or bias too large. (`d_params` is made and never used.)
- `_lstm_backward_training` walks over pairs of neighbouring steps and calls `cpu_lstm_gates_bwd`
  for the later one of each: the first step of a sequence has no gradient. dX of it is 0, and it
  is missing in dWx and the bias.
- `dWh += dG.T @ Y` multiplies dG[t] by Y[t]; the gates of step t are made of Y[t-1].

`Ops.backprop_lstm` in thinc/backends/ops.py, for other arrays, never writes `dG`: there all
gradients of weights, bias and inputs are 0.

One unit, one sequence x = 1, 1, the weights of the inputs 1/2, those of the state and all biases 0;
the loss is the sum of both outputs. Central differences of thinc's own forward pass give the
right gradients to three digits:
"""

import numpy as np
from thinc.api import LSTM
from thinc.types import Padded


def padded(data):
    T, B, _ = data.shape
    return Padded(data, np.full(T, B, "i"), np.full(B, T, "i"), np.arange(B, dtype="i"))


def run(weights, x):
    layer = LSTM(1, 1)
    layer.initialize()
    layer.set_param("LSTM", weights)
    states, back = layer(padded(x), is_train=True)
    dx = back(padded(np.ones_like(x))).data.ravel()
    return states.data.sum(), layer.get_grad("LSTM"), dx


names = [f"{part} of gate {gate}" for part in ("Wx", "bx", "Wh", "bh") for gate in "fioc"]
weights = np.array([0.5] * 4 + [0.0] * 12, "f")
x, step = np.ones((2, 1, 1), "f"), np.float32(0.02)
_, theirs, dx = run(weights, x)
for n, name in enumerate(names[:12]):
    e = np.eye(16, dtype="f")[n] * step
    right = (run(weights + e, x)[0] - run(weights - e, x)[0]) / (2 * step)
    print(f"{name}: thinc {theirs[n]:7.4f}, right {right:7.4f}")
for t in range(2):
    e = np.eye(2, dtype="f")[t].reshape(2, 1, 1) * step
    right = (run(weights, x + e)[0] - run(weights, x - e)[0]) / (2 * step)
    print(f"dX[{t}]: thinc {dx[t]:7.4f}, right {right:7.4f}")
