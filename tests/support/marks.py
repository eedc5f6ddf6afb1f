"""What many tests run over."""

import numpy as np
import pytest

both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
both_backends = pytest.mark.parametrize("backend", ["reference", "compiled"])


def slow(*cases):
    """These cases, each a value or a tuple of values, with the mark ``slow``."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
