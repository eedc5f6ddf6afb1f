"""Benchmarks and recorded runs; each module's docstring says how it is run.

NumPy's products have one thread, as under the command line, unless the environment says more:
this package is imported before NumPy is.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
