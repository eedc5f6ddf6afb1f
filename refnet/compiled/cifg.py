"""The LSTM with coupled input and forget gates, compiled: ``refnet.cells.cifg`` on that LSTM."""

from functools import partial

from refnet.cells import cifg
from refnet.compiled import lstm

__all__ = ["backward", "forward"]

forward = partial(cifg.forward, run=lstm.forward)
backward = partial(cifg.backward, pull=lstm.backward)
