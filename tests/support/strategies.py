"""Hypothesis strategies for nets, their parameters and batches."""

from fractions import Fraction
from typing import NamedTuple

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np

from refnet.batch import Batch
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet

SMALL = [Fraction(n, d) for d in (1, 2, 3) for n in range(-4, 5)]
RATIONAL = sorted(name for name, act in ACTIVATIONS.items() if act.rational)
SMOOTH = sorted(name for name, act in ACTIVATIONS.items() if act.smooth)
FLOATS = st.floats(-2, 2, allow_nan=False, width=32)


class Case(NamedTuple):
    net: object
    params: dict
    batch: Batch
    direction: dict
    cotangent: object


def arrays(shape, exact):
    """Arrays whose entries are all drawn (a filled one would hide a wrong transpose)."""
    if exact:
        return hnp.arrays(object, shape, elements=st.sampled_from(SMALL), fill=st.nothing())
    return hnp.arrays(np.float64, shape, elements=FLOATS, fill=st.nothing())


@st.composite
def masks(draw, T, B):
    """None, or a mask of sequences of different lengths, zero included."""
    if draw(st.booleans()):
        return None
    lengths = draw(st.lists(st.integers(0, T), min_size=B, max_size=B))
    return np.arange(T)[:, None] < np.array(lengths)


@st.composite
def targets(draw, shape, outputs, loss, exact):
    if loss == "cross_entropy":
        return draw(
            hnp.arrays(np.int64, shape, elements=st.integers(0, outputs - 1), fill=st.nothing())
        )
    return draw(arrays((*shape, outputs), exact))


@st.composite
def rnn_cases(draw, names=tuple(RATIONAL), exact=True, loss="squared_error", learn_h0=None):
    act = ACTIVATIONS[draw(st.sampled_from(list(names)))]
    T, B, D, C = (draw(st.integers(1, 3)) for _ in range(4))
    H = draw(st.sampled_from([2, 4] if act.name == "oplu" else [1, 2, 3]))
    readout = draw(st.sampled_from(["last", "every"]))
    net = RecurrentNet(
        D,
        H,
        C,
        activation=act,
        readout=readout,
        loss=loss,
        reduction=draw(st.sampled_from(["sum", "mean", "batch_mean"])),
        gain=draw(st.sampled_from([1, 2])),
        backend="reference",
    )
    shapes = {
        "Whh": (H, H),
        "Wxh": (H, D),
        "bh": (H,),
        "Why": (C, H),
        "by": (C,),
        **{name: shape(H) for name, shape, _ in act.start},
    }
    h0 = draw(st.sampled_from([None, (H,), (B, H)]))
    if h0 is not None:
        shapes["h0"] = h0
    params = {name: draw(arrays(shape, exact)) for name, shape in shapes.items()}
    if "slope" in params and not exact:
        params["slope"] = params["slope"] / 2  # the rounding bound takes |f'| <= 1
    x = draw(arrays((T, B, D), exact))
    steps = (T, B) if readout == "every" else (B,)
    batch = Batch(x, draw(targets(steps, C, loss, exact)), draw(masks(T, B)))
    direction = {
        name: draw(arrays(np.shape(value), exact)) for name, value in {**params, "x": x}.items()
    }
    return Case(net, params, batch, direction, draw(arrays((*steps, C), exact)))


@st.composite
def feedforward_cases(draw, names=tuple(RATIONAL), exact=True, loss="squared_error"):
    act = ACTIVATIONS[draw(st.sampled_from(list(names)))]
    B = draw(st.integers(1, 3))
    hidden = st.sampled_from([2, 4] if act.name == "oplu" else [1, 2, 3])
    widths = (draw(st.integers(1, 3)), *draw(st.lists(hidden, max_size=3)), draw(st.integers(1, 3)))
    net = FeedforwardNet(widths, activation=act, loss=loss, backend="reference")
    shapes = {}
    for layer in range(1, len(widths)):
        shapes[f"W{layer}"] = (widths[layer], widths[layer - 1])
        shapes[f"b{layer}"] = (widths[layer],)
        if layer <= net.depth:
            shapes |= {f"{name}{layer}": shape(widths[layer]) for name, shape, _ in act.start}
    params = {name: draw(arrays(shape, exact)) for name, shape in shapes.items()}
    x = draw(arrays((B, widths[0]), exact))
    batch = Batch(x, draw(targets((B,), widths[-1], loss, exact)))
    direction = {
        name: draw(arrays(np.shape(value), exact)) for name, value in {**params, "x": x}.items()
    }
    return Case(net, params, batch, direction, draw(arrays((B, widths[-1]), exact)))
