"""Random nets and batches to judge others on: exact inputs that any framework can hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Batch, Params
from refnet.check.arithmetic import Arithmetic, rounded_to, stored
from refnet.check.naive import PEEPHOLES
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net, loss_and_gradients
from refnet.nets.recurrent import RecurrentNet

__all__ = [
    "NORMS",
    "bounded",
    "drawn",
    "held",
    "random_batch",
    "random_final",
    "random_form",
    "random_mask",
    "random_params",
    "reference_results",
]

WIDE = 20
"""Above this many columns a matrix's entries are drawn smaller, so that products keep their size:
in a net both wide and long, rounding would decide the gradient, and nothing could be judged."""


NORMS = (0, 2e-4, 0.003, 0.03, 0.25, 0.5, 0.7, 1.7, 3.5, 8)
"""1-norms at which a transition's parts are drawn, that of training's start among them. Matrix
exponentials choose a polynomial, an approximant or a scaling by the 1-norm: each range of the
usual ones (Higham 2005, Table 2.3, in float32 and float64; PyTorch's, in benchmarks/JUDGE.md)
has one of these at least a tenth inside."""


def bounded(net: Net) -> set[str]:
    """The transition's parts of which W is a bounded function, so that they may be large: skew
    matrices, angles, and a spectrum within a margin."""
    matrix = getattr(net, "transition", None)
    return {"A", "a", "p", "theta"} & {*matrix.shapes(2, 2)} if matrix else set()


def random_params(
    net: Net,
    rng: np.random.Generator,
    dtype: DTypeLike,
    peepholes: bool = False,
    norm: float | None = None,
    **options: Any,
) -> Params:
    """Parameters that hide no mistake: every bias, every slope and every part of a transition is
    drawn, except orthogonal parts; no entry is zero. ``norm``: the 1-norm, within a tenth, by
    which the ``bounded`` parts differ from their start; ``options``: those of ``net.init``.

    Checked by:
    tests/check/test_function_command.py::test_cases_show_faults_at_the_start_of_a_transition,
    tests/check/test_norms.py::test_a_mistake_in_one_range_of_norms_is_found.
    """
    start = net.init(rng, dtype=dtype, **options)
    if peepholes:
        start |= {name: np.zeros(start["Why"].shape[1], dtype) for name in PEEPHOLES}
    matrix = getattr(net, "transition", None)
    orthogonal, scaled = {"base", *(matrix.manifold if matrix else ())}, bounded(net)

    def varied(name: str, value: Array) -> Array:
        part = name.partition(".")[2]
        if part in orthogonal:
            return value
        if part == "D" and np.all(abs(value) == 1):  # signs
            return rng.choice(np.array([-1, 1], dtype), value.shape)
        if norm is not None and part in scaled:
            size = norm / max(value.shape[-1] - 1, 1) if value.ndim == 2 else norm
            signs = rng.choice((-1, 1), value.shape)
            return np.asarray(value + size * signs * rng.uniform(0.9, 1.1, value.shape), dtype)
        return np.asarray(value + _room(value) * rng.uniform(-0.3, 0.3, value.shape), dtype)

    return {name: varied(name, value) for name, value in start.items()}


def _room(value: Array) -> float:
    return min(1.0, (WIDE / value.shape[-1]) ** 0.5) if value.ndim == 2 else 1.0


def drawn(
    axes: Sequence[int | str], batch: int, rng: np.random.Generator, dtype: DTypeLike
) -> Array:
    """An array of a net's shape, in which B is ``batch``, from +-1/2."""
    shape = [batch if size == "B" else int(size) for size in axes]
    return rng.uniform(-0.5, 0.5, shape).astype(dtype)


def with_drawn(
    net: Net, params: Params, starts: tuple[str, ...], rng: np.random.Generator, batch: int
) -> Params:
    """``params`` and, from N(0, 1), all others of the net whose names start with one of
    ``starts``; B = ``batch``."""
    dtype = next(iter(params.values())).dtype
    return params | {
        name: rng.normal(size=[batch if isinstance(n, str) else n for n in shapes[-1]]).astype(
            dtype
        )
        for name, shapes in net.shapes.items()
        if name.startswith(starts)
    }


def random_batch(
    net: Net, rng: np.random.Generator, dtype: DTypeLike, steps: int, batch: int
) -> Batch:
    """Inputs from N(0, 1), classes or real targets at random; T = ``steps``, B = ``batch``. The
    first and the last class, which some programs take for padding, are among several labels, and
    of three and more no class is that of the first or the last prediction alone."""
    predictions: tuple[int, ...] = (batch,)
    if isinstance(net, RecurrentNet):
        x: Array = rng.normal(size=(steps, batch, net.inputs)).astype(dtype)
        outputs = net.outputs
        if net.readout != "last":
            predictions = (steps, batch)
    else:
        assert isinstance(net, FeedforwardNet)
        x, outputs = rng.normal(size=(batch, net.widths[0])).astype(dtype), net.widths[-1]
    y: Array = (
        rng.integers(0, outputs, predictions)
        if net.loss == "cross_entropy"
        else rng.normal(size=(*predictions, outputs)).astype(dtype)
    )
    if net.loss == "cross_entropy":
        _with_both(rng, y.reshape(-1), 0, outputs - 1)
        if y.size > 3:
            y.flat[[0, -1]] = y.flat[1 + rng.integers(0, y.size - 2, 2)]
    return Batch(x, y)


def random_final(
    net: RecurrentNet, rng: np.random.Generator, dtype: DTypeLike, batch: int
) -> Params:
    """Cotangents of every cell's states after the last step, from +-1/2; B = ``batch``."""
    return {
        name: drawn(shapes[-1], batch, rng, dtype)
        for name, shapes in net.shapes.items()
        if name.startswith("h0")
    }


def _with_both(rng: np.random.Generator, values: Array, first: int, second: int) -> None:
    """Put two values among several, where they mark no place: of three and more, neither is at the
    first or at the last one alone."""
    if len(values) > 3:
        values[1 + rng.choice(len(values) - 2, 2, replace=False)] = first, second
    elif len(values) > 1:
        values[:] = (first, second, first)[: len(values)]


def held(kind: Arithmetic, params: Params, batch: Batch) -> tuple[Params, Batch]:
    """The numbers of an arithmetic nearest to these, in the type in which they travel."""
    if kind.u <= np.finfo(stored(kind)).eps / 2:
        return params, batch
    y = batch.y if batch.y.dtype.kind in "iu" else rounded_to(batch.y, kind.u)
    numbers, final = (
        arrays and {name: rounded_to(value, kind.u) for name, value in arrays.items()}
        for arrays in (params, batch.final)
    )
    return numbers or {}, batch._replace(x=rounded_to(batch.x, kind.u), y=y, final=final)


def random_mask(rng: np.random.Generator, steps: int, batch: int) -> Array:
    """Sequences of random lengths of at least one step. One has all steps; of several, another has
    a single step; of three or more, neither is the first or the last alone."""
    lengths = rng.integers(1, steps + 1, batch) if batch > 1 else np.array([steps])
    _with_both(rng, lengths, steps, 1)
    return np.asarray(np.arange(steps)[:, None] < lengths)


def random_form(
    net: Net,
    rng: np.random.Generator,
    dtype: DTypeLike,
    steps: int,
    batch: int,
    added: tuple[str, ...],
    lengths: bool,
) -> tuple[Params, Batch]:
    """Parameters, with those that ``with_drawn`` adds, and a batch, of random ``lengths`` if that
    is true."""
    params, data = random_params(net, rng, dtype), random_batch(net, rng, dtype, steps, batch)
    params = with_drawn(net, params, added, rng, batch)
    return params, data._replace(mask=random_mask(rng, steps, batch)) if lengths else data


def reference_results(net: Net, params: Params, batch: Batch) -> Params:
    """What a net's own backend gives, by the names that ``compare`` takes."""
    reference = loss_and_gradients(net, params, batch)
    return {
        "loss": reference.loss,
        "outputs": reference.outputs,
        **{f"d{name}": value for name, value in reference.gradients.items() if name != "clipped"},
    }
