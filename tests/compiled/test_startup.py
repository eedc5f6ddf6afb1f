"""Start-up of the compiled core: nothing at import, any state of the cache, child processes."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.subprocesses import run_python


def run_side_by_side(*programs):
    """The results of programs, each code with the cache's folder, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda job: run_python(job[0], NUMBA_CACHE_DIR=str(job[1])), programs))


SMALL_RUN = """
import numpy as np
from refnet.maths.activations import ACTIVATIONS
from refnet.compiled import rnn
p = {"Whh": np.eye(4, dtype="f4"), "Wxh": np.ones((4, 1), "f4"), "bh": np.zeros(4, "f4")}
def gradient():
    tape = rnn.forward(p, np.ones((3, 4, 1), "f4"), np.zeros((4, 4), "f4"), ACTIVATIONS["tanh"])
    return rnn.backward(p, tape, np.ones((1, 4, 4), "f4"), ACTIVATIONS["tanh"])["bh"].sum()
"""

TWO_KERNELS = """
import numpy as np
from refnet.compiled import _jit
@_jit.inner
def half(x): return x / 2
@_jit.jit
def forward(first, last, space): space[0] = half(3)
@_jit.jit
def backward(first, last, space): space[0] *= 3
def gradient():
    spaces = np.zeros((1, 1), "f4")
    _jit.run(forward, 1, spaces, then=lambda: _jit.run(backward, 1, spaces.copy()))
    _jit.run(backward, 1, spaces)
    return spaces[0, 0]
"""


def test_a_cache_that_cannot_be_written_or_read(tmp_path):
    """A file where the folder should be; then damaged files in a good folder."""
    (tmp_path / "file").write_text("")
    code, folder = TWO_KERNELS + "print(gradient())", tmp_path / "cache"
    first, cached = run_side_by_side((code, tmp_path / "file" / "below"), (code, folder))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(b"not a kernel")
    again = run_python(code, NUMBA_CACHE_DIR=str(folder))
    for finished in (first, cached, again):
        assert finished.returncode == 0 and finished.stdout == first.stdout, finished.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(method, tmp_path):
    """A forked and a spawned child compute what the parent, which used threads, computed."""
    script = tmp_path / "children.py"
    script.write_text(
        SMALL_RUN
        + f"""
import multiprocessing
def work(queue): queue.put(float(gradient()))
if __name__ == "__main__":
    mine = float(gradient())
    context = multiprocessing.get_context("{method}")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    assert queue.get(timeout=90) == mine
    child.join()
    assert child.exitcode == 0
"""
    )
    finished = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=finished
    )
    assert result.returncode == 0, result.stderr


SAVED = """
import os
from refnet.common import process
from refnet.compiled import _jit, numba_private
keep = numba_private.KernelCache.save_overload
def save(self, signature, data):
    with open(os.environ["SAVED"], "a") as file:
        print(self._function[1], os.getpid(), file=file)
    return keep(self, signature, data)
numba_private.KernelCache.save_overload = save
_jit.may_fork = lambda: True
"""
GONE = """
try:
    os.waitpid(-1, os.WNOHANG)
    raise SystemExit("a process is left over")
except ChildProcessError:
    pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux alone")
@pytest.mark.parametrize(
    "program, change, ahead",
    [
        (SMALL_RUN, "", True),
        *(
            (TWO_KERNELS, change, ahead)
            for change, ahead in [
                ("", True),
                ("import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)", True),
                ("_jit.may_fork = lambda: False", False),
                ("_jit.Forked = lambda work: process.Forked(lambda: 1 / 0)", False),
                (
                    "_jit.Forked = lambda work: process.Forked(lambda: os.kill(os.getpid(), 9))",
                    False,
                ),
                (
                    "import time; _jit.PATIENCE = 0\n"
                    "_jit.Forked = lambda work: process.Forked(lambda: time.sleep(100))",
                    False,
                ),
                ("def refuse(work): raise BlockingIOError()\n_jit.Forked = refuse", False),
            ]
        ),
    ],
)
def test_the_second_kernel_is_made_ahead(program, change, ahead, tmp_path):
    """By another process, while this one compiles the first; by this one if that one fails. The
    next process finds both."""
    finished = run_python(
        f"{SAVED}{program}\n{change}\nprint(os.getpid(), gradient()){GONE}",
        NUMBA_CACHE_DIR=str(tmp_path / "kept"),
        SAVED=str(tmp_path / "saved"),
    )
    assert finished.returncode == 0, finished.stderr
    here, gradient = finished.stdout.split()
    saved = [line.split() for line in (tmp_path / "saved").read_text().splitlines()]
    assert [by for name, by in saved if name == "forward"] == [here]
    second = [by for name, by in saved if name == "backward"]
    assert here not in second if ahead else here in second
    if change:
        return
    again = run_python(
        f"{SAVED}{program}\nprint(gradient()){GONE}",
        NUMBA_CACHE_DIR=str(tmp_path / "kept"),
        SAVED=str(tmp_path / "none"),
    )
    assert again.stdout.split() == [gradient] and not (tmp_path / "none").exists(), again.stderr


PRODUCTS = """
import numpy as np
from refnet.compiled import products as module
a = (np.arange(2**19).reshape(2**15, 16) % 7).astype("f4")
assert (module.matmul(a, a[:16, :9]) == a @ a[:16, :9]).all()
outer = module._long_kernel
"""
DESCENT = """
import numpy as np
from refnet.compiled import orthogonality as module
W = module.descend(np.float32([np.eye(9) / 2 + 0.01]), 0.1, 1e-6, 100).W[0]
assert abs(W @ W.T - np.eye(9)).max() < 1e-2
outer = module._descend
"""
KINDS = """
import numba
from refnet.compiled import tiles
from refnet.compiled.numba_private import InnerLibrary
def plain(n): return n + 1
assert numba.njit(plain)(1) == 2
def libraries(k): return {type(each.library) for each in k.overloads.values()}
kinds = libraries(tiles.product)
assert kinds <= {InnerLibrary} and InnerLibrary not in libraries(outer), kinds
print(len(kinds))
"""


def test_machine_code_of_kernels_only(tmp_path):
    """A function that only kernels call is linked into them, also from the cache, where another
    kernel finds it, and where a whole kernel needs none."""
    for program, kinds in ((PRODUCTS, "1"), (DESCENT, "1"), (DESCENT, "0")):
        cached = run_python(program + KINDS, NUMBA_CACHE_DIR=str(tmp_path))
        assert cached.stdout.strip() == kinds, cached.stderr


def test_numba_is_bounded_by_the_versions_that_the_tests_ran_on():
    root = Path(__file__).parents[2]
    rows = json.loads((root / "benchmarks/results/versions.json").read_text())["rows"]
    tried = [int(row["numba"].split(".")[1]) for row in rows if row.get("failed") == []]
    bounds = re.search(r"numba>=0\.(\d+),<0\.(\d+)\n", (root / "setup.cfg").read_text())
    assert [int(bound) for bound in bounds.groups()] == [min(tried), max(tried) + 1]


def test_nothing_is_compiled_at_import():
    result = run_python("from refnet.compiled import rnn, _jit; print(_jit.compiled_kernels())")
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(
    "missing", ["del numba.core.caching._Cache", "del numba.core.cpu.CPUTargetOptions"]
)
def test_a_numba_without_its_private_parts(missing, tmp_path):
    """A warning, and the same bits from kernels that are compiled plainly and not kept."""
    finished = run_python(
        f"import numba.core.caching, numba.core.cpu, warnings\n{missing}\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n    from refnet.compiled import info, rnn\n"
        f"{TWO_KERNELS}\nprint(gradient())\n"
        "assert 'is not as refnet knows it' in str(seen[0].message)\n"
        "assert info()['cache'] == 'none'\n",
        NUMBA_CACHE_DIR=str(tmp_path / "none"),
    )
    known = {"__name__": "kernels"}
    exec(TWO_KERNELS, known)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == str(known["gradient"]()) + "\n" and not (tmp_path / "none").exists()


def test_a_numba_without_what_the_intrinsics_are_written_with():
    """A warning, and plain Python: the same gradient to rounding."""
    known, plain = (
        run_python(f"""
import warnings, numba.core, numba.np.arrayobj
{missing}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from refnet.compiled import rnn
{SMALL_RUN}
print(gradient())
print([str(each.message) for each in seen])""")
        for missing in ("", "del numba.np.arrayobj.populate_array")
    )
    assert known.returncode == plain.returncode == 0, known.stderr + plain.stderr
    (job, said), (other, warned) = known.stdout.splitlines(), plain.stdout.splitlines()
    assert said == "[]" and "populate_array" in warned and "plain Python" in warned
    assert float(job) == pytest.approx(float(other), rel=64 * 2**-23)
