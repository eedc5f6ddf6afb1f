"""The simple recurrent net of ``refnet.cells.rnn``, compiled: its step, and the walk over time."""

from refnet.batch import Array, Params
from refnet.cells.rnn import GATES, STATES, Tape, init
from refnet.compiled import walk
from refnet.compiled._jit import inlined
from refnet.compiled.annotations import Arg
from refnet.compiled.step import Cell, Product, activate, slope
from refnet.compiled.walk import Walk
from refnet.maths.activations import Activation

__all__ = ["GATES", "STATES", "Tape", "backward", "forward", "init"]


@inlined
def step(at: Arg, stage: int) -> None:
    """``h = f(a)``."""
    (h,) = at.panels
    activate(at, at.act, 0, h)


@inlined
def step_back(at: Arg, stage: int) -> None:
    """``da = f'(a) e``; da stands where e stood."""
    (h,) = at.panels
    (e,) = at.e
    slope(at, at.act, 0, h, e)


WALK = Walk("rnn", Cell((Product(0),), alone=True), step, step_back)


def forward(
    p: Params,
    x: Array,
    h0: Array,
    act: Activation,
    keeps: str = "tape",
    lengths: Array | None = None,
) -> Tape:
    """As ``refnet.cells.rnn.forward``, float32 or float64; the tape's ``a`` is None where the
    slope is computed from ``h``. What of it is kept: one of ``walk.KEEPS``.

    Raises TypeError for any other dtype; the net checks the shapes.
    Checked by: tests/compiled/test_compiled.py::test_matches_the_reference.
    """
    x, h, _, a, _, _ = WALK.forward(p, x, h0, (act,), keeps, lengths)
    return Tape(x, a if a is None else a[:, :, 0], h)  # type: ignore[arg-type]


def backward(
    p: Params,
    tape: Tape,
    dh: Array,
    act: Activation,
    inputs: bool = True,
    clip: float | None = None,
    lengths: Array | None = None,
) -> Params:
    """As ``refnet.cells.rnn.backward``, float32 or float64, for a tape made by ``forward`` above.

    Checked by: tests/compiled/test_compiled.py::test_matches_the_reference,
    tests/compiled/test_compiled.py::test_same_bits.
    """
    x, a, h = tape
    a = a if a is None else a[:, :, None]
    whole = walk.Tape(x, h, None, a, h[1:, :, None], None)
    return WALK.backward(p, whole, (dh,), (act,), inputs, clip, lengths)
