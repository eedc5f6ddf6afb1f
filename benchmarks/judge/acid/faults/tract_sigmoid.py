"""tract: sigmoid and tanh of float32 do not saturate

package: tract
known: that the sigmoid was negative for some inputs is closed
  (https://github.com/sonos/tract/issues/2618); what is left is not in its tracker's issues as far
  as they were searched

`ssigmoid` and `stanh` (linalg/src/generic/sigmoid.rs and tanh.rs) are quotients of polynomials on
a bounded interval, accurate absolutely. At -12 the sigmoid has two right digits, at -15 none, and
further down it stays at 4.5e-7: a closed forget gate multiplies what it should erase by 4.5e-7
where 2e-9 (at -20) and less is right. tanh ends at 1 - 6e-7, ten units roundoff below 1. LSTM and
GRU are explained by rounding where gates do not saturate, and not with large inputs.
"""

import tempfile

import numpy as np
import onnx
import tract
from onnx import TensorProto, helper

x = np.array([-30, -20, -15, -12, -5, 5, 9, 20], "f")
for operator in ("Sigmoid", "Tanh"):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "XY"]
    node = helper.make_node(operator, ["X"], ["Y"])
    model = helper.make_model(
        helper.make_graph([node], operator, ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 14)],
        ir_version=8,
    )
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        onnx.save(model, file.name)
        theirs = tract.onnx().load(file.name).into_model().into_runnable().run([x])[0].to_numpy()
    exact = x.astype(float)
    right = 1 / (1 + np.exp(-exact)) if operator == "Sigmoid" else np.tanh(exact)
    for at, value, true in zip(x, theirs, right):
        print(f"{operator}({at:g}): tract {value:.9g}, right {true:.9g}")
