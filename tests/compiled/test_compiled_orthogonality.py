"""The compiled descent against ``orthogonalize``: by ``==`` on fractions, within rounding else."""

import numpy as np
import pytest

from refnet.compiled import orthogonality
from refnet.compiled.orthogonality import descend
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import orthogonalize
from support.marks import both_dtypes
from support.subprocesses import run_python

SIZES = (1, 2, 7, 8, 9, 17, 40)


def draw(size, dtype, runs=3):
    rng = np.random.default_rng(size)
    return np.stack([initialize("gaussian", (size, size), rng) for _ in range(runs)]).astype(dtype)


def mismatches(size, dtype):
    """The runs whose steps, cost or matrix is not the reference's. Rounding is multiplied by at
    most 3 a step at the smallest singular values and shrinks at the others, as these come
    near 1 within the steps before: 100 N eps of an entry is ten times what was seen."""
    starts = draw(size, dtype)
    computed = descend(starts, 0.1, 1e-6, 100)
    wrong = 0
    for start, W, steps, cost in zip(starts, *computed):
        right = orthogonalize(start)
        near = abs(W - right.W).max() <= 100 * size * np.finfo(dtype).eps
        wrong += not (steps == right.steps and near and cost < 1e-6)
    return wrong


@both_dtypes
@pytest.mark.parametrize("size", SIZES)
def test_compiled_descent_is_the_reference(size, dtype):
    assert mismatches(size, dtype) == 0


@pytest.mark.parametrize(
    "bug",
    [
        lambda W, rate: (W * 1.001, rate),
        lambda W, rate: (W, 1.01 * rate),
        lambda W, rate: (W.transpose(0, 2, 1), rate),
    ],
)
def test_the_comparison_rejects(bug, monkeypatch):
    monkeypatch.setitem(
        globals(), "descend", lambda W, rate, *rest: orthogonality.descend(*bug(W, rate), *rest)
    )
    assert mismatches(9, np.float64) == 3


def test_ends_without_convergence():
    """Too few steps, a diverging one and one that is not a number: 0 steps, the others unharmed."""
    starts = draw(8, np.float64)
    assert (descend(starts, 0.1, 1e-6, 3).steps == 0).all()
    alone = descend(starts[:1], 0.1, 1e-6, 100)
    starts[1] *= 100
    starts[2, 0, 0] = np.nan
    W, steps, costs = descend(starts, 0.1, 1e-6, 100)
    assert steps[0] == alone.steps[0] and (W[0] == alone.W[0]).all()
    assert (steps[1:] == 0).all() and not np.isfinite(costs[1:]).any()
    assert descend(starts[:0], 0.1, 1e-6, 100).steps.shape == (0,)


EXACT = """
from fractions import Fraction as F
import numpy as np
from refnet.compiled.orthogonality import descend
from refnet.matrices.orthogonality import orthogonalize
start = np.array([[F(1, 2), F(1, 3)], [F(-1, 5), F(3, 4)]])
W, steps, costs = descend(start[None], F(1, 10), F(1, 10 ** 9), 2)
right = orthogonalize(start, F(1, 10), stop_cost=None, max_steps=2)
assert (W[0] == right.W).all() and steps[0] == 0 and abs(costs[0] - right.costs[-1]) < 1e-12
"""


def test_source_is_exact_on_fractions():
    """The kernel's Python source, the JIT off, equals the reference with ==."""
    done = run_python(EXACT, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr
