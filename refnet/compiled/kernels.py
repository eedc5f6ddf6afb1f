"""The table of compiled cells, under the names of ``refnet.cells.CELLS``."""

from types import ModuleType

from refnet.compiled import cifg, gru, gru_before, lstm, rnn

__all__ = ["KERNELS"]

KERNELS: dict[str, ModuleType] = {
    "rnn": rnn,
    "lstm": lstm,
    "gru": gru,
    "gru_before": gru_before,
    "cifg": cifg,
}
