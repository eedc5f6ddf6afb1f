"""Recurrent cells: each a file with its forward and, directly beneath, its backward pass.

A cell module has ``GATES``, the gates in the order in which Whh, Wxh and bh stack their
blocks of H rows; ``STATES``, the number of arrays (B, H) in its state; a ``Tape`` with
x (T, B, D) and h (T + 1, B, H); ``forward(p, x, h0, act)`` and
``backward(p, tape, dh, act, inputs)``, where dh is ``common.Cotangents``. ``init(hidden)`` gives
start values of the parameters other than Wxh and Whh; ``OPTIONAL`` names vectors (H,) that p may
also hold; ``CANDIDATE`` is the gate that carries new content. The net checks the shapes of all
arrays once, where they enter (``net.shapes``). ``KERNEL``, if a cell that the package does not have
defines it, has the same ``forward`` and ``backward``, compiled.
"""

from functools import partial
from typing import Any

from refnet.cells import cifg, gru, gru_before, lstm, rnn
from refnet.common.names import Table, lacking

__all__ = ["CELLS"]

NEEDS = ("GATES", "STATES", "CANDIDATE", "OPTIONAL", "init", "forward", "backward")
CELLS: Table[Any] = Table(
    "cell",
    {"rnn": rnn, "lstm": lstm, "gru": gru, "gru_before": gru_before, "cifg": cifg},
    partial(lacking, needs=NEEDS),
)
