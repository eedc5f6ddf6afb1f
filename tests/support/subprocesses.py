"""Code in a process of its own."""

import os
import subprocess
import sys


def run_python(code, *words, cwd=None, **environment):
    """Code in a process of its own, to which a warning is an error."""
    return run(["-W", "error", "-c", code, *words], cwd, environment)


def run_refnet(*words, cwd=None, **environment):
    """The command line in a process of its own."""
    return run(["-m", "refnet", *words], cwd, environment)


def run(words, cwd, environment):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
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
