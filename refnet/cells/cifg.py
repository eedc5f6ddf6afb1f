"""The LSTM with coupled input and forget gates: ``f = 1 - i``, and the gates i, g, o.

``1 - s(a) = s(-a)`` for the sigmoid s. So it is the LSTM whose rows of the forget gate are those
of the input gate with the sign changed, on either backend; their gradients are added up. (Hence
``clip_step`` bounds the pre-activation gradient of either gate, before they are added.)

Source: Greff et al. (2017), CIFG; ONNX, attribute input_forget.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells import lstm
from refnet.cells.lstm import Tape
from refnet.maths.activations import ACTIVATIONS, Activation

__all__ = ["CANDIDATE", "GATES", "OPTIONAL", "STATES", "Tape", "backward", "expanded", "folded",
           "forward", "init"]

GATES = ("i", "g", "o")
CANDIDATE = "g"
STATES = 2
OPTIONAL = ("Wpi", "Wpo")
SIGMOID = ACTIVATIONS["sigmoid"]
STACKED = ("Whh", "Wxh", "bh")


def init(hidden: int, peepholes: bool = False) -> Params:
    """Start values of the parameters other than Wxh and Whh: all zero."""
    return {"bh": np.zeros(3 * hidden)} | {
        name: np.zeros(hidden) for name in OPTIONAL if peepholes}


def expanded(p: Params) -> Params:
    """The parameters of the LSTM that computes the same."""
    H = len(p["bh"]) // 3
    p = {**p, **{name: np.concatenate([p[name][:H], -p[name][:H], p[name][H:]])
                 for name in STACKED}}
    return {**p, "Wpf": -p["Wpi"]} if "Wpi" in p else p


def folded(grads: Params) -> Params:
    """The gradients in the parameters, from those of that LSTM's, (G H, ...) each."""
    H = len(grads["bh"]) // 4
    out = {**grads, **{name: np.concatenate([grads[name][:H] - grads[name][H:2 * H],
                                             grads[name][2 * H:]]) for name in STACKED}}
    if "Wpf" in out:
        out["Wpi"] = out["Wpi"] - out.pop("Wpf")
    return out


def forward(p: Params, x: Array, h0: Array, act: Activation, gate: Activation = SIGMOID,
            run: Callable[..., Tape] = lstm.forward) -> Tape:
    """Run the cell over time; shapes as for ``lstm.forward``, with 3 gates.

    Checked by: tests/test_layer_options.py::test_coupled_gates_by_hand.
    """
    return run(expanded(p), x, h0, act, gate)


def backward(p: Params, tape: Tape, dh: Array, act: Activation, inputs: bool = True,
             gate: Activation = SIGMOID, pull: Callable[..., Params] = lstm.backward,
             **options: Any) -> Params:
    """Pull state gradients back through time; arguments and result as for ``lstm.backward``.

    Checked by: tests/test_stacked.py::test_push_equals_pull.
    """
    return folded(pull(expanded(p), tape, dh, act, inputs, gate, **options))
