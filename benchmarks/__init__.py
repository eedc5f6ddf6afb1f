"""Benchmarks and recorded runs; each module's docstring says how it is run.

The process is set up as under the command line: this package is imported before NumPy is.
MKL alone keeps its threads, because PyTorch computes with it.
"""

import os

from refnet.common.process import settle

os.environ.setdefault("MKL_NUM_THREADS", str(os.cpu_count()))
settle()
