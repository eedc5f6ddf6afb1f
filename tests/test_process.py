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
