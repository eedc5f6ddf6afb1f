"""Code in a process of its own."""

import os
import subprocess
import sys


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=600,
    )


def run_refnet(*words, **environment):
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "refnet", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=600,
    )


DRAW = """
from fractions import Fraction
import numpy as np
from refnet.maths.activations import ACTIVATIONS
rng = np.random.default_rng(0)
def draw(*shape):
    out = np.empty(shape, object)
    for i in np.ndindex(shape): out[i] = Fraction(int(rng.integers(-6, 7)), int(rng.integers(1, 4)))
    return out
count = 0
"""


def run_on_fractions(code):
    """The ``count`` of what ``code`` compared, the JIT off; it has ``draw``, which gives arrays of
    fractions."""
    result = run_python(DRAW + code + "print(count)", NUMBA_DISABLE_JIT="1")
    assert result.returncode == 0, result.stderr
    return int(result.stdout)
