"""Other frameworks: their results by refnet's names, refnet inside them."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from refnet.batch import Params

__all__ = ["Refused", "framework_errors", "summed_over_sequences"]


class Refused(Exception):
    """What a framework says instead of computing; its error is the cause."""


@contextmanager
def framework_errors() -> Iterator[None]:
    """A framework computes inside: its errors, which have no common type, become Refused. What
    stands outside is refnet's own, and an error of it is a fault."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error


def summed_over_sequences(gradients: Params, params: Params) -> Params:
    """The gradients, with the sum of those of all sequences for an h0 that they share."""
    return {
        name: value.sum(axis=-2)
        if name.startswith("dh0") and value.ndim > np.ndim(params.get(name[1:], value))
        else value
        for name, value in gradients.items()
    }
