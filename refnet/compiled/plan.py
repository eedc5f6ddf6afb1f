"""The plan that follows from a cell and the sizes alone: the division of the batch, and the
workspace of a thread of the walk (``refnet.compiled.walk``), each part aligned to a whole vector::

    forward (Room)                                back (BackRoom)
    w       [Whh' / Wxh' / bh], packed, of        w, wx   Whh; Wxh, packed, of every product
            every product                         seen    chunk rows [h | x | 1]
    now     rows [h | x | 1]                      second  chunk rows [s | x | 1], of two stages
    after   rows [h | x | 1] of the next step,    panels  products, and the cell's own panels
            if the cell is alone; or [s | x | 1]  states  those that step_back reads
            of the second stage                   e       the gradient at h, or at h and c
    panels  products, and the cell's own panels   pre     pre-activations, where slopes need them
    state   h, or h and c                         da      chunk rows for every product's gradient
                                                  dx      chunk rows of the inputs' gradients
                                                  totals  H rows [dWhh | dWxh | dbh] for every
                                                          product
                                                  direct  gradients that zoneout, or dropout beside
                                                          the cell's own path, passes by the cell

Checked by: tests/compiled/test_compiled.py::test_source_is_exact_on_fractions.
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import Layout, cut_up
from refnet.compiled.noise import Noise
from refnet.compiled.step import Cell

__all__ = ["CHUNK", "BackRoom", "Plan", "Room", "Sizes", "plan"]

CHUNK = 96
"""The number of rows in one product for the weight gradients. 64 is faster for narrow nets and 128
for some wide ones, by a few per cent of a backward pass."""


class Sizes(NamedTuple):
    """Those of the arrays (``Layout``) and of their rows: ``units`` is the number of vectors in
    ``width``, for a kernel should not divide at every step; ``row`` is H + D + 1, ``wide`` and
    ``padded`` are ``row`` and D padded to whole vectors; rows [h | x | 1] are ``step`` apart in a
    forward pass, ``wide`` in a backward pass."""

    T: int
    B: int
    D: int
    H: int
    lane: int
    width: int
    units: int
    row: int
    step: int
    wide: int
    padded: int
    chunk: int


class Room(NamedTuple):
    """The parts of a work space, (start, count) of each, and its end."""

    w: Arg
    now: Arg
    after: Arg
    panels: Arg
    state: Arg
    end: int


class BackRoom(NamedTuple):
    """The parts of a backward work space, (start, count) of each, and its end."""

    w: Arg
    wx: Arg
    seen: Arg
    second: Arg
    panels: Arg
    states: Arg
    e: Arg
    pre: Arg
    da: Arg
    dx: Arg
    totals: Arg
    direct: Arg
    end: int


def _places(lane: int, **sizes: int) -> dict[str, Arg]:
    """Part after part, each from a whole vector on: (start, count) by name, and the end."""
    places: dict[str, Arg] = {}
    start = 0
    for name, count in sizes.items():
        places[name] = (start, count)
        start += -(-count // lane) * lane
    return {**places, "end": start}


class Plan(NamedTuple):
    """All that follows from the sizes; ``counts``: the numbers of Whh, Wxh, bh, and of each
    part of a tape; ``ends`` (B,): T for each row; ``noise``: that of a net without any."""

    lay: Layout
    sizes: Sizes
    room: Room
    back: BackRoom
    counts: list[int]
    ends: Array
    noise: Noise


def plan(cell: Cell, slopes: bool, dtype: Arg, T: int, B: int, D: int, gates: int, H: int) -> Plan:
    """The plan for a cell and its sizes; ``slopes``: whether they need the pre-activations."""
    lay = cut_up(dtype, T, B, D, gates, H)
    lane, rows, width, row = lay.lane, lay.rows, lay.width, H + D + 1
    wide, padded = (-(-n // lane) * lane for n in (row, D))
    step, chunk = max(width, wide), max(CHUNK // max(rows, 1), 1) * rows
    P, G, size = len(cell.products), cell.gates, rows * width
    states, values = (T + 1) * B * H, T * B * G * H
    counts = [
        G * H * H,
        G * H * D,
        G * H,
        T * B * D,
        states,
        states,
        values * slopes,
        values,
        states if cell.residual < 0 else T * B * H,
    ]
    room = Room(
        **_places(
            lane,
            w=P * row * width,
            now=rows * step,
            after=rows * step,
            panels=cell.panels * size,
            state=cell.states * size,
        )
    )
    back = BackRoom(
        **_places(
            lane,
            w=P * H * width,
            wx=P * H * padded,
            seen=chunk * wide,
            second=(cell.stages - 1) * chunk * wide,
            panels=cell.panels * size,
            states=max(len(cell.reads), 1) * size,
            e=cell.states * size,
            pre=G * size,
            da=P * chunk * width + cell.alone * size,
            dx=chunk * padded,
            totals=P * H * wide,
            direct=cell.states * size,
        )
    )
    sizes = Sizes(T, B, D, H, lane, width, width // lane, row, step, wide, padded, chunk)
    none = np.empty(0, dtype)
    return Plan(lay, sizes, room, back, counts, np.full(B, T), Noise(none, none, 0, none))
