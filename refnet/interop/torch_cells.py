"""refnet's cells and nets as functions of PyTorch (extra ``torch``), differentiated once.

Tensors and arrays share memory where the order in memory allows it: a time-major x, the weights,
and the outputs, which are the tape's states.

Checked by: tests/interop/test_torch_modules.py.
"""

import ctypes
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.compiled.kernels import kernel_of
from refnet.compiled.layout import deal
from refnet.interop import package
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.threads import get_team, get_threads, set_threads
from refnet.nets.gradients import Net
from refnet.nets.layer import Layer

torch = package("torch", called="PyTorch")
Tensor: TypeAlias = Any
"""A tensor of PyTorch's, which is an optional package."""
Context: TypeAlias = Any
"""What PyTorch hands from a forward to a backward pass."""
Run: TypeAlias = Callable[[Params], tuple[Array, Callable[[Array], Params]]]
"""A function of named arrays, with its pullback."""
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PROCESS = os.getpid()
"""In a forked child, PyTorch's threads are gone."""


class Steps(NamedTuple):
    """How rows of a tensor are a cell's steps: (T, B, D) as they stand or, if ``reverse``, from
    the last; with ``rows``, those of a packed sequence (N, D), whose row n is row ``rows[n]`` of
    the (T B, D) of the cell. ``order`` (B,): which sequence is where in the cell's batch, and
    ``lengths`` (B,) its steps."""

    reverse: bool = False
    rows: Array | None = None
    lengths: Array | None = None
    order: Array | None = None

    def enter(self, values: Array) -> Array:
        """What the cell sees of x or of its outputs' gradient."""
        if self.rows is None or self.lengths is None:
            return values[::-1].copy() if self.reverse else values
        T, B = self.lengths.max(), len(self.lengths)
        padded = np.zeros((T * B, values.shape[1]), values.dtype)
        padded[self.rows] = values
        return padded.reshape(T, B, -1)

    def leave(self, values: Array) -> Array:
        """The inverse of ``enter``."""
        if self.rows is None:
            return values[::-1].copy() if self.reverse else values
        return values.reshape(-1, values.shape[2]).take(self.rows, axis=0)

    def begin(self, states: Array) -> Array:
        """States (S, B, H) in the order of the cell's batch."""
        return states if self.order is None else states.take(self.order, axis=1)

    def end(self, states: Array) -> Array:
        """The inverse of ``begin``."""
        return states if self.order is None else states.take(np.argsort(self.order), axis=1)


AS_THEY_STAND = Steps()


def packed_steps(sizes: Array, dtype: DTypeLike, cell: str, H: int) -> dict[str, Steps]:
    """Those of a PackedSequence with ``sizes`` (T,) in both directions, for cells of H units."""
    T, B = len(sizes), int(sizes[0])
    lengths = (sizes > np.arange(B)[:, None]).sum(axis=1)
    order = deal(lengths, dtype, len(CELLS[cell].GATES) * H, H)
    place = np.argsort(order)
    t = np.repeat(np.arange(T), sizes)
    b = np.arange(len(t)) - np.repeat(sizes.cumsum() - sizes, sizes)
    return {
        way: Steps(bool(way), step * B + place[b], lengths[order], order)
        for way, step in (("", t), ("_reverse", lengths[b] - 1 - t))
    }


@cache
def _openmp() -> Any:
    """GNU's function, which other OpenMP libraries of Linux have too, that runs another in every
    thread of a team; None if PyTorch is linked to none that has it."""
    try:
        return ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (OSError, AttributeError):
        return None


def _team(part: Callable[[int], None], count: int) -> None:
    """Call ``part(n)`` for n < count in PyTorch's threads. After each of its operations these spin
    for milliseconds, so that threads of refnet's would share a core with them."""
    numbers, errors = itertools.count(), list[BaseException]()

    def work(_: Any) -> None:
        while (n := next(numbers)) < count:
            try:
                part(n)
            except BaseException as error:
                errors.append(error)

    _openmp()(TASK(work), None, torch.get_num_threads(), 0)
    for error in errors:
        raise error


@contextmanager
def _threads_of_torch() -> Iterator[None]:
    before = get_threads(), get_team()
    team = _team if _openmp() and os.getpid() == PROCESS else None
    set_threads(torch.get_num_threads(), team)
    try:
        yield
    finally:
        set_threads(*before)


def array_of(tensor: Tensor) -> Array:
    """The tensor's own numbers."""
    array: Array = tensor.numpy(force=True)
    return array


class Job(NamedTuple):
    """A cell to run: its kernels, the names of its parameters, and its steps."""

    layer: Layer
    names: tuple[str, ...]
    steps: Steps

    def run(self, p: Params, x: Array, start: Array) -> Any:
        """The cell's tape."""
        h0 = start if len(start) > 1 else start[0]
        with _threads_of_torch():
            return self.layer.run(p, x, h0, lengths=self.steps.lengths)

    def compute(
        self, x: Tensor, h0: Tensor, values: tuple[Tensor, ...]
    ) -> tuple[Any, Tensor, Tensor]:
        """The tape, the outputs and the states at the end."""
        steps = self.steps
        start = steps.begin(array_of(h0))
        tape = self.run(
            dict(zip(self.names, map(array_of, values))), steps.enter(array_of(x)), start
        )
        end = np.empty_like(start)
        for state, last in zip((tape.h, tape.c) if len(end) > 1 else (tape.h,), end):
            if steps.lengths is None or len(state) == 2:
                last[:] = state[-1]
            else:
                last[:] = state[steps.lengths, np.arange(len(last))]
        return tape, *map(torch.from_numpy, (steps.leave(tape.h[1:]), steps.end(end)))


@cache
def _layer(cell: str, activation: str, keeps: bool) -> Layer:
    gate = None if len(CELLS[cell].GATES) == 1 else ACTIVATIONS["sigmoid"]
    return Layer(kernel_of(cell), ACTIVATIONS[activation], gate=gate, keeps=keeps)


def _with_last(doutputs: Tensor | None, last: Array, steps: Steps, wanted: bool) -> Array:
    """The gradient at a cell's states: of all of them, or (1, B, H) of each sequence's last."""
    if doutputs is None:
        return last[None]
    dh = steps.enter(array_of(doutputs))
    if wanted:
        ends = -1 if steps.lengths is None else steps.lengths - 1
        dh = dh.copy()
        dh[ends, np.arange(len(last))] += last
    return dh


class _Run(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """``(job, x, h0, *parameters) -> outputs, end`` with h0 and end (S, B, H) for the S states."""

    @staticmethod
    def forward(
        ctx: Context, job: Job, x: Tensor, h0: Tensor, *values: Tensor
    ) -> tuple[Tensor, Tensor]:
        tape, outputs, end = job.compute(x, h0, values)
        ctx.job, ctx.kind, ctx.count = job, type(tape), len(values)
        ctx.outputs, ctx.version = outputs.detach(), outputs._version
        ctx.set_materialize_grads(False)
        arrays = [part if part is None else torch.from_numpy(part) for part in tape]
        ctx.save_for_backward(x, h0, *values, *arrays)
        return outputs, end

    @staticmethod
    def backward(
        ctx: Context, doutputs: Tensor | None, dend: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, h0, *rest = ctx.saved_tensors
        (layer, names, steps), values = ctx.job, rest[: ctx.count]
        p = dict(zip(names, map(array_of, values)))
        tape = ctx.kind(*(part if part is None else array_of(part) for part in rest[ctx.count :]))
        if ctx.outputs._version != ctx.version:  # changed in place, and the tape's states with them
            tape = ctx.job.run(p, tape.x, steps.begin(array_of(h0)))
        last = np.zeros(h0.shape, tape.h.dtype) if dend is None else steps.begin(array_of(dend))
        dh = _with_last(doutputs, last[0], steps, dend is not None)
        cotangents = dh if len(last) == 1 else (dh, last[1])
        with _threads_of_torch():
            grads = layer.pull(p, tape, cotangents, ctx.needs_input_grad[1], lengths=steps.lengths)
        dx = steps.leave(grads["x"]) if "x" in grads else None
        dh0 = steps.end(grads["h0"].reshape(h0.shape))
        arrays = [dx, dh0, *(grads[name] for name in names)]
        tensors = [part if part is None else torch.from_numpy(part) for part in arrays]
        if torch.is_grad_enabled():
            tensors = _Once.apply(len(tensors), *tensors, x, h0, *values, doutputs, dend)
        return None, *tensors


class _Once(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """The first tensors, gradients that depend on all; to differentiate them again raises."""

    @staticmethod
    def forward(ctx: Context, count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(part if part is None else part.view_as(part) for part in tensors[:count])

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> NoReturn:
        raise RuntimeError(
            "refnet.torch differentiates once, and this is a second derivative; for layers, "
            "PyTorch's own have it: refnet.torch.restore(model)"
        )


def run_cell(
    cell: str,
    activation: str,
    x: Tensor,
    h0: Tensor,
    params: dict[str, Tensor],
    steps: Steps = AS_THEY_STAND,
) -> tuple[Tensor, Tensor]:
    """A cell of refnet's over a sequence: the outputs and the states at the end, differentiable.

    Shapes: x (T, B, D), or (N, D) for ``steps`` of a packed sequence; h0 and the end (S, B, H),
    S the number of the cell's states; ``params`` by refnet's names. Tensors on the CPU, all
    float32 or all float64, which the caller has checked.

    >>> x, h0 = torch.ones(5, 2, 3), torch.zeros(1, 2, 4)
    >>> params = {"Wxh": torch.ones(4, 3), "Whh": torch.eye(4), "bh": torch.zeros(4)}
    >>> outputs, end = run_cell("rnn", "tanh", x, h0, params)
    >>> outputs.shape, bool((outputs[-1] == end[0]).all())
    (torch.Size([5, 2, 4]), True)
    """
    every = (x, h0, *params.values())
    keeps = torch.is_grad_enabled() and any([tensor.requires_grad for tensor in every])
    job = Job(_layer(cell, activation, keeps), tuple(params), steps)
    if keeps or torch.autograd.forward_ad._current_level >= 0:  # has no rule, and says so
        return _Run.apply(job, *every)  # type: ignore[no-any-return]
    return job.compute(x, h0, every[2:])[1:]


def admit(where: str, tensors: Iterable[Tensor]) -> None:
    """Raise RuntimeError unless the kernels take all tensors; warn where autocast is on, which they
    do not follow."""
    if torch.is_autocast_enabled("cpu"):
        warnings.warn(
            f"refnet.torch.{where}: autocast is on, and refnet computes in the weights' own type; "
            "refnet.torch.restore(model) for PyTorch's own layers",
            stacklevel=2,
        )
    dtypes = {tensor.dtype for tensor in tensors}
    for tensor in tensors:
        if not tensor.is_cpu:
            raise RuntimeError(
                f"refnet.torch.{where}: a tensor is on {tensor.device}; need all on the CPU: "
                "model.cpu(), or refnet.torch.restore(model) for PyTorch's own layers"
            )
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        raise RuntimeError(
            f"refnet.torch.{where}: input, states and weights are "
            f"{', '.join(sorted(map(str, dtypes)))}; need torch.float32 or torch.float64 for all: "
            "model.float() and x.float(), or refnet.torch.restore(model) for PyTorch's own layers"
        )


class _Function(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx: Context, run: Run, names: tuple[str, ...], *tensors: Tensor) -> Tensor:
        value, ctx.pull = run(dict(zip(names, map(array_of, tensors))))
        ctx.names = names
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(np.asarray(value))

    @staticmethod
    def backward(ctx: Context, dvalue: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # raises if one has been changed in place
        pulled = ctx.pull(array_of(dvalue))
        tensors = [torch.tensor(pulled[name]) if name in pulled else None for name in ctx.names]
        if torch.is_grad_enabled():
            tensors = _Once.apply(len(tensors), *tensors, *saved, dvalue)
        return None, None, *tensors


def applied(run: Run, tensors: Mapping[str, Tensor]) -> Tensor:
    """``run`` of the tensors' arrays, differentiated once by its pullback, which may leave
    out constants.

    >>> def square(arrays):
    ...     return arrays["x"] ** 2, lambda d: {"x": 2 * arrays["x"] * d}
    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> applied(square, {"x": x}).backward()
    >>> x.grad
    tensor(6.)
    """
    value: Tensor = _Function.apply(run, tuple(tensors), *tensors.values())
    return value


def function(net: Net) -> Callable[..., Tensor]:
    """The net as a function of PyTorch, ``f(params, x, mask=None) -> outputs``.

    ``params``: a dict of tensors by refnet's names; ``x``, ``mask`` as for the net's ``forward``.
    Tensors on the CPU, all float32 or all float64, but for x of symbols and a mask; any loss and
    optimizer of PyTorch's may follow. It is differentiated once, in reverse. Raises RuntimeError,
    ValueError or TypeError on tensors that do not fit.

    >>> from refnet import RecurrentNet
    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3, transition="cayley")
    >>> params = net.init(np.random.default_rng(0))
    >>> p = {name: torch.from_numpy(value).requires_grad_() for name, value in params.items()}
    >>> function(net)(p, torch.ones(5, 8, 2)).sum().backward()
    >>> p["Whh.A"].grad.shape
    torch.Size([4, 4])

    Checked by: tests/check/test_torch.py::test_refnet_inside_torch.
    """

    def call(params: dict[str, Tensor], x: Tensor, mask: Tensor | None = None) -> Tensor:
        floats = [x] if x.is_floating_point() else []
        admit("function", [*floats, *params.values()])
        steps = None if mask is None else array_of(mask)

        def run(arrays: Params) -> tuple[Array, Callable[[Array], Params]]:
            inputs = arrays.pop("x")
            with _threads_of_torch():
                outputs, tape = net.forward(arrays, inputs, steps, copy=False)

            def pull(doutputs: Array) -> Params:
                with _threads_of_torch():
                    return net.backward(tape.given, tape, doutputs, x.requires_grad)

            return outputs, pull

        return applied(run, {"x": x, **params})

    return call
