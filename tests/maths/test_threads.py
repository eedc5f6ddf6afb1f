"""Parts in threads: the same bits with any number, errors that come out, no thread that waits for
itself."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from refnet.common.process import BLAS_THREADS
from refnet.maths import threads
from refnet.maths.numeric import matmul
from refnet.maths.threads import in_threads, split_product
from support.arguments import refused
from support.marks import both_dtypes
from support.subprocesses import run_python


@pytest.fixture
def two(monkeypatch):
    """Two threads, whatever this process has."""
    monkeypatch.setattr(threads, "_threads", lambda: 1 if threads._INSIDE.get() else 2)


@both_dtypes
@pytest.mark.parametrize(
    "shape",
    [
        (256, 256, 256),
        (1030, 70, 300),
        (70, 300, 1030),
        (3, 5, 2**21),
        (2**21, 1, 9),
        (900, 2**15, 1),
    ],
)
def test_split_product(shape, dtype, two, monkeypatch):
    """The product, within the rounding of sums of K terms; transposed and cut arrays too; to the
    same bits when one thread makes all parts."""
    rng = np.random.default_rng(0)
    N, K, M = shape
    a = rng.standard_normal((K, N)).astype(dtype).T
    b = rng.standard_normal((K, M + 3)).astype(dtype)[:, 3:]
    computed = matmul(a, b)
    size = np.sqrt((a * a).sum(axis=1))[:, None] * np.sqrt((b * b).sum(axis=0))
    assert (abs(computed - a @ b) <= 2 * K * np.finfo(dtype).eps * size).all()
    for count in (1, 3, 4):
        monkeypatch.setattr(threads, "_threads", lambda: 1 if threads._INSIDE.get() else count)
        assert np.array_equal(split_product(a, b), computed)


def test_parts_run_at_once_and_inner_parts_alone(two):
    """Two threads meet at a barrier; what a part splits itself runs in its own thread."""
    barrier, seen = threading.Barrier(2, timeout=20), {}

    def part(n):
        barrier.wait()
        inner = set()
        in_threads(lambda _: inner.add(threading.get_ident()), range(5))
        seen[n] = (threading.get_ident(), inner)

    in_threads(part, range(2))
    assert len({thread for thread, _ in seen.values()}) == 2
    assert all(inner == {thread} for thread, inner in seen.values())


@pytest.mark.parametrize("wrong", [0, 3])
def test_an_error_comes_out_when_all_are_done(two, wrong):
    done = []

    def part(n):
        if n == wrong:
            raise ZeroDivisionError(str(n))
        time.sleep(0.01)
        done.append(n)

    with refused(str(wrong), ZeroDivisionError):
        in_threads(part, range(4))
    before = len(done)
    time.sleep(0.05)
    assert len(done) == before
    in_threads(done.append, range(4))


def test_error_state_reaches_the_threads(two):
    big = np.full((256, 256), 1e30, np.float32)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        in_threads(lambda n: np.multiply(big, big), range(2))
    with np.errstate(all="ignore"):
        assert np.isinf(matmul(big, big)).all()


@pytest.mark.parametrize("openblas,variable", [(True, "2"), (False, "1"), (False, "2")])
def test_number_of_threads(openblas, variable, monkeypatch):
    """The compiled core's, where BLAS has one; otherwise one."""
    monkeypatch.setattr("refnet.common.process._openblas", lambda: [(None, None)] * openblas)
    for name in BLAS_THREADS:
        monkeypatch.setenv(name, variable)
    serial = openblas or variable == "1"
    assert threads._threads() == (threads.get_threads() if serial else 1)


@pytest.mark.parametrize(
    "given, expected", [("3", 3), ("0", None), ("-3", None), ("x", None), ("", None)]
)
def test_an_unusable_number_of_threads(given, expected, monkeypatch):
    """What NUMBA_NUM_THREADS says, or else the cores of this process; another thread has it
    where this one has set its own."""
    usual = threads.usual_threads.__wrapped__
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    cores = usual()
    assert cores == len(getattr(os, "sched_getaffinity", lambda process: range(os.cpu_count()))(0))
    monkeypatch.setenv("NUMBA_NUM_THREADS", given)
    assert usual() == (expected or cores)
    before, seen = threads.get_threads(), []
    threads.set_threads(before + 1)
    other = threading.Thread(target=lambda: seen.append(threads.get_threads()))
    other.start()
    other.join()
    assert (threads.get_threads(), seen) == (before + 1, [threads.usual_threads()])
    threads.set_threads(before)


def test_a_forked_child_has_threads_of_its_own():
    code = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
from refnet.maths.numeric import matmul
a = np.random.default_rng(0).standard_normal((300, 300))
first = matmul(a, a)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(matmul(a, a), first) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("transition", ["svd:margin=0.1", "scaled_cayley"])
def test_training_has_the_same_bits(transition):
    """Wide nets, whose products and systems are split; in processes as the command line's."""
    code = f"""
import sys
from refnet import settle
settle()
from refnet.maths import threads
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.steps import Run, step
threads.set_threads(int(sys.argv[1]))
e = build(Config("copy", length=3, hidden=260, batch=4, transition={transition!r},
                 recurrent="orthogonal"))
params, _ = e.start()
run = Run(params, e.optimizer.init(params), params, {{}})
for index in range(2):
    run, _, _ = step(e, run, e.task.batch(index, 4, 0))
print(threads._pool.cache_info().currsize, *(value.tobytes().hex() for value in
                                             run.params.values()))
"""
    held = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    def run(count):
        return subprocess.run(
            [sys.executable, "-c", code, str(count)],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
            env=held,
        ).stdout.split()

    pools, *bits = run(1)
    assert pools == "0"
    if threads.usual_threads() > 1:
        assert run(2) == ["1", *bits]


def test_where_no_thread_starts_the_caller_does_all_parts(two, monkeypatch):
    """As in an address space that has no room for another stack."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(threads, "_pool", threads._pool.__wrapped__)
    callers = [None] * 5
    in_threads(lambda n: callers.__setitem__(n, threading.current_thread()), range(5))
    assert callers == [threading.current_thread()] * 5
