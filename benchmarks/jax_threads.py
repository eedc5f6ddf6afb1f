"""Whether the threads of JAX and of refnet get in each other's way: a training step of refnet's in
a compiled program of JAX's, beside the same step outside of it, and beside work of JAX's own.

``python -m benchmarks.jax_threads`` prints a row a net: milliseconds, the least of several turns.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from refnet.batch import Batch
from refnet.interop.jax_functions import function
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.process import settle

SIZES = (("rnn", 128, 100, 32), ("lstm", 128, 100, 32), ("gru", 256, 100, 64))
"""Cell, H, T and B; D = 64, ten classes."""
TURNS = 15


def timed(work: Callable[[], Any]) -> float:
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
    for size in SIZES:
        cells = "  ".join(f"{name} {value:.2f}" for name, value in row(*size).items())
        print(size, cells, flush=True)


if __name__ == "__main__":
    main()
