"""Today's frameworks, judged: one row for every layer, type and size.

Checked by: tests/check/test_adapters.py::test_torch_is_judged and its like.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.adapters import jax_nets, onnx_nets, torch_nets
from refnet.check.arithmetic import arithmetic, stored
from refnet.check.cases import NORMS, held, random_batch, random_params
from refnet.check.noise import spread
from refnet.check.verdict import Verdict, compare
from refnet.exact.enclose import Certified, Progress, certify
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
    "judge_function",
    "model_rows",
    "onnx_rows",
    "refused",
    "row",
    "torch_rows",
]

Sizes = tuple[tuple[int, int, int], ...]
SIZES: Sizes = ((1, 4, 1), (50, 32, 4), (200, 32, 8))
"""T, H, B of the cases; D = 3 inputs and C = 5 outputs."""

Rows = Iterator[dict[str, Any]]
Dtypes = tuple[Any, ...]
DTYPES: Dtypes = (np.float32, np.float64)


def row(framework: str, package: str, what: str, verdict: Verdict, **facts: Any) -> dict[str, Any]:
    """One line of the table: the worst quantity with both numbers; and every quantity.
    ``package``: what is installed, or "" for a user's function."""
    worst = verdict.worst
    return {
        "framework": framework,
        "version": version(package) if package else "",
        "what": what,
        "dtype": verdict.dtype,
        **facts,
        "z": worst.z,
        "rms": max(part.rms for part in verdict.parts),
        "worst": worst.name,
        "index": worst.index,
        "theirs": worst.theirs,
        "certified": worst.certified,
        "sigma": worst.sigma,
        "note": verdict.note,
        "verdict": verdict.verdict,
        "convention": verdict.convention,
        "quantities": [asdict(part) for part in verdict.parts],
    }


def refused(
    framework: str, package: str, what: str, dtype: Any, error: Exception, **facts: Any
) -> dict[str, Any]:
    """One line of the table for what a framework does not run, with what it says."""
    said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return {
        "framework": framework,
        "version": version(package),
        "what": what,
        "dtype": str(arithmetic(dtype)),
        **facts,
        "verdict": "refused",
        "note": said,
    }


def _case(net: Net, dtype: Any, T: int, B: int, seed: int) -> tuple[Params, Batch]:
    rng, kind = np.random.default_rng(seed), stored(dtype)
    return held(
        arithmetic(dtype), random_params(net, rng, kind), random_batch(net, rng, kind, T, B)
    )


def judge_function(
    net: Net,
    function: Callable[[Params, Batch], Params],
    dtype: Any,
    T: int,
    B: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Verdict, Certified]:
    """Judge any implementation: ``function(params, batch)`` gives arrays by refnet's names."""
    params, batch = _case(net, dtype, T, B, seed)
    certified = certify(net, params, batch, progress=progress)
    return compare(function(params, batch), certified, dtype=dtype), certified


def torch_rows(
    sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None, dtypes: Dtypes = DTYPES
) -> Rows:
    """torch.nn.RNN (tanh, relu), LSTM, GRU, Linear stacks, orthogonal parametrisations (these with
    two steps at least, and at the first of ``sizes`` at several norms)."""
    for T, H, B in sizes:
        nets: dict[str, Net] = {
            "nn.RNN tanh": RecurrentNet(3, H, 5),
            "nn.RNN relu": RecurrentNet(3, H, 5, activation=ACTIVATIONS["relu"]),
            "nn.LSTM": RecurrentNet(3, H, 5, cell="lstm", readout="every"),
            "nn.GRU": RecurrentNet(3, H, 5, cell="gru", readout="every"),
            "nn.Linear x 4, Tanh": FeedforwardNet((8, H, H, H, 5)),
            "nn.Linear x 4, ReLU": FeedforwardNet((8, H, H, H, 5), activation=ACTIVATIONS["relu"]),
        }
        for dtype in dtypes:
            for what, net in nets.items():
                params, batch = _case(net, dtype, T, B, seed)
                certified = certify(net, params, batch, progress=progress)
                sigma = spread(certified, dtype)
                facts = {"T": T, "H": H, "B": B}
                given = params
                if isinstance(net, RecurrentNet):  # a second bias of zero, to have its gradient
                    gated = 2 * H if net.cell == "gru" else len(params["bh"])
                    given = {**params, "bhh": np.zeros_like(params["bh"][:gated])}
                try:
                    theirs = torch_nets.results(net, given, batch, dtype)
                except RuntimeError as error:
                    yield refused("PyTorch", "torch", what, dtype, error, **facts)
                    continue
                second = theirs.pop("dbhh", None)
                verdict = compare(theirs, certified, dtype=dtype, sigma=sigma)
                yield row("PyTorch", "torch", what, verdict, **facts)
                if second is not None:
                    both = {"dbh": np.concatenate([second, theirs["dbh"][len(second) :]])}
                    verdict = compare(both, certified, dtype=dtype, sigma=sigma, required=())
                    yield row("PyTorch", "torch", f"{what}, bias_hh", verdict, **facts)
            if arithmetic(dtype).u > 2.0**-24:  # torch has no factorisations in 16 bits
                continue
            norms = NORMS if (T, H, B) == sizes[0] else ()
            yield from _orthogonal_rows(
                RecurrentNet(3, H, 5), dtype, max(T, 2), B, seed, norms, progress
            )


def _orthogonal_rows(
    net: RecurrentNet,
    dtype: Any,
    T: int,
    B: int,
    seed: int,
    norms: tuple[float, ...],
    progress: Progress | None,
) -> Rows:
    """torch's orthogonal parametrisations of Whh, T >= 2: in one step, from h0 = 0, nothing
    depends on it; and the exponential of matrices of the 1-norms ``norms``."""
    each = [(name, None) for name in ("matrix_exp", "cayley", "householder")]
    for map_name, norm in [*each, *(("matrix_exp", norm) for norm in norms)]:
        params, batch = _case(net, dtype, T, B, seed)
        what, facts = f"orthogonal, {map_name}", {"T": T, "H": net.hidden, "B": B}
        if norm is not None:
            turned = replace(net, transition=transition("expm"))
            params["Whh"] = random_params(
                turned,
                np.random.default_rng(seed),
                stored(dtype),
                norm=norm,
                recurrent="orthogonal",
            )["Whh.A"]
            what += f" at 1-norm {norm:g}"
        try:
            judged, params, theirs = torch_nets.orthogonal_results(net, params, batch, map_name)
        except RuntimeError as error:
            yield refused("PyTorch", "torch", what, dtype, error, **facts)
            continue
        certified = certify(judged, params, batch, progress=progress)
        verdict = compare(theirs, certified, dtype=dtype, required=tuple(theirs))
        yield row("PyTorch", "torch", what, verdict, **facts)


def jax_rows(
    sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None, dtypes: Dtypes = DTYPES
) -> Rows:
    """Jitted scans of the three cells."""
    for T, H, B in sizes:
        for dtype in dtypes:
            for cell in ("rnn", "lstm", "gru"):
                net = RecurrentNet(3, H, 5, cell=cell)

                def scan(params: Params, batch: Batch, net: RecurrentNet = net) -> Params:
                    return jax_nets.results(net, params, batch)

                verdict, _ = judge_function(net, scan, dtype, T, B, seed, progress)
                yield row("JAX", "jax", f"lax.scan {cell}", verdict, T=T, H=H, B=B)


def onnx_rows(sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None) -> Rows:
    """The forward pass of RNN, LSTM and GRU, by both runtimes."""
    shown = {"gru": "GRU reset after", "gru_before": "GRU reset before"}
    for T, H, B in sizes:
        for dtype in DTYPES:
            for cell in onnx_nets.ORDER:
                net = RecurrentNet(3, H, 5, cell=cell)
                params, batch = _case(net, dtype, T, B, seed)
                model = onnx_nets.model(net, params, dtype)
                certified = certify(net, params, batch, progress=progress)
                yield from _model_rows(model, shown.get(cell, cell.upper()), certified)


def _model_rows(model: Any, what: str, certified: Certified) -> Rows:
    x = certified.batch.x
    sigma = spread(certified, x.dtype)

    def verdict(theirs: Params) -> Verdict:
        return compare(theirs, certified, dtype=x.dtype.type, sigma=sigma, required=("h",))

    facts = {"T": len(x), "H": certified.named()["h"].value.shape[-1], "B": x.shape[1]}
    yield from by_runtimes(what, x.dtype, partial(onnx_nets.results, model, x), verdict, **facts)


def by_runtimes(
    what: str,
    dtype: Any,
    results: Callable[[str], Params],
    verdict: Callable[[Params], Verdict],
    **facts: Any,
) -> Rows:
    """A row for each runtime; one that refuses a valid model is a finding too."""
    for runtime, package in zip(onnx_nets.RUNTIMES, ("onnxruntime", "onnx")):
        try:
            theirs = results(runtime)
        except Exception as error:  # runtimes have no common one
            yield refused(runtime, package, what, dtype, error, **facts)
            continue
        yield row(runtime, package, what, verdict(theirs), **facts)


def model_rows(path: Path, T: int, B: int, seed: int = 0, progress: Progress | None = None) -> Rows:
    """A model file's recurrent layer by both runtimes, on inputs from N(0, 1)."""
    model, net, params = onnx_nets.read(path)
    batch = random_batch(net, np.random.default_rng(seed), params["Whh"].dtype, T, B)
    certified = certify(net, params, batch, progress=progress)
    yield from _model_rows(model, f"{path.name}: {net.cell}", certified)
