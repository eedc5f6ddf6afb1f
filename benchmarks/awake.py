"""Cores that are not halted while something is timed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOOP = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(0, {{{core}}})
while os.getppid() == {parent}:
    for _ in range(100_000):
        pass
"""


@contextmanager
def awake() -> Iterator[None]:
    """An endless loop on every core, of the scheduler's idle class: anything else gets the core
    at once, but the core is never halted. The host of a virtual machine would wake halted cores
    together on a single one of its own: a large product on two threads then takes exactly as
    long as on one, for tenths of a second, whoever's turn it is."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP.format(core=core, parent=os.getpid())])
             for core in sorted(os.sched_getaffinity(0))]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
