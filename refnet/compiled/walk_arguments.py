"""What the two kernels that walk a cell over time take, and the code that they share."""

from typing import NamedTuple

from refnet.compiled._jit import inlined, jit
from refnet.compiled.activations import Rule
from refnet.compiled.annotations import Arg
from refnet.compiled.noise import Noise
from refnet.compiled.step import Cell
from refnet.compiled.vector import fetch

__all__ = ["Gradients", "Rules", "Tape", "Weights", "fetching", "kernel"]


class Rules(NamedTuple):
    """The activation, that of the gates, the cell's vectors, padded, and what is random."""

    act: Rule
    gate: Rule
    vectors: Arg
    noise: Noise


class Weights(NamedTuple):
    """The matrices as the net has them, gate below gate."""

    Whh: Arg
    Wxh: Arg
    bh: Arg


class Tape(NamedTuple):
    """What the kernels keep and read: x (T, B, D); h and c (T + 1, B, H); the gates'
    pre-activations a, empty if no slope needs them, and values v, (T, B, gates, H); the kept panel
    k (T, B, H). What the cell has not got is h; of a cell alone, v is h from its second state,
    unless zoneout or noise changes the states."""

    x: Arg
    h: Arg
    c: Arg
    a: Arg
    v: Arg
    k: Arg


class Gradients(NamedTuple):
    """Those that come in, dh at the ``last`` states, or if that is 1 at each row's end, and dc at
    the last c, and those that go out:
    ``parts`` has for each block those of Whh, Wxh and bh, one after the other; the others are sums
    or counts for each block. The kernel clips those at the pre-activations to ``clip``, if
    ``clips``."""

    dh: Arg
    dc: Arg
    dx: Arg
    dh0: Arg
    parts: Arg
    dq: Arg
    dvectors: Arg
    clipped: Arg
    last: int
    clips: bool
    clip: Arg


def fetching(cell: Cell) -> Arg:
    """The part that brings what another step has on the tape."""
    PRODUCTS, GATES, STATES = len(cell.products), cell.gates, cell.states
    ALONE, KEPT = cell.alone, cell.residual >= 0

    @inlined
    def fetch_part(tape: Arg, at: int, later: int, s: Arg, rows: int, p: int) -> None:
        """Bring part p of what another step has on the tape, its states ``later`` rows after its
        gates: in a burst, the processor would wait for all of it."""
        H, few = s.H, rows * s.H // PRODUCTS
        many = few * GATES
        fetch(tape.v, at * GATES * H + p * many, many)
        if not ALONE:
            fetch(tape.h, (at + later) * H + p * few, few)
        if STATES > 1:
            fetch(tape.c, (at + later) * H + p * few, few)
        if KEPT:
            fetch(tape.k, at * H + p * few, few)
        if len(tape.a):
            fetch(tape.a, at * GATES * H + p * many, many)

    return fetch_part


def kernel(function: Arg, step: Arg) -> Arg:
    """The compiled function, under the name of the cell's module."""
    function.__module__, function.__qualname__ = step.__module__, function.__name__
    return jit(function)
