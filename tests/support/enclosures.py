"""Nets that are certified and held against mpmath, and which of their entries are wrong."""

from fractions import Fraction

import flint
import numpy as np

from refnet.cells import CELLS
from refnet.check.cases import random_batch
from refnet.exact import certify
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.initializers import orthogonal
from refnet.matrices.transitions import TRANSITIONS, transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.balls import exactly
from support.highprecision import ERROR, evaluate

SQUARED = {"loss": "squared_error", "readout": "every"}


def miss(ball, true):
    """How far the true value lies outside the ball, beyond mpmath's own error; 0 if inside."""
    ball = flint.arb(ball)
    off = abs(exactly(ball.mid()) - exactly(true)) - exactly(ball.rad())
    return max(off - Fraction(1, 10**ERROR), 0)


def faults(net, params, batch, **options):
    """Entries checked, those outside their ball, those rounded wrongly."""
    certified = certify(net, params, batch, **options)
    true = evaluate(net, params, batch)
    checked, outside, misrounded = 0, [], []
    for name, enclosure in certified.named().items():
        assert enclosure.exact.shape == true[name].shape, name
        for index in np.ndindex(enclosure.exact.shape):
            value = true[name][index]
            checked += 1
            if miss(enclosure.exact[index], value):
                outside.append((name, index))
            if enclosure.value[index] != float(exactly(value)):
                misrounded.append((name, index))
    return checked, outside, misrounded


def draw(net, seed=0, T=3, B=2, mask=None, dtype=np.float64, h0=None, scale=1, **options):
    """Parameters and a batch without any special values."""
    rng = np.random.default_rng(seed)
    if net.transition is not None and hasattr(net, "cell"):
        options["recurrent"] = orthogonal
    params = {
        name: (scale * (value + rng.uniform(-0.4, 0.4, value.shape))).astype(dtype)
        for name, value in net.init(rng, np.float64, **options).items()
    }
    if h0 is not None:
        params["h0"] = rng.normal(size=h0).astype(dtype)
    return params, random_batch(net, rng, dtype, T, B)._replace(mask=mask)


SHORT = np.array([[True, True], [True, False], [False, False]])


def cases():
    """Every cell, activation, transition, loss, reduction, read-out, mask and start."""
    for cell in CELLS:
        yield cell, RecurrentNet(2, 4, 3, cell=cell), {}
        yield (
            f"{cell}-every",
            RecurrentNet(
                2, 4, 3, cell=cell, learn_h0=True, gain=1.05, reduction="batch_mean", **SQUARED
            ),
            {"mask": SHORT},
        )
        yield (
            f"{cell}-last",
            RecurrentNet(2, 4, 3, cell=cell),
            {
                "mask": SHORT,
                "dtype": np.float32,
                "h0": (2, 2, 4) if cell in ("lstm", "cifg") else (2, 4),
            },
        )
    yield "peepholes", RecurrentNet(2, 4, 3, cell="lstm", gain=1.25), {"peepholes": True}
    yield "coupled peepholes", RecurrentNet(2, 4, 3, cell="cifg"), {"peepholes": True}
    yield "projection", RecurrentNet(2, 4, 3, cell="lstm", projection=2, learn_h0=True), {}
    yield "saturated", RecurrentNet(2, 4, 3, cell="gru"), {"scale": 12}
    yield "vanishing", RecurrentNet(2, 4, 3), {"scale": 1e-6}
    for name, act in ACTIVATIONS.items():
        for cell in CELLS:
            yield f"{name}-{cell}", RecurrentNet(2, 4, 2, cell=cell, activation=act, **SQUARED), {}
        yield f"{name}-layers", FeedforwardNet((3, 4, 4, 2), activation=act), {}
    for name in TRANSITIONS:
        options = [{"margin": 0.5}, {"margin": 0}, {}] if name == "svd" else [{}]
        for option in options:
            chosen = transition(name, **option)
            label = f"{name}{option.get('margin', '')}"
            yield f"{label}-rnn", RecurrentNet(2, 4, 3, transition=chosen), {}
            yield (
                f"{label}-gru",
                RecurrentNet(2, 2, 2, cell="gru", transition=chosen, reduction="sum", **SQUARED),
                {},
            )
            yield (
                f"{label}-layers",
                FeedforwardNet((3, 4, 4, 2, 2), transition=chosen),
                ({"weights": orthogonal} if name != "schur" else {}),
            )


CASES = {label: (net, options) for label, net, options in cases()}
