"""BLAS on one thread, as the command line has it, and one Hypothesis profile for all tests: no
deadline, the same examples in every run."""

import os
import warnings

from hypothesis import HealthCheck, settings

from refnet.process import settle

with warnings.catch_warnings():
    warnings.simplefilter("default")  # a plug-in of pytest's that loads NumPy costs time, no more
    settle()
os.environ["REFNET_JUDGE_CACHE"] = "off"  # each test makes its own certificates

settings.register_profile(
    "refnet", deadline=None, derandomize=True, max_examples=150, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("refnet")
