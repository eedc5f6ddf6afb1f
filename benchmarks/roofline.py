"""Where the compiled net's time goes: its inner parts alone, beside a large product.

Each part runs on one thread, over and over on the same rows, as it does inside the recursion.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from refnet.compiled._jit import jit
from refnet.compiled.activations import pull, push, settings
from refnet.compiled.layout import aligned, layout, product
from refnet.compiled.rnn import CHUNK
from refnet.maths.activations import ACTIVATIONS

REPEATS = 300


@jit
def _products(n: int, c: Any, cs: int, a: Any, ar: int, ak: int, w: Any, ws: int, depth: int,
              rows: int, vectors: int, lane: int, add: bool) -> None:
    for _ in range(n):
        product(c, cs, a, ar, ak, w, ws, depth, rows, vectors, lane, add)


@jit
def _activations(n: int, code: int, c: Any, h: Any, q: Any, rows: int, width: int,
                 back: bool) -> None:
    for _ in range(n):
        if back:
            pull(code, 0.0, q, h, h, c, q, rows, width)
        else:
            push(code, 0.0, q, c, rows, width)


def parts(T: int, D: int, H: int, B: int, dtype: Any
          ) -> dict[str, tuple[Callable[[], None], float]]:
    """Every part as something to time, and what makes its seconds those of a training step on
    one thread."""
    dtype = np.dtype(dtype)
    p = {"Whh": np.zeros((H, H), dtype)}
    lay = layout("roofline", p, np.zeros((T, B, D), dtype))
    rows, width, row = lay.rows, lay.width, H + D + 1
    wide, n = -(-row // lay.lane) * lay.lane, max(1, REPEATS * 100 ** 2 // H ** 2)
    w = aligned((row * width,), dtype)  # small numbers everywhere, so packed in any way
    w[:] = 1e-3
    chunk = max(CHUNK // rows, 1) * rows
    a, c = aligned((chunk * wide,), dtype), aligned((rows * width,), dtype)
    das, total = aligned((chunk * width,), dtype), aligned((H * wide,), dtype)
    q = aligned((width,), dtype)
    code, _ = settings(ACTIVATIONS["tanh"], dtype)
    h = aligned((rows * width,), dtype)
    c[:] = np.random.default_rng(0).standard_normal(c.size)
    steps = T * B / rows / n
    # (how often in a training step, arguments of the product)
    products = {"product forward": (steps, (c, width, a, row, 1, w, 0, row, rows, width, False)),
                "product backward": (steps, (c, width, das, width, 1, w, 0, H, rows, width,
                                             False)),
                "weight gradient": (steps * rows / chunk, (total, wide, das, 1, width, a, wide,
                                                           chunk, H, wide, True))}

    def multiplied(c: Any, cs: int, a: Any, ar: int, ak: int, w: Any, ws: int, depth: int,
                   count: int, columns: int, add: bool) -> None:
        _products(n, c, cs, a, ar, ak, w, ws, depth, count, columns // lay.lane, lay.lane, add)

    def activated() -> None:
        for back in (False, True):
            _activations(n, code, c, h, q, rows, width, back)

    return {**{name: (partial(multiplied, *arguments), times)
               for name, (times, arguments) in products.items()},
            "activation": (activated, steps)}
