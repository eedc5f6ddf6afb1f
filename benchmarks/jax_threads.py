"""Whether the threads of JAX and of refnet get in each other's way: a training step of refnet's in
a compiled program of JAX's, beside the same step outside of it, and beside work of JAX's own.

``python -m benchmarks.jax_threads`` records a row a net, in benchmarks/results/jax_threads.json:
milliseconds, the least of several turns. Set NUMBA_NUM_THREADS for refnet's threads; JAX takes the
cores that the process may use.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from benchmarks.records import record, save
from refnet.batch import Batch
from refnet.common.process import settle
from refnet.interop.jax_functions import function
from refnet.maths.threads import get_threads
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import environment, machine

SIZES = (("rnn", 128, 100, 32), ("lstm", 128, 100, 32), ("gru", 256, 100, 64))
"""Cell, H, T and B; D = 64, ten classes."""
TURNS = 12


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def row(cell: str, H: int, T: int, B: int) -> dict[str, float]:
    """Each in turn, so that what else the machine does meets all of them."""
    rng = np.random.default_rng(0)
    net = RecurrentNet(64, H, 10, cell)
    params = net.init(rng)
    batch = Batch(rng.standard_normal((T, B, 64)).astype(np.float32), rng.integers(0, 10, B))
    f, y = function(net), batch.y[:, None]

    def loss(p: Any, x: Any) -> Any:
        return -jax.numpy.take_along_axis(jax.nn.log_softmax(f(p, x)), y, axis=-1).mean()

    step = jax.jit(jax.value_and_grad(loss))
    matrix = jax.numpy.asarray(rng.standard_normal((1000, 1000)).astype(np.float32)) / 40

    @jax.jit
    def products(A: Any) -> Any:
        for _ in range(4):
            A = jax.numpy.tanh(A @ matrix)
        return A

    @jax.jit
    def both(p: Any, x: Any, A: Any) -> Any:
        return jax.value_and_grad(loss)(p, x), products(A)

    def at_once() -> None:
        with ThreadPoolExecutor(2) as pool:
            steps = pool.submit(lambda: jax.block_until_ready(step(params, batch.x)))
            jax.block_until_ready(products(matrix))
            steps.result()

    works = {
        "refnet": lambda: loss_and_gradients(net, params, batch, inputs=False),
        "refnet in JAX": lambda: jax.block_until_ready(step(params, batch.x)),
        "products of JAX": lambda: jax.block_until_ready(products(matrix)),
        "both in one program": lambda: jax.block_until_ready(both(params, batch.x, matrix)),
        "both in two threads": at_once,
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(TURNS + 2):
        for name, work in works.items():
            times[name].append(timed(work))
    return {name: min(values[2:]) for name, values in times.items()}


def main() -> None:
    settle()
    rows = {"x".join(map(str, size)): row(*size) for size in SIZES}
    for name, times in rows.items():
        print(name, *(f"{what} {value:.2f}" for what, value in times.items()), sep="  ", flush=True)
    known = record("jax_threads").get("threads", {}) | {str(get_threads()): rows}
    save("jax_threads", {"environment": environment(), "machine": machine(), "threads": known})


if __name__ == "__main__":
    main()
