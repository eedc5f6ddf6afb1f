"""The table of compiled cells, under the names of ``refnet.cells.CELLS``."""

from types import ModuleType
from typing import Any

from refnet.cells import CELLS
from refnet.compiled import cifg, gru, gru_before, lstm, rnn

__all__ = ["KERNELS", "kernel_of"]

KERNELS: dict[str, ModuleType] = {
    "rnn": rnn,
    "lstm": lstm,
    "gru": gru,
    "gru_before": gru_before,
    "cifg": cifg,
}


def kernel_of(cell: str) -> Any:
    """The compiled passes of a cell, also of one in a file: what its ``KERNEL`` is; None if there
    are none.

    >>> kernel_of("rnn").__name__
    'refnet.compiled.rnn'
    """
    return KERNELS.get(cell) or getattr(CELLS[cell], "KERNEL", None)
