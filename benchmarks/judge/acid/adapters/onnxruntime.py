"""ONNX Runtime, forward."""

import onnxruntime

from benchmarks.judge.acid.model import model_of, with_start


def gradients(p, x, y):
    """The states."""
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model_of(p, x), quiet, providers=providers)
    return with_start(session.run(["Y"], {"X": x})[0])
