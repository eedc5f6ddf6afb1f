"""The cases of golden vectors: cells, activations, losses, transitions, sizes and edge cases.

Checked by: tests/check/test_vectors.py::test_catalogue_covers_what_it_says.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.initializers import orthogonal
from refnet.matrices.transitions import TRANSITIONS, transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["Case", "catalogue"]

Case = tuple[str, Net, Params, Batch]
ADDED = {"h0": "h0", "biases": "bhh"}
"""The starts of the names of the parameters that a form adds."""
FACTORS = (0, 2**-12, 2**-8, 2**-5, 1 / 4, 1 / 2, 3 / 4, 7 / 4, 7 / 2, 8)
"""Factors on a matrix of 1-norm 1.03, whose products are near ``refnet.check.cases.NORMS``."""


def _draw(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1) -> Array:
    """Multiples of 1/1024 of ``scale``, below it: exact in float32 and in short decimals.

    No elementary function is called, so every machine draws the same bits.
    """
    return (rng.integers(-1023, 1024, shape) * (scale / 1024)).astype(np.float32)


def _case(
    name: str,
    net: Net,
    *forms: str,
    T: int = 6,
    B: int = 3,
    scale: float = 1,
    inputs: float = 1,
    head: float = 1,
    **options: Any,
) -> Case:
    """``forms``: some of mask, h0, biases and kink; ``options``: those of ``net.init``."""
    rng = np.random.default_rng(list(name.encode()))
    # for the names and shapes alone; every transition takes an orthogonal start
    start = net.init(np.random.default_rng(0), np.float32, weights=orthogonal, **options)
    params: Params = {}
    for key in sorted(start):
        fan = start[key].shape[-1] if start[key].ndim == 2 else 2
        size = scale / 2.0 ** round(np.log2(fan) / 2)
        params[key] = _draw(rng, start[key].shape, size * (head if key in ("Why", "by") else 1))
        if key.endswith(".D"):
            params[key] = np.where(params[key] < 0, -1, 1).astype(np.float32)
    if isinstance(net, RecurrentNet):
        x, C, every = _draw(rng, (T, B, net.inputs), inputs), net.outputs, net.readout != "last"
        for key, shapes in net.shapes.items():
            if any(key.startswith(ADDED[form]) for form in forms if form in ADDED):
                params[key] = _draw(rng, shapes[0])  # type: ignore[arg-type]
    else:
        x, C, every = _draw(rng, (B, net.widths[0]), inputs), net.widths[-1], False
    if "kink" in forms:  # every pre-activation of the first example is exactly zero
        params["bh"] = np.zeros_like(params["bh"])
        x[:, 0] = 0
    shape = (T, B) if every else (B,)
    y: Array = (
        rng.integers(0, C, shape) if net.loss == "cross_entropy" else _draw(rng, (*shape, C), 2)
    )
    lengths = rng.integers(1, T + 1, B)
    lengths[0] = T
    steps_mask = np.arange(T)[:, None] < lengths if "mask" in forms else None
    return name, net, params, Batch(x, y, steps_mask)


def _rescaled(case: Case, factor: float) -> Case:
    """The case with another 1-norm of the matrix whose exponential is taken."""
    name, net, params, batch = case
    return (
        f"{name}-times-{factor:.3g}",
        net,
        {**params, "Whh.A": params["Whh.A"] * np.float32(factor)},
        batch,
    )


def catalogue() -> Iterator[Case]:
    """Cells, activations, losses, transitions, sizes, edge cases: name, net, parameters, batch."""
    for cell in ("rnn", "lstm", "gru", "gru_before"):
        base = RecurrentNet(2, 4, 3, cell=cell)
        every = replace(base, readout="every")
        yield _case(f"{cell}-last", base)
        yield _case(f"{cell}-every", every)
        yield _case(f"{cell}-one-step", base, T=1, B=1)
        yield _case(f"{cell}-masked", every, "mask")
        yield _case(f"{cell}-ragged", base, "mask")
        yield _case(f"{cell}-h0", base, "h0")
        yield _case(f"{cell}-squared", replace(base, loss="squared_error"))
        yield _case(f"{cell}-saturated", base, scale=16, inputs=16)
        yield _case(f"{cell}-long", replace(base, hidden=8), T=60, B=2)
    yield from _parts()
    yield from _special()


def _parts() -> Iterator[Case]:
    """Activations and transitions."""
    plain = RecurrentNet(2, 4, 3)
    for name, act in ACTIVATIONS.items():
        net = replace(plain, activation=act)
        yield _case(f"rnn-{name}", net)
        yield _case(
            f"rnn-{name}-squared-every", replace(net, loss="squared_error", readout="every")
        )
        yield _case(f"feedforward-{name}", FeedforwardNet((3, 4, 4, 2), activation=act), B=4)
        if not act.smooth:
            yield _case(f"rnn-{name}-kink", net, "kink")
    for name in TRANSITIONS:
        matrix = transition(name, margin=0.5) if name == "svd" else transition(name)
        case = _case(f"rnn-{name}", replace(plain, transition=matrix))
        yield case
        if name == "expm":
            yield from (_rescaled(case, factor) for factor in FACTORS)
        yield _case(f"feedforward-{name}", FeedforwardNet((4, 4, 4, 2), transition=matrix))


def _special() -> Iterator[Case]:
    """Options, scales and sizes."""
    plain = RecurrentNet(2, 4, 3)
    yield _case("lstm-peepholes", replace(plain, cell="lstm"), peepholes=True)
    yield _case("gru-gain", replace(plain, cell="gru", gain=1.25))
    yield _case("lstm-svd", replace(plain, cell="lstm", transition=transition("svd")))
    for reduction in ("sum", "batch_mean"):
        yield _case(
            f"rnn-{reduction}", replace(plain, reduction=reduction, readout="every"), "mask"
        )
    yield _case("rnn-huge-logits", plain, head=2.0**14)
    yield _case("rnn-vanishing", replace(plain, hidden=2), T=100, scale=2.0**-6)
    yield _case(
        "rnn-exploding",
        replace(plain, activation=ACTIVATIONS["identity"], loss="squared_error"),
        T=30,
        scale=4,
    )
    yield _case("rnn-gain", replace(plain, gain=1.25))
    yield _case("rnn-wide", RecurrentNet(8, 32, 10), T=20, B=4)
    for cell in ("rnn", "lstm", "gru"):
        yield _case(f"{cell}-tiny", RecurrentNet(1, 2, 2, cell=cell, readout="every"), T=2, B=1)
        yield from _stacked(cell)
    for readout in ("last", "every"):
        yield _case(f"cifg-{readout}", replace(plain, cell="cifg", readout=readout), "mask")
        yield _case(
            f"lstm-projected-{readout}",
            replace(plain, cell="lstm", projection=2, readout=readout),
            "h0",
        )
    yield _case("cifg-peepholes", replace(plain, cell="cifg"), peepholes=True)
    yield _case(
        "stacked-lstm-projected",
        StackedNet(2, 4, 3, cell="lstm", projection=3, layers=2, bidirectional=True),
        "mask",
        "h0",
    )
    yield _case("feedforward-linear", FeedforwardNet((3, 2)), B=2)
    yield _case("feedforward-deep", FeedforwardNet((8, *(8,) * 10, 4)), B=4)
    yield _case("feedforward-squared", FeedforwardNet((3, 5, 2), loss="squared_error"), B=1)


def _stacked(cell: str) -> Iterator[Case]:
    """Layers on top of each other, in one direction and both; a cotangent in place of a loss."""
    two = StackedNet(2, 4, 3, cell=cell, layers=2, bidirectional=True)
    alone = StackedNet(
        2, 4, 8, cell=cell, bidirectional=True, readout="none", loss="none", reduction="sum"
    )
    tiny = StackedNet(1, 2, 2, cell=cell, layers=2, bidirectional=True, readout="every")
    yield _case(f"stacked-{cell}-tiny", tiny, T=2, B=1)
    yield _case(f"stacked-{cell}-tiny-lengths", tiny, "mask", T=2, B=2)
    yield _case(f"stacked-{cell}-one-direction", replace(two, bidirectional=False, layers=3))
    yield _case(f"stacked-{cell}-last", two)
    yield _case(f"stacked-{cell}-every", replace(two, readout="every"))
    yield _case(f"stacked-{cell}-ragged", two, "mask")
    yield _case(f"stacked-{cell}-lengths", replace(two, readout="every"), "mask")
    yield _case(f"stacked-{cell}-h0-biases", two, "h0", "biases")
    yield _case(f"bidirectional-{cell}-cotangent", alone)
    yield _case(f"bidirectional-{cell}-cotangent-lengths", alone, "mask")
    both = cell == "rnn"  # the others take twice as long
    yield _case(
        f"stacked-{cell}-784",
        replace(alone, hidden=2, outputs=2 + 2 * both, bidirectional=both),
        T=784,
        B=1,
    )
