"""Keras: layers of float64 compute in float32 on JAX

package: keras
known: yes (https://github.com/keras-team/keras/issues/23704,
  https://github.com/keras-team/keras/issues/23223)

`BIT64_TO_BIT32_DTYPE` (keras/src/backend/common/dtypes.py) turns float64 into float32 in
`result_type` on every backend except TensorFlow, and operations cast to it: on JAX `tanh`, so that
layers with dtype="float64" have float32's errors in results that say float64. (The issues are
about the same table on PyTorch.) An LSTM of one unit, one step, x = 1, whose candidate's weight is
0.7 and all else 0, h = tanh(tanh(0.7) / 2) / 2:
"""

import os
import subprocess
import sys

CODE = """
import numpy as np, keras
if keras.backend.backend() == "jax":
    import jax
    jax.config.update("jax_enable_x64", True)
layer = keras.layers.LSTM(1, use_bias=False, dtype="float64")
layer.build((1, 1, 1))
layer.set_weights([np.array([[0, 0, 0.7, 0]]), np.zeros((1, 4))])
h = keras.ops.convert_to_numpy(layer(np.ones((1, 1, 1))))
right = np.tanh(np.tanh(0.7) / 2) / 2
print(f"{keras.backend.backend()}: {h.dtype} {h.item():.16g}, right {right:.16g}")
"""
for backend in ("tensorflow", "jax", "torch"):
    variables = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(
        [sys.executable, "-c", CODE], env=variables, text=True, capture_output=True
    )
    print(run.stdout.strip() or f"{backend}: {run.stderr.strip().splitlines()[-1][:200]}")
