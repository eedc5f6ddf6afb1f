"""refnet's calls hold OpenBLAS to one thread, in any process; then the user's number is back."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from refnet.common import process
from refnet.common.process import serial_blas

CALLS = Path(__file__).parents[1] / "support/blas_calls.py"


def run(program, *arguments, **environment):
    """The output of a plain Python program, whose environment says nothing of threads."""
    held = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        text=True,
        capture_output=True,
        check=True,
        timeout=600,
        env={**held, **environment},
    ).stdout


@pytest.fixture(scope="module")
def calls():
    """{name: (checksum, woken or asleep)} of the calls with two threads, with one, and with two
    without ``serial_blas``."""
    if os.cpu_count() == 1 or not process._openblas():
        pytest.skip("no OpenBLAS that has threads")
    options = {"two": ((), "2"), "single": ((), "1"), "without": (("without",), "2")}

    def of(which):
        arguments, number = options[which]
        out = run([str(CALLS)], *arguments, OPENBLAS_NUM_THREADS=number, NUMBA_NUM_THREADS="1")
        return {name: rest for name, *rest in (line.split("\t") for line in out.splitlines())}

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(options, pool.map(of, options)))


def test_no_call_wakes_a_thread(calls):
    """Each does if nothing holds OpenBLAS, or the test would show nothing."""
    states = {state for _, state in calls["two"].values()}
    if states == {"unknown"}:
        pytest.skip("this OpenBLAS cannot be watched")
    assert states == {"asleep"} and len(calls["two"]) > 50
    assert {state for _, state in calls["without"].values()} == {"woken"}


def test_the_same_bits_whatever_the_number_of_threads(calls):
    assert calls["two"] == calls["single"]
    assert calls["two"].keys() == calls["without"].keys()
    assert [name for name, (bits, _) in calls["without"].items() if calls["two"][name][0] != bits]


PLAIN = """
import numpy as np
import refnet
from refnet.common.process import _openblas, serial_blas
numbers = lambda: [get() for get, _ in _openblas()]
inside = []
def penalty(p):
    inside.append(numbers())
    return 0, {}
net = refnet.RecurrentNet(2, 3, 2, backend="reference")
batch = refnet.Batch(np.ones((2, 1, 2)), np.array([0]))
before = numbers()
params = net.init(np.random.default_rng(0), np.float64)
refnet.loss_and_gradients(net, params, batch, penalty=penalty)
print(before, *inside, numbers(), sep="; ")
"""


def test_numpy_imported_first():
    """NumPy's own library is held where NumPy says that it is OpenBLAS; afterwards each has the
    number that it had."""
    before, inside, after = run(["-c", PLAIN], OPENBLAS_NUM_THREADS="2").strip().split("; ")
    name = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    assert before == after and set(inside) <= set("[1, ]")
    assert (before != "[]") == ("openblas" in name)
    assert os.cpu_count() == 1 or before == "[]" or set(before) == set("[2, ]")


@pytest.fixture
def library(monkeypatch):
    """A library whose user wants three threads; ``log`` is every number that was set."""

    class Library:
        number, log = 3, []

        def put(self, number):
            self.log.append(number)
            self.number = number

    library = Library()
    library.log = []
    monkeypatch.setattr(process, "_openblas", lambda: [(lambda: library.number, library.put)])
    monkeypatch.setattr(process, "_changes", False)
    monkeypatch.setattr(process, "_starts_serial", False)
    return library


def test_nested_calls_and_errors(library):
    @serial_blas
    def inner(fails):
        assert library.number == 1
        if fails:
            raise ZeroDivisionError

    @serial_blas
    def outer(fails):
        inner(False)
        assert library.number == 1
        inner(fails)

    outer(False)
    assert library.number == 3
    for function in (inner, outer):
        with pytest.raises(ZeroDivisionError):
            function(True)
        assert library.number == 3
    assert library.log == [1, 3] * 3


def test_the_user_changes_the_number_between_calls(library):
    number = serial_blas(lambda: library.number)
    for wanted in (2, 1, 5):
        library.number = wanted
        assert (number(), library.number) == (1, wanted)


def test_blas_of_one_thread_is_left_alone(library):
    library.number = 1
    assert serial_blas(lambda: library.number)() == 1 and library.log == []


def test_threads_at_once(library):
    """The first to leave changes nothing, the last one gives the number back."""
    entered, first, second = threading.Barrier(3, timeout=20), *(threading.Event() for _ in "ab")

    @serial_blas
    def wait(event):
        entered.wait()
        assert event.wait(20)
        return library.number

    with ThreadPoolExecutor(2) as pool:
        early, other = pool.submit(wait, first), pool.submit(wait, second)
        entered.wait()
        first.set()
        assert early.result() == 1 == library.number
        second.set()
        assert other.result() == 1
    assert library.number == 3 and not process._SERIAL


def test_many_calls_in_many_threads(library):
    """No call ever sees another number than one."""
    seen = set()
    read = serial_blas(lambda: seen.add(library.number))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: read(), range(4000)))
    assert seen == {1} and library.number == 3


@pytest.mark.parametrize("when", [1, 2])
def test_an_interrupt_while_the_number_changes(library, monkeypatch, when):
    """As by Ctrl-C; the next call mends what the interrupt left."""
    put, count = library.put, iter(range(1, 9))

    def interrupted(number):
        if next(count) == when:
            raise KeyboardInterrupt
        put(number)

    monkeypatch.setattr(library, "put", interrupted)
    number = serial_blas(lambda: library.number)
    with pytest.raises(KeyboardInterrupt):
        number()
    assert (number(), library.number) == (1, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX")
def test_a_child_that_is_forked_while_another_thread_changes_the_number(library):
    """It gets the lock free."""
    number, done = serial_blas(lambda: library.number), threading.Event()

    def busy():
        while not done.is_set():
            number()

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(20):
            if (child := os.fork()) == 0:
                os._exit(number())
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    finally:
        done.set()
        thread.join()
