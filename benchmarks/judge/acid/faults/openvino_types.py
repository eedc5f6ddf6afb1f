"""OpenVINO: a model is computed in bfloat16 where the processor has it, one of float64 in float32

package: openvino
known: yes, the property INFERENCE_PRECISION_HINT is documented; results that differ between
  processors are reported (https://github.com/openvinotoolkit/openvino/issues/27795)

By default the CPU plugin computes RNN, LSTM and GRU in bfloat16 on processors with AMX or
AVX512-BF16, whatever the types of the model: three digits are right, and the same model gives
others elsewhere. With `INFERENCE_PRECISION_HINT` f32 all float32 rows are explained by rounding.
There is no such setting for float64: the results come back in float64 with float32's errors,
without a warning.
One unit, one step, h = tanh(0.7 x):
"""

import numpy as np
import openvino
from onnx import TensorProto, helper, numpy_helper

for kind, named in ((np.float32, TensorProto.FLOAT), (np.float64, TensorProto.DOUBLE)):
    x = np.ones((1, 1, 1), kind)
    weights = [
        numpy_helper.from_array(np.full((1, 1, 1), value, kind), name)
        for name, value in (("W", 0.7), ("R", 0.0))
    ]
    node = helper.make_node("RNN", ["X", "W", "R"], ["Y"], hidden_size=1)
    ends = (
        [helper.make_tensor_value_info("X", named, x.shape)],
        [helper.make_tensor_value_info("Y", named, (1, 1, 1, 1))],
    )
    graph = helper.make_graph([node], "rnn", *ends, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    for options in ({}, {"INFERENCE_PRECISION_HINT": "f32"}):
        read = openvino.Core().read_model(model.SerializeToString())
        h = openvino.compile_model(read, "CPU", options)([x])[0].item()
        exact = np.tanh(np.float64(kind(0.7)))
        print(f"{kind.__name__} {options}: OpenVINO {h:.16g}, right {exact:.16g}")
