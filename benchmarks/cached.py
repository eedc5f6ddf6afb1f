"""The cache of compiled kernels, used by several processes and threads at once, and damaged. Each
function makes ``trials`` trials and returns their number and whatever did not happen as promised
(``benchmarks.campaign``).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from numpy.random import default_rng

from benchmarks.records import Row

GRADIENT = """
import sys, threading, hashlib
from numpy.random import default_rng
import numpy as np
from refnet.batch import Batch
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.gradients import loss_and_gradients
net = RecurrentNet(3, 20, 4, "{cell}", backend="compiled")
rng = default_rng(0)
p, b = net.init(rng, "float32"), Batch(rng.standard_normal((9, 16, 3)).astype("f4"),
                                       np.zeros(16, int))
def bits(*_):
    result = loss_and_gradients(net, p, b)
    parts = [np.asarray(result.loss).tobytes()]
    parts += [result.gradients[name].tobytes() for name in sorted(result.gradients)]
    return hashlib.sha256(b"".join(parts)).hexdigest()
"""


def gradient(
    cache: Path, cell: str = "rnn", then: str = "print(bits())"
) -> "subprocess.Popen[str]":
    """A process that prints the digest of a compiled gradient."""
    return subprocess.Popen(
        [sys.executable, "-c", GRADIENT.format(cell=cell) + then],
        text=True,
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def cold_starts(trials: int, seed: int = 0) -> Row:
    """Six processes at once with one empty cache."""
    wrong = []
    for trial in range(trials):
        with TemporaryDirectory() as place:
            processes = [gradient(Path(place)) for _ in range(6)]
            results = [process.communicate() + (process.returncode,) for process in processes]
            if len(set(results)) != 1 or results[0][1:] != ("", 0):
                wrong.append(f"trial {trial}: {results}")
            if list(Path(place).rglob("*.part")):
                wrong.append(f"trial {trial}: something left")
    return {"trials": trials, "wrong": wrong}


TOGETHER = """
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import asyncio, os, multiprocessing
from refnet.maths.threads import set_threads, usual_threads
alone = bits()
result = set()
with ThreadPoolExecutor(8) as pool:
    result |= set(pool.map(bits, range(40)))
for threads in range(1, usual_threads() + 1):
    set_threads(threads)
    result.add(bits())
async def all_at_once():
    return await asyncio.gather(*(asyncio.to_thread(bits) for _ in range(8)))
result |= set(asyncio.run(all_at_once()))
with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
    result |= set(pool.map(bits, range(8)))
for _ in range(4):
    pid = os.fork()
    if not pid:
        os._exit(bits() != alone)
    result.add(alone if os.waitpid(pid, 0)[1] == 0 else "another in a fork")
print(result == {alone})
"""


def together(trials: int, seed: int = 0) -> Row:
    """Threads, numbers of threads, asyncio, pools and forks give the bits of one call alone."""
    wrong = []
    with TemporaryDirectory() as place:
        for trial in range(trials):
            cell = ("rnn", "lstm", "gru", "gru_before")[trial % 4]
            process = gradient(Path(place), cell, TOGETHER)
            output, errors = process.communicate()
            if (output, errors, process.returncode) != ("True\n", "", 0):
                wrong.append(f"{cell}: {output}{errors[-400:]}")
    return {"trials": trials, "wrong": wrong}


def damaged_caches(trials: int, seed: int = 0) -> Row:
    """One bit flipped in one kernel's file, two files exchanged, or one cut short."""
    rng, wrong, said = default_rng(seed), [], 0
    with TemporaryDirectory() as place:
        cache = Path(place) / "whole"
        right = gradient(cache).communicate()[0]
        for trial in range(trials):
            copy = Path(place) / "copy"
            shutil.copytree(cache, copy)
            kernels = sorted(copy.rglob("*.nbc"))
            first, second = (kernels[n] for n in rng.choice(len(kernels), 2, replace=False))
            data = bytearray(first.read_bytes())
            match trial % 6:
                case 1:
                    first.write_bytes(second.read_bytes())
                    second.write_bytes(data)
                case 2:
                    first.write_bytes(data[: int(rng.integers(len(data)))])
                case _:
                    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
                    first.write_bytes(data)
            process = gradient(copy)
            output, errors = process.communicate()
            said += "damaged" in errors
            if process.returncode or output != right or len(errors.splitlines()) > 1:
                wrong.append(f"{first.name}: status {process.returncode}: {output}{errors[-300:]}")
            shutil.rmtree(copy)
    return {"trials": trials, "reported": said, "wrong": wrong}
