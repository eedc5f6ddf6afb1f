"""PyTorch's matrix exponential against the series: ``python -m benchmarks.exponential``.

For a single matrix `torch.linalg.matrix_exp` takes a Taylor polynomial whose degree follows from
the 1-norm. The powers of ``A = norm S``, S with ones above its diagonal, do not overlap, so that
``exp(A)[0, k] = norm^k / k!`` shows the polynomial term by term; and the exponential of
[[0, a], [-a, 0]] is the rotation by a. results/exponential.json keeps each degree with its range of
norms, its wrong terms, and the largest error of the rotations' sines in unit roundoffs of a.
"""

import math
import sys
from itertools import groupby

import numpy as np
import torch

from benchmarks.records import Row, save
from refnet.batch import Array
from refnet.runs.rows import environment

HIGHEST = 18
"""The highest degree; beyond its range, a matrix is scaled and its exponential squared."""
TERMS = HIGHEST + 1
NORMS = np.geomspace(1e-4, 4, 1000)
"""From the smallest on, every term of its polynomial is a normal number."""
WRONG = 1e-3
"""A term that is further off is wrong: roundings are below 1e-6 of it, wrong terms off by .09."""


def terms(norm: float, dtype: torch.dtype) -> Array:
    """By degree, what the polynomial's terms are of those of the exponential."""
    result = torch.linalg.matrix_exp(torch.diag(torch.full((TERMS,), norm, dtype=dtype), 1))[0]
    return result.double().numpy() / [norm**k / math.factorial(k) for k in range(TERMS + 1)]


def sine_error(a: float, dtype: torch.dtype) -> float:
    """The error of sin a in the rotation by a, in unit roundoffs of a."""
    a = float(torch.tensor(a, dtype=dtype))
    result = torch.linalg.matrix_exp(torch.tensor([[0, a], [-a, 0]], dtype=dtype))[0, 1]
    return abs(float(result) - math.sin(a)) / (a * torch.finfo(dtype).eps / 2)


def rows(dtype: torch.dtype) -> list[Row]:
    """One for each degree, in the order of the norms."""
    groups = []
    seen = [(norm, terms(norm, dtype)) for norm in map(float, NORMS)]
    for degree, group in groupby(seen, lambda entry: int(np.flatnonzero(entry[1])[-1])):
        norms, ratios = zip(*group)
        usual = {
            k: float(np.median([ratio[k] for ratio in ratios]))
            for k in range(min(degree, HIGHEST) + 1)
        }
        groups.append(
            {
                "dtype": str(dtype).removeprefix("torch."),
                "degree": degree if degree <= HIGHEST else "squared",
                "from": norms[0],
                "to": norms[-1],
                "wrong terms": {k: ratio for k, ratio in usual.items() if abs(ratio - 1) > WRONG},
                "sine": max(sine_error(norm, dtype) for norm in norms),
            }
        )
    return groups


def main() -> int:
    torch.set_num_threads(1)
    groups = rows(torch.float32) + rows(torch.float64)
    save("exponential", {"environment": environment(), "torch": torch.__version__, "rows": groups})
    for row in groups:
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
