"""How a process is set up before NumPy loads."""

import platform

import pytest
from test_startup import run_python


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries go their own way")
@pytest.mark.parametrize("settled", [True, False])
def test_settled_process_keeps_freed_memory(settled):
    """Filling 64 MB once more costs next to no page faults; without ``settle`` it does."""
    result = run_python(f"""
from refnet.process import settle
{"settle()" if settled else ""}
import resource, numpy as np
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(2 ** 26, np.uint8)[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
""")
    assert (int(result.stdout) < 10) == settled, result.stderr


@pytest.mark.parametrize("first, said", [("import numpy", True), ("", False), (
    "import numpy; os.environ['OPENBLAS_NUM_THREADS'] = '1'", False)])
def test_settled_too_late(first, said):
    """NumPy's BLAS has chosen its threads when it is loaded."""
    result = run_python(f"""
import os
for name in [name for name in os.environ if name.endswith("_THREADS")]:
    del os.environ[name]
{first}
import refnet
refnet.settle()""")
    assert (result.returncode == 1) == said, result.stderr
    assert ("call settle() first" in result.stderr) == said, result.stderr
