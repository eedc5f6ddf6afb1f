"""A long computation in two parts, side by side on two cores, and how its numbers travel.

The second part runs in a forked process, which sends bytes back; nothing is unpickled. What the
parts are follows from the sizes alone, so the bits do not depend on the number of cores.
Checked by: tests/exact/test_two_processes.py.
"""

import os
from collections.abc import Callable
from io import BytesIO
from mmap import mmap
from time import perf_counter

import numpy as np

from refnet.batch import Array, Batch, Params, Scalar, examples
from refnet.common.process import Forked, may_fork
from refnet.exact.library import flint
from refnet.nets.recurrent import RecurrentNet

Progress = Callable[[int, int, float], None]
"""Called a few times a second with the bits, the matrix products done with them, the seconds."""
EVERY = 0.2
"""Seconds between two such calls."""


class Clock:
    """Counts the matrix products of a computation, those of its forked part too, and reports them
    to ``progress``."""

    def __init__(self, bits: int, progress: Progress | None, started: float | None = None) -> None:
        self.bits, self.progress, self.process = bits, progress, os.getpid()
        self.started = self.last = perf_counter() if started is None else started
        self.done = np.frombuffer(mmap(-1, 16), np.int64)  # shared with a forked process

    def tick(self, products: int = 1) -> None:
        """Count that many products as done."""
        alone = os.getpid() == self.process
        self.done[0 if alone else 1] += products
        now = perf_counter()
        if alone and self.progress is not None and now - self.last > EVERY:
            self.last = now
            self.progress(self.bits, int(self.done.sum()), now - self.started)


def side_by_side(
    first: Callable[[], Params],
    second: Callable[[], Params],
    waiting: Callable[[], None] | None = None,
) -> tuple[Params, Params]:
    """The results of both; ``second`` runs in another process where there is a core for it, and
    ``waiting`` is called a few times a second after ``first`` has ended.

    If that process fails, whatever the reason, ``second`` runs here, and raises what it raises.
    Its result is packed and unpacked in any case, for the same bits.
    """

    def packed_second() -> bytes:
        return packed(second())

    if not may_fork():
        return first(), unpacked(packed_second())
    with Forked(packed_second) as other:
        result = first()
        while not other.ready(EVERY):
            if waiting is not None:
                waiting()
        data = other.result()
    return result, unpacked(packed_second() if data is None else data)


# ---- the two halves of a batch


def for_each(net: RecurrentNet, name: str, value: Array) -> bool:
    """Whether this is one initial state a sequence: (B, H), or (2, B, H) for an LSTM."""
    return name.startswith("h0") and value.ndim == max(map(len, net.shapes[name]))


def halves(net: RecurrentNet, params: Params, batch: Batch) -> list[tuple[Params, Batch]]:
    """The parameters and the sequences of each half of a batch."""
    B = batch.x.shape[1]
    results = []
    for part in (slice(B // 2), slice(B // 2, B)):
        half_params = {
            name: value[..., part, :] if for_each(net, name, value) else value
            for name, value in params.items()
        }
        results.append((half_params, examples(batch, part, net.readout != "last")))
    return results


def joined(net: RecurrentNet, params: Params, first: Params, second: Params) -> Params:
    """Every quantity of a batch from those of its halves: joined where each sequence has its part,
    else added."""
    results = {}
    for name, a in first.items():
        parameter = name[1:]
        start = parameter in net.shapes and parameter.startswith("h0")
        summed = (
            name == "loss"
            or name.startswith("d")
            and parameter != "x"
            and not (
                start and (parameter not in params or for_each(net, parameter, params[parameter]))
            )
        )
        results[name] = (
            np.asarray(a + second[name], object)
            if summed
            else np.concatenate([a, second[name]], axis=-2)
        )
    return results


# ---- numbers as bytes


def packed(arrays: Params) -> bytes:
    """float64 arrays and arrays of balls as bytes: of a ball the whole numbers and exponents of its
    midpoint and radius. Raises ArithmeticError for a ball that is not finite."""
    file = BytesIO()
    texts = {
        name: np.array([*map(_text, value.flat)], "S").reshape(value.shape)
        if value.dtype == object
        else value
        for name, value in arrays.items()
    }
    np.savez(file, allow_pickle=False, **texts)
    return file.getvalue()


def _text(value: Scalar) -> str:
    ball = flint().arb(value)
    if not ball.is_finite():
        raise ArithmeticError("a ball is not finite; raise the precision")
    (mantissa, exponent), (radius, scale) = ball.mid().man_exp(), ball.rad().man_exp()
    return f"{int(mantissa):x} {exponent} {radius} {scale}"


def unpacked(data: bytes) -> Params:
    """The arrays that ``packed`` packed."""
    with np.load(BytesIO(data)) as arrays:
        return {
            name: np.asarray(np.frompyfunc(_ball, 1, 1)(array), object)
            if array.dtype.kind == "S"
            else array
            for name, array in arrays.items()
        }


def _ball(text: bytes) -> Scalar:
    arb, (mantissa, exponent, radius, scale) = flint().arb, text.split()
    return arb(arb((int(mantissa, 16), int(exponent))), arb((int(radius), int(scale))))
