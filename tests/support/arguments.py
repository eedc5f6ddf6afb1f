"""What the tests of arguments share: a small problem, bad names, and what an error has to be."""

import re
from contextlib import contextmanager

import numpy as np
import pytest

from support.drawn import drawn

REFUSED = (ValueError, TypeError)
T, B, D, H, C = 5, 6, 3, 4, 2
W = np.eye(3) + 0.1
NAMES = ("no such name", "", None, 5)


def rng():
    return np.random.default_rng(0)


def problem(net, dtype=np.float64):
    """Parameters and a batch for a net."""
    return drawn(net, T, B, dtype)


@contextmanager
def refused(message, error=ValueError):
    """What must raise an error of this type, in one line that ``message``, a pattern, is in."""
    with pytest.raises(error, match=message) as raised:
        yield raised
    assert "\n" not in str(raised.value)


def said_well(error, parameter=None):
    """One line, of a documented type, that names the parameter."""
    assert isinstance(error, (ValueError, TypeError, ArithmeticError)), repr(error)
    assert "\n" not in str(error) and len(str(error)) < 600, str(error)
    if parameter is not None:
        assert re.search(rf"\b{parameter}\b|is unknown", str(error)), (parameter, str(error))
