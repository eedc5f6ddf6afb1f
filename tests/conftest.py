"""BLAS on one thread, as the command line has it; one Hypothesis profile for all tests: no
deadline, the same examples in every run; the judge's certificates and sigmas computed once a run;
one cache of bytecode, where Python keeps none, and one of kernels, also for tests with a cache
folder of their own; and tests skipped where a package they need is missing."""

import gc
import os
import re
import warnings
from contextlib import suppress
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

from refnet.common.process import settle
from refnet.runs.files import user_cache

with warnings.catch_warnings():
    warnings.simplefilter("default")  # a plug-in of pytest's that loads NumPy costs time, no more
    settle()
if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers share the folder of who starts them
    SHARED = TemporaryDirectory(prefix="refnet-tests-")
    os.environ["REFNET_JUDGE_CACHE"] = f"{SHARED.name}/judge"
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # each process would compile what it imports
        os.environ["PYTHONPYCACHEPREFIX"] = f"{SHARED.name}/bytecode"
with suppress(FileNotFoundError):  # a user without a home folder
    os.environ.setdefault("NUMBA_CACHE_DIR", str(user_cache()))

settings.register_profile(
    "refnet",
    deadline=None,
    derandomize=True,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("refnet")

LONGEST = (
    "test_mistake_names test_prove test_examples test_fitted_names test_startup test_repeats "
    "test_function_command test_travel test_error_rates test_vectors test_style test_torch "
    "test_stacked_mistakes test_jax test_noise test_signals test_blas test_textbook_forms"
).split()
"""The files that come first, so that two workers end together."""


def pytest_configure(config):
    config.option.loadscopereorder = False  # xdist puts files with few tests last, however long


def pytest_collection_modifyitems(items):
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture(scope="session", autouse=True)
def no_curves():
    """Runs draw no curves, which takes half a second each, but where a test asks for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("refnet.training.loop.draw_curves", lambda *run: None)
        yield


def pytest_collection_finish():
    gc.freeze()  # what is imported by now is not looked through at every collection


NEEDS = re.compile(r"^pytestmark = pytest\.mark\.needs\((.*)\)$", re.MULTILINE)


class Skipped(pytest.Module):
    """A test file that is not imported, because a package it needs is not installed."""

    missing: str

    def collect(self):
        pytest.skip(f"{self.missing} is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Read a file's mark ``needs`` from its text: its imports would fail before pytest saw it."""
    for line in NEEDS.findall(module_path.read_text(encoding="utf-8")):
        for package in re.findall(r'"(\w+)"', line):
            if find_spec(package) is None:
                skipped = Skipped.from_parent(parent, path=module_path)
                skipped.missing = package
                return skipped
    return None


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for package in mark.args:
            if find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
