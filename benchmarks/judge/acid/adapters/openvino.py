"""OpenVINO, forward: as it computes by default, and in the type that is asked for."""

import openvino

from benchmarks.judge.acid.model import model_of, with_start


def gradients(p, x, y):
    """The states."""
    model = openvino.Core().read_model(model_of(p, x))
    model.reshape(x.shape)
    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return with_start(compiled([x])[0])
