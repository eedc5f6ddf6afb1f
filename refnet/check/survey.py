"""Today's frameworks, judged: one row for every layer, type and size.

Checked by: tests/check/test_torch.py::test_cells_are_judged and its like.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from itertools import product
from typing import Any, TypeVar

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.adapters import Refused, jax_nets, onnx_nets, torch_nets
from refnet.check.arithmetic import Kind, arithmetic, stored
from refnet.check.cases import NORMS, held, random_batch, random_params
from refnet.check.noise import spread
from refnet.check.tables import Row, said
from refnet.check.verdict import Verdict, compare
from refnet.exact.enclose import Progress, certify
from refnet.interop import onnx_nodes
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = [
    "DTYPES",
    "SIZES",
    "Rows",
    "by_runtimes",
    "jax_rows",
    "judged",
    "onnx_rows",
    "row",
    "torch_rows",
]

Sizes = tuple[tuple[int, int, int], ...]
SIZES: Sizes = ((1, 4, 1), (50, 32, 4), (200, 32, 8))
"""T, H, B of the cases; D = 3 inputs and C = 5 outputs."""

Rows = Iterator[Row]
Dtypes = tuple[Kind, ...]
Results = TypeVar("Results")
DTYPES: Dtypes = (np.float32, np.float64)


def row(framework: str, package: str, what: str, dtype: str, **facts: object) -> Row:
    """What a line of the table says before the verdict. ``package``: what is installed, or "" for
    a user's function."""
    known = version(package) if package else ""
    return {"framework": framework, "version": known, "what": what, "dtype": dtype, **facts}


def judged(
    results: Callable[[], Results],
    verdict: Callable[[Results], Verdict],
    framework: str,
    package: str,
    what: str,
    dtype: Kind,
    **facts: object,
) -> Row:
    """A row of the table: the verdict on what a framework computes, or its refusal. A layer that
    refuses an option it offers is a result of the survey, too."""
    line = row(framework, package, what, str(arithmetic(dtype)), **facts)
    try:
        theirs = results()
    except Refused as error:
        return {**line, "verdict": "refused", "note": str(error)}
    return {**line, **said(verdict(theirs))}


def _case(net: Net, dtype: Kind, T: int, B: int, seed: int) -> tuple[Params, Batch]:
    rng, kind = np.random.default_rng(seed), stored(dtype)
    return held(
        arithmetic(dtype), random_params(net, rng, kind), random_batch(net, rng, kind, T, B)
    )


def _compared(
    net: Net, case: tuple[Params, Batch], dtype: Kind, progress: Progress | None
) -> Callable[..., Verdict]:
    """``compare`` with the certificate and the sigmas of a case."""
    certified = certify(net, *case, progress=progress)
    return partial(compare, certified=certified, dtype=dtype, sigma=spread(certified, dtype))


def torch_rows(
    sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None, dtypes: Dtypes = DTYPES
) -> Rows:
    """torch.nn.RNN (tanh, relu), LSTM, GRU, Linear stacks, orthogonal parametrisations (these with
    two steps at least, and at the first of ``sizes`` at several norms)."""
    relu = ACTIVATIONS["relu"]
    for (T, H, B), dtype in product(sizes, dtypes):
        nets: dict[str, Net] = {
            "nn.RNN tanh": RecurrentNet(3, H, 5),
            "nn.RNN relu": RecurrentNet(3, H, 5, activation=relu),
            "nn.LSTM": RecurrentNet(3, H, 5, cell="lstm", readout="every"),
            "nn.GRU": RecurrentNet(3, H, 5, cell="gru", readout="every"),
            "nn.Linear x 4, Tanh": FeedforwardNet((8, H, H, H, 5)),
            "nn.Linear x 4, ReLU": FeedforwardNet((8, H, H, H, 5), activation=relu),
        }
        outcome = partial(judged, framework="PyTorch", package="torch", dtype=dtype, T=T, H=H, B=B)
        for what, net in nets.items():
            case = _case(net, dtype, T, B, seed)
            compared = _compared(net, case, dtype, progress)
            if not isinstance(net, RecurrentNet):
                yield outcome(partial(torch_nets.results, net, *case, dtype), compared, what=what)
                continue
            both = cache(partial(_with_second_bias, net, *case, dtype))
            first = outcome(both, partial(_of_part, 0, compared), what=what)
            yield first
            if first["verdict"] != "refused":
                second = partial(compared, required=())
                yield outcome(both, partial(_of_part, 1, second), what=f"{what}, bias_hh")
        if arithmetic(dtype).u <= 2.0**-24:  # torch has no factorisations in 16 bits
            norms = NORMS if (T, H, B) == sizes[0] else ()
            yield from _orthogonal_rows((max(T, 2), H, B), dtype, seed, norms, progress)


def _of_part(
    n: int, compared: Callable[[Params], Verdict], results: tuple[Params, Params]
) -> Verdict:
    return compared(results[n])


def _with_second_bias(
    net: RecurrentNet, params: Params, batch: Batch, dtype: Kind
) -> tuple[Params, Params]:
    """torch's results, and the gradient of its second bias, which is zero, in place of dbh."""
    gated = 2 * net.hidden if net.cell == "gru" else len(params["bh"])
    zero = np.zeros_like(params["bh"][:gated])
    theirs = torch_nets.results(net, {**params, "bhh": zero}, batch, dtype)
    second = theirs.pop("dbhh")
    return theirs, {"dbh": np.concatenate([second, theirs["dbh"][len(second) :]])}


def _orthogonal_rows(
    sizes: tuple[int, int, int],
    dtype: Kind,
    seed: int,
    norms: tuple[float, ...],
    progress: Progress | None,
) -> Rows:
    """torch's orthogonal parametrisations of Whh, T >= 2: in one step, from h0 = 0, nothing
    depends on it; and the exponential of matrices of the 1-norms ``norms``."""
    T, H, B = sizes
    net = RecurrentNet(3, H, 5)

    def verdict(results: tuple[RecurrentNet, Params, Params]) -> Verdict:
        net, params, theirs = results
        certified = certify(net, params, batch, progress=progress)
        return compare(theirs, certified, dtype=dtype, required=tuple(theirs))

    each = [(name, None) for name in ("matrix_exp", "cayley", "householder")]
    for map_name, norm in [*each, *(("matrix_exp", norm) for norm in norms)]:
        params, batch = _case(net, dtype, T, B, seed)
        what = f"orthogonal, {map_name}"
        if norm is not None:
            rng, exponential = (
                np.random.default_rng(seed),
                replace(net, transition=transition("expm")),
            )
            drawn = random_params(
                exponential, rng, stored(dtype), norm=norm, recurrent="orthogonal"
            )
            params["Whh"] = drawn["Whh.A"]
            what += f" at 1-norm {norm:g}"
        results = partial(torch_nets.orthogonal_results, net, params, batch, map_name)
        yield judged(results, verdict, "PyTorch", "torch", what, dtype, T=T, H=H, B=B)


def jax_rows(
    sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None, dtypes: Dtypes = DTYPES
) -> Rows:
    """Jitted scans of the three cells."""
    for (T, H, B), dtype, cell in product(sizes, dtypes, ("rnn", "lstm", "gru")):
        net = RecurrentNet(3, H, 5, cell=cell)
        case = _case(net, dtype, T, B, seed)
        compared = _compared(net, case, dtype, progress)
        results = partial(jax_nets.results, net, *case)
        yield judged(results, compared, "JAX", "jax", f"lax.scan {cell}", dtype, T=T, H=H, B=B)


def onnx_rows(sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None) -> Rows:
    """The forward pass of RNN, LSTM and GRU, by both runtimes."""
    shown = {"gru": "GRU reset after", "gru_before": "GRU reset before"}
    for (T, H, B), dtype, cell in product(sizes, DTYPES, onnx_nodes.ORDER):
        net = RecurrentNet(3, H, 5, cell=cell)
        params, batch = _case(net, dtype, T, B, seed)
        model = onnx_nodes.model(net, params, dtype)
        compared = _compared(net, (params, batch), dtype, progress)
        yield from by_runtimes(
            partial(onnx_nets.results, model, batch.x),
            partial(compared, required=("h",)),
            what=shown.get(cell, cell.upper()),
            dtype=dtype,
            T=T,
            H=H,
            B=B,
        )


def by_runtimes(
    results: Callable[[str], Params], verdict: Callable[[Params], Verdict], **facts: Any
) -> Rows:
    """A row for each of ONNX's runtimes, whose name ``results`` takes."""
    for runtime, package in zip(onnx_nets.RUNTIMES, ("onnxruntime", "onnx")):
        yield judged(
            partial(results, runtime), verdict, framework=runtime, package=package, **facts
        )
