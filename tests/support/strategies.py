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


def net_shapes(net, B, h0=None):
    """The shapes of the parameters, with initial states if ``h0`` is 0 (shared) or 1."""
    start = net.init(np.random.default_rng(0), np.float64)
    states = {
        name: tuple(B if n == "B" else n for n in options[h0])
        for name, options in net.shapes.items()
        if name.startswith("h0") and h0 is not None
    }
    return {**{name: value.shape for name, value in start.items()}, **states}


def case_of(fill, net, T, B, h0=None, mask=None, labels=None):
    """A case of any net; ``fill`` makes an array from its shape, ``labels`` one of classes."""
    recurrent = isinstance(net, RecurrentNet)
    outputs = net.outputs if recurrent else net.widths[-1]
    params = {name: fill(shape) for name, shape in net_shapes(net, B, h0).items()}
    x = fill((T, B, net.inputs) if recurrent else (B, net.widths[0]))
    lead = (T, B) if recurrent and net.readout != "last" else (B,)
    y = labels(lead, outputs) if net.loss == "cross_entropy" else fill((*lead, outputs))
    direction = {name: fill(value.shape) for name, value in {**params, "x": x}.items()}
    return Case(net, params, Batch(x, y, mask), direction, fill((*lead, outputs)))


def drawn_case(draw, net, T, B, exact=True, masked=True):
    """The same with arrays, an h0 and a mask that Hypothesis draws."""

    def labels(shape, outputs):
        elements = st.integers(0, outputs - 1)
        return draw(hnp.arrays(np.int64, shape, elements=elements, fill=st.nothing()))

    h0 = draw(st.sampled_from([None, 0, 1])) if masked else None
    mask = draw(masks(T, B)) if masked else None
    return case_of(lambda shape: draw(arrays(shape, exact)), net, T, B, h0, mask, labels)


@st.composite
def rnn_cases(draw, names=tuple(RATIONAL), exact=True, loss="squared_error"):
    act = ACTIVATIONS[draw(st.sampled_from(list(names)))]
    T, B, D, C = (draw(st.integers(1, 3)) for _ in range(4))
    net = RecurrentNet(
        D,
        draw(st.sampled_from([2, 4] if act.pairs else [1, 2, 3])),
        C,
        activation=act,
        readout=draw(st.sampled_from(["last", "every"])),
        loss=loss,
        reduction=draw(st.sampled_from(["sum", "mean", "batch_mean"])),
        gain=draw(st.sampled_from([1, 2])),
        backend="reference",
    )
    case = drawn_case(draw, net, T, B, exact)
    if "slope" in case.params and not exact:
        case.params["slope"] = case.params["slope"] / 2  # the rounding bound takes |f'| <= 1
    return case


@st.composite
def feedforward_cases(draw, names=tuple(RATIONAL), exact=True, loss="squared_error"):
    act = ACTIVATIONS[draw(st.sampled_from(list(names)))]
    hidden = st.sampled_from([2, 4] if act.pairs else [1, 2, 3])
    widths = (draw(st.integers(1, 3)), *draw(st.lists(hidden, max_size=3)), draw(st.integers(1, 3)))
    net = FeedforwardNet(widths, activation=act, loss=loss, backend="reference")
    return drawn_case(draw, net, 0, draw(st.integers(1, 3)), exact, masked=False)
