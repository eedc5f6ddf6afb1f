"""ONNX's operators RNN, LSTM and GRU with every input and attribute, judged forward.

Source: ONNX operators RNN-22, LSTM-22, GRU-22. Checked by: tests/check/test_onnx.py.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refnet.check.adapters.onnx_nets import LayerCase
from refnet.check.cases import random_form
from refnet.interop.onnx_nodes import ACTIVATIONS, CONSTANTS, SPECIAL, activation_of
from refnet.maths.activations import Activation, activation
from refnet.nets.stacked import StackedNet

__all__ = ["cases"]


def _activation(name: str) -> Activation | str:
    if name in SPECIAL:
        return activation_of(name, *CONSTANTS[name])
    alpha = {"leaky_relu": 0.125, "elu": 0.75}.get(name)
    return activation(name, alpha) if alpha else name


KINDS: dict[str, dict[str, Any]] = {
    "RNN": {"cell": "rnn"},
    "LSTM": {"cell": "lstm"},
    "LSTM input_forget": {"cell": "cifg"},
    "GRU linear_before_reset=1": {"cell": "gru"},
    "GRU": {"cell": "gru_before"},
}
VARIANTS = ("", "layout 1", "clip", "sequence_lens", "initial states", "two biases", "peepholes")


def cases(
    dtype: DTypeLike, sizes: tuple[int, int, int] = (6, 4, 3), seed: int = 0
) -> Iterator[LayerCase]:
    """Every operator in every direction and form, then every activation. ``sizes``: T, H, B."""
    turn = 0
    make = partial(_case, dtype, sizes)
    for (name, options), direction, variant in product(
        KINDS.items(), ("forward", "reverse", "bidirectional"), VARIANTS
    ):
        if variant == "peepholes" and options["cell"] not in ("lstm", "cifg"):
            continue
        turn += 1
        yield make([seed, turn], name, direction, variant, options)
    for name in "relu sigmoid softsign leaky_relu elu Affine ScaledTanh HardSigmoid".split():
        for kind, cell in (("RNN", "rnn"), ("LSTM", "lstm"), ("GRU", "gru_before")):
            turn += 1
            yield make(
                [seed, turn],
                f"{kind} {ACTIVATIONS.get(name, name)}",
                "forward",
                "",
                {"cell": cell, "activation": _activation(name)},
            )
    yield make(
        [seed, 0],
        "LSTM, gates HardSigmoid",
        "bidirectional",
        "",
        {"cell": "lstm", "gate": _activation("HardSigmoid")},
    )


def _case(
    dtype: DTypeLike,
    sizes: tuple[int, int, int],
    seed: list[int],
    name: str,
    direction: str,
    variant: str,
    options: dict[str, Any],
) -> LayerCase:
    T, H, B = sizes
    both = direction == "bidirectional"
    net = StackedNet(
        3,
        H,
        (1 + both) * H,
        **options,
        readout="none",
        loss="none",
        reduction="sum",
        bidirectional=both,
        clip_forward=0.5 if variant == "clip" else None,
    )
    added = {"initial states": ("h0",), "two biases": ("bhh",), "peepholes": ("Wp",)}
    params, batch = random_form(
        net,
        np.random.default_rng(seed),
        dtype,
        T,
        B,
        added.get(variant, ()),
        variant == "sequence_lens",
    )
    what = ", ".join(filter(None, (name, direction, variant)))
    return LayerCase(what, net, params, batch, direction, int(variant == "layout 1"))
