"""Today's frameworks before the judge: one row for every layer, type and size.

Checked by: tests/test_adapters.py::test_torch_is_judged and its like.
"""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.adapters import jax_nets, onnx_nets, torch_layers, torch_nets
from refnet.check.cases import random_batch, random_params
from refnet.check.noise import spread
from refnet.check.verdict import Verdict, compare
from refnet.exact.enclose import Certified, Progress, certify
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["SIZES", "jax_rows", "judge_function", "layer_rows", "model_rows", "onnx_rows", "row",
           "torch_rows"]

Sizes = tuple[tuple[int, int, int], ...]
SIZES: Sizes = ((1, 4, 1), (50, 32, 4), (200, 32, 8))
"""T, H, B of the cases; D = 3 inputs and C = 5 outputs."""

Rows = Iterator[dict[str, Any]]
DTYPES = (np.float32, np.float64)


def row(framework: str, package: str, what: str, verdict: Verdict, **facts: Any
        ) -> dict[str, Any]:
    """One line of the table: the worst quantity with both numbers."""
    worst = verdict.worst
    return {"framework": framework, "version": version(package), "what": what,
            "dtype": verdict.dtype, **facts, "z": worst.z, "rms": max(
                part.rms for part in verdict.parts), "worst": worst.name,
            "index": worst.index, "theirs": worst.theirs, "certified": worst.certified,
            "sigma": worst.sigma, "note": worst.note, "verdict": verdict.verdict,
            "convention": verdict.convention}


def _case(net: Net, dtype: Any, T: int, B: int, seed: int) -> tuple[Params, Batch]:
    rng = np.random.default_rng(seed)
    return random_params(net, rng, dtype), random_batch(net, rng, dtype, T, B)


def judge_function(net: Net, function: Callable[[Params, Batch], Params], dtype: Any,
                   T: int, B: int, seed: int = 0, progress: Progress | None = None
                   ) -> tuple[Verdict, Certified]:
    """Judge any implementation: ``function(params, batch)`` gives arrays by refnet's names."""
    params, batch = _case(net, dtype, T, B, seed)
    certified = certify(net, params, batch, progress=progress)
    return compare(function(params, batch), certified, dtype=dtype), certified


def torch_rows(sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None) -> Rows:
    """torch.nn.RNN (tanh, relu), LSTM, GRU, Linear stacks, orthogonal parametrisations."""
    for T, H, B in sizes:
        nets: dict[str, Net] = {
            "nn.RNN tanh": RecurrentNet(3, H, 5),
            "nn.RNN relu": RecurrentNet(3, H, 5, activation=ACTIVATIONS["relu"]),
            "nn.LSTM": RecurrentNet(3, H, 5, cell="lstm", readout="every"),
            "nn.GRU": RecurrentNet(3, H, 5, cell="gru", readout="every"),
            "nn.Linear x 4, Tanh": FeedforwardNet((8, H, H, H, 5)),
            "nn.Linear x 4, ReLU": FeedforwardNet((8, H, H, H, 5),
                                                  activation=ACTIVATIONS["relu"]),
        }
        for dtype in DTYPES:
            for what, net in nets.items():
                params, batch = _case(net, dtype, T, B, seed)
                certified = certify(net, params, batch, progress=progress)
                sigma = spread(certified, dtype)
                facts = {"T": T, "H": H, "B": B}
                verdict = compare(torch_nets.results(net, params, batch), certified, dtype=dtype,
                                  sigma=sigma)
                yield row("PyTorch", "torch", what, verdict, **facts)
                if isinstance(net, RecurrentNet):
                    second = {"dbh": torch_nets.results(net, params, batch, True)["dbh"]}
                    verdict = compare(second, certified, dtype=dtype, sigma=sigma, required=())
                    yield row("PyTorch", "torch", f"{what}, bias_hh", verdict, **facts)
            net = RecurrentNet(3, H, 5)
            for map_name in ("matrix_exp", "cayley", "householder"):
                params, batch = _case(net, dtype, T, B, seed)
                judged, params, theirs = torch_nets.orthogonal_results(net, params, batch, map_name)
                certified = certify(judged, params, batch, progress=progress)
                verdict = compare(theirs, certified, dtype=dtype, required=tuple(theirs))
                yield row("PyTorch", "torch", f"orthogonal, {map_name}", verdict, T=T, H=H, B=B)


VARIANTS = ("", "batch_first", "no bias", "two biases and h0", "packed")


def layer_rows(layers: tuple[int, ...] = (1, 2, 3), sizes: tuple[int, int, int] = (6, 4, 3),
               dtypes: tuple[Any, ...] = DTYPES, seed: int = 0) -> Rows:
    """torch.nn.RNN, LSTM and GRU of one layer and more, in one direction and both, in every form
    that they are used in; the read-outs last, every and none take turns. ``sizes``: T, H, B."""
    T, H, B = sizes
    kinds = {"nn.RNN tanh": ("rnn", "tanh"), "nn.RNN relu": ("rnn", "relu"),
             "nn.LSTM": ("lstm", "tanh"), "nn.GRU": ("gru", "tanh")}
    readouts = ("last", "every", "none")
    cases = product(kinds.items(), layers, (False, True), VARIANTS, dtypes)
    for turn, ((name, (cell, act)), depth, both, variant, dtype) in enumerate(cases):
        readout = readouts[turn // len(dtypes) % 3]
        alone: dict[str, Any] = {"loss": "none", "reduction": "sum"} if readout == "none" else {}
        net = StackedNet(3, H, (1 + both) * H if readout == "none" else 5, cell, act,
                         readout=readout, layers=depth, bidirectional=both, **alone)
        rng = np.random.default_rng([seed, turn])
        params, batch = random_params(net, rng, dtype), random_batch(net, rng, dtype, T, B)
        if variant == "no bias":
            params = {key: value * 0 if key.startswith("bh") else value
                      for key, value in params.items()}
        if variant == "two biases and h0":
            params |= {key: rng.normal(size=shapes[-1]).astype(dtype)
                       for key, shapes in _numbered(net, B).items()
                       if key.startswith(("bhh", "h0"))}
        if variant == "packed":
            batch = batch._replace(mask=np.arange(T)[:, None] < rng.integers(1, T + 1, B))
        certified = certify(net, params, batch)
        theirs = torch_layers.layer_results(net, params, batch, variant == "batch_first",
                                            variant != "no bias")
        required = tuple(f"d{key}" for key in params
                         if variant != "no bias" or not key.startswith("bh"))
        what = ", ".join(filter(None, (name, f"{depth} layers", "both directions" if both else "",
                                       variant, readout)))
        yield row("PyTorch", "torch", what, compare(theirs, certified, dtype=dtype,
                                                    required=required), T=T, H=H, B=B)


def _numbered(net: StackedNet, B: int) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the parameters for B sequences."""
    return {name: [tuple(B if isinstance(n, str) else n for n in shape) for shape in shapes]
            for name, shapes in net.shapes.items()}


def jax_rows(sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None) -> Rows:
    """Jitted scans of the three cells."""
    for T, H, B in sizes:
        for dtype in DTYPES:
            for cell in ("rnn", "lstm", "gru"):
                net = RecurrentNet(3, H, 5, cell=cell)

                def scan(params: Params, batch: Batch, net: RecurrentNet = net) -> Params:
                    return jax_nets.results(net, params, batch)

                verdict, _ = judge_function(net, scan, dtype, T, B, seed, progress)
                yield row("JAX", "jax", f"lax.scan {cell}", verdict, T=T, H=H, B=B)


def onnx_rows(sizes: Sizes = SIZES, seed: int = 0, progress: Progress | None = None) -> Rows:
    """The forward pass of RNN, LSTM and GRU, by both runtimes."""
    for T, H, B in sizes:
        for dtype in DTYPES:
            for cell in onnx_nets.ORDER:
                net = RecurrentNet(3, H, 5, cell=cell)
                params, batch = _case(net, dtype, T, B, seed)
                certified = certify(net, params, batch, progress=progress)
                sigma = spread(certified, dtype)
                made = onnx_nets.model(net, params, dtype)
                name = {"gru": "GRU reset after", "gru_before": "GRU reset before"}.get(
                    cell, cell.upper())
                for runtime, package in zip(onnx_nets.RUNTIMES, ("onnxruntime", "onnx")):
                    facts = {"T": T, "H": H, "B": B}
                    try:
                        theirs = onnx_nets.results(made, batch.x, runtime)
                    except Exception as error:  # a runtime that refuses a valid model: a finding
                        refusal = str(error).splitlines()[0][:200]
                        yield {"framework": runtime, "version": version(package), "what": name,
                               "dtype": np.dtype(dtype).name, **facts, "verdict": "refused",
                               "note": refusal}
                        continue
                    yield row(runtime, package, name, compare(
                        theirs, certified, dtype=dtype, sigma=sigma, required=("h",)), **facts)


def model_rows(path: Path, T: int, B: int, seed: int = 0, progress: Progress | None = None
               ) -> Rows:
    """A model file's recurrent layer by both runtimes, on inputs from N(0, 1)."""
    try:
        made = onnx_nets.read(path)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an ONNX model: {error}") from None
    net, params = onnx_nets.load(made)
    dtype = params["Whh"].dtype
    batch = random_batch(net, np.random.default_rng(seed), dtype, T, B)
    certified = certify(net, params, batch, progress=progress)
    sigma = spread(certified, dtype)
    for runtime, package in zip(onnx_nets.RUNTIMES, ("onnxruntime", "onnx")):
        verdict = compare(onnx_nets.results(made, batch.x, runtime), certified, dtype=dtype,
                          sigma=sigma, required=("h",))
        yield row(runtime, package, f"{path.name}: {net.cell}", verdict, T=T, H=net.hidden, B=B)
