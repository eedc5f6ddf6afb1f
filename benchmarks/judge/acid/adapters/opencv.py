"""OpenCV's dnn module, forward."""

import cv2
import numpy as np

from benchmarks.judge.acid.model import model_of, with_start


def gradients(p, x, y):
    """The states."""
    net = cv2.dnn.readNetFromONNX(np.frombuffer(model_of(p, x), np.uint8))
    net.setInput(x, "X")
    T, B, _ = x.shape
    return with_start(net.forward("Y").reshape(T, 1, B, -1))
