"""The simple recurrent net of ``refnet.cells.rnn``, compiled: its step, and the walk over time."""

from typing import Any

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


def forward(p: Params, x: Array, h0: Array, act: Activation, **options: Any) -> Tape | walk.Tape:
    """As ``refnet.cells.rnn.forward``, float32 or float64; the tape's ``a`` is None where the
    slope is computed from ``h``. ``options``: those of ``Walk.forward``; with zoneout or noise the
    tape is the walk's, whose ``v`` are the states that the cell makes.

    Raises TypeError for any other dtype; the net checks the shapes.
    Checked by: tests/compiled/test_compiled.py::test_matches_the_reference.
    """
    tape = WALK.forward(p, x, h0, (act,), **options)
    if {"shares", "added"} & options.keys():
        return tape
    return Tape(tape.x, None if tape.a is None else tape.a[:, :, 0], tape.h)  # type: ignore[arg-type]


def backward(
    p: Params,
    tape: Tape | walk.Tape,
    dh: Array,
    act: Activation,
    inputs: bool = True,
    **options: Any,
) -> Params:
    """As ``refnet.cells.rnn.backward``, float32 or float64, for a tape made by ``forward`` above.
    ``options``: those of ``Walk.backward``.

    Checked by: tests/compiled/test_compiled.py::test_matches_the_reference,
    tests/compiled/test_compiled.py::test_same_bits.
    """
    if isinstance(tape, Tape):
        x, a, h = tape
        a = a if a is None else a[:, :, None]
        tape = walk.Tape(x, h, None, a, h[1:, :, None], None)
    return WALK.backward(p, tape, (dh,), (act,), inputs, **options)
