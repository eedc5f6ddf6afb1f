"""What many tests run over."""

import numpy as np
import pytest

both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
both_backends = pytest.mark.parametrize("backend", ["reference", "compiled"])
