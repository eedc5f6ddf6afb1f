"""The LSTM with coupled input and forget gates: ``f = 1 - i``, and the gates i, g, o.

The sigmoid s satisfies ``1 - s(a) = s(-a)``. So the LSTM computes this cell, on either backend: the
rows of its forget gate are those of the input gate with their sign changed, and the gradients of
the two gates are added. (Hence ``clip_step`` bounds the pre-activation gradient of each gate before
the addition.)

Source: Greff et al. (2017), CIFG; ONNX, attribute input_forget.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells import lstm
from refnet.cells.common import Cotangents
from refnet.cells.lstm import Tape
from refnet.maths.activations import ACTIVATIONS, Activation

__all__ = [
    "CANDIDATE",
    "GATES",
    "OPTIONAL",
    "STATES",
    "Tape",
    "backward",
    "expanded",
    "folded",
    "forward",
    "init",
]

GATES = ("i", "g", "o")
CANDIDATE = "g"
STATES = 2
OPTIONAL = ("Wpi", "Wpo")
SIGMOID = ACTIVATIONS["sigmoid"]
STACKED = ("Whh", "Wxh", "bh")


def init(hidden: int, peepholes: bool = False) -> Params:
    """Start values of the parameters other than Wxh and Whh: all zero.

    >>> sorted(init(2, peepholes=True))
    ['Wpi', 'Wpo', 'bh']
    """
    return {"bh": np.zeros(3 * hidden)} | {name: np.zeros(hidden) for name in OPTIONAL if peepholes}


def expanded(p: Params) -> Params:
    """The parameters of the LSTM that computes the same.

    >>> p = {"Whh": np.zeros((3, 1)), "Wxh": np.zeros((3, 1)), "bh": np.array([1.0, 2.0, 3.0])}
    >>> expanded(p)["bh"].tolist()  # from i, g, o: i, f, g, o
    [1.0, -1.0, 2.0, 3.0]
    """
    H = len(p["bh"]) // 3
    p = {
        **p,
        **{name: np.concatenate([p[name][:H], -p[name][:H], p[name][H:]]) for name in STACKED},
    }
    return {**p, "Wpf": -p["Wpi"]} if "Wpi" in p else p


def folded(grads: Params) -> Params:
    """The gradients of these parameters, from those of that LSTM's.

    >>> grads = {"Whh": np.zeros((4, 1)), "Wxh": np.zeros((4, 1)), "bh": np.arange(1.0, 5.0)}
    >>> folded(grads)["bh"].tolist()  # i's less f's, g's, o's
    [-1.0, 3.0, 4.0]
    """
    H = len(grads["bh"]) // 4
    out = {
        **grads,
        **{
            name: np.concatenate([grads[name][:H] - grads[name][H : 2 * H], grads[name][2 * H :]])
            for name in STACKED
        },
    }
    if "Wpf" in out:
        out["Wpi"] = out["Wpi"] - out.pop("Wpf")
    return out


def forward(
    p: Params,
    x: Array,
    h0: Array,
    act: Activation,
    gate: Activation = SIGMOID,
    run: Callable[..., Tape] = lstm.forward,
    **options: Any,
) -> Tape:
    """Run the cell over time; shapes and options as for ``lstm.forward``, with 3 gates.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> p = {"Whh": np.zeros((6, 2)), "Wxh": np.ones((6, 1)), **init(2)}
    >>> forward(p, np.ones((3, 1, 1)), np.zeros((2, 1, 2)), ACTIVATIONS["tanh"]).h.shape
    (4, 1, 2)

    Checked by: tests/exact/test_enclosures.py::test_balls_contain_mpmath.
    """
    return run(expanded(p), x, h0, act, gate, **options)


def backward(
    p: Params,
    tape: Tape,
    dh: Cotangents,
    act: Activation,
    inputs: bool = True,
    gate: Activation = SIGMOID,
    pull: Callable[..., Params] = lstm.backward,
    **options: Any,
) -> Params:
    """Pull state gradients back through time; arguments and result as for ``lstm.backward``.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> tanh, p = ACTIVATIONS["tanh"], {"Whh": np.zeros((6, 2)), "Wxh": np.ones((6, 1)), **init(2)}
    >>> tape = forward(p, np.ones((3, 1, 1)), np.zeros((2, 1, 2)), tanh)
    >>> backward(p, tape, np.ones((1, 1, 2)), tanh)["Whh"].shape
    (6, 2)

    Checked by: tests/nets/test_stacked.py::test_push_equals_pull.
    """
    return folded(pull(expanded(p), tape, dh, act, inputs, gate, **options))
