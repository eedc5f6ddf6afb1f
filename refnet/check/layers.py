"""Recurrent layers as frameworks ship them, judged: stacked, in both directions, in every form that
they are used in.

Checked by: tests/check/test_torch.py, tests/check/test_jax.py,
tests/check/test_onnx.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Batch, Params
from refnet.check import models, operators
from refnet.check.adapters import jax_nets, onnx_nets, torch_nets
from refnet.check.arithmetic import Kind, arithmetic, stored
from refnet.check.cases import held, random_form
from refnet.check.certificates import case_of
from refnet.check.judgement import NOT_ROUNDING, SUSPICIOUS
from refnet.check.shrink import with_smallest
from refnet.check.survey import DTYPES, Dtypes, Rows, judged
from refnet.check.verdict import Verdict, compare
from refnet.exact.enclose import certify
from refnet.nets.stacked import StackedNet

__all__ = ["TABLES", "Case", "Table", "cases", "onnx_rows", "rows"]

SIZES = ((6, 4, 3),)
SHRINK = 5.0
"""The seconds that the smallest sizes of the first wrong row may take."""
Options = dict[str, Any]
READOUTS = ("last", "every", "none")
ADDED = {"two biases and h0": ("bhh", "h0"), "h0": ("h0",)}
"""What a variant has beyond the parameters of its net."""


@dataclass(frozen=True)
class Case:
    """A framework's layer, what it computes from and in, and the form in which it is used.
    ``absent``: the starts of the names of parameters that it lacks in this form."""

    framework: str
    what: str
    net: StackedNet
    params: Params
    batch: Batch
    dtype: Kind
    variant: str
    absent: tuple[str, ...]


def _torch(case: Case) -> Params:
    how = {"batch_first": case.variant == "batch_first", "bias": case.variant != "no bias"}
    return torch_nets.results(case.net, case.params, case.batch, case.dtype, **how)


def _jax(case: Case) -> Params:
    return jax_nets.layer_results(case.framework, case.net, case.params, case.batch, case.variant)


@dataclass(frozen=True)
class Table:
    """What a framework has. ``layers``: options of StackedNet by the layer's name; ``absent``:
    what of a cell's parameters it lacks, which is zero then; ``directions``: 2 if it has both;
    ``depths``: numbers of layers."""

    framework: str
    layers: dict[str, Options]
    variants: tuple[str, ...]
    results: Callable[[Case], Params] = _jax
    directions: int = 2
    depths: tuple[int, ...] = (1, 2, 3)
    absent: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """What is installed."""
        return {"PyTorch": "torch"}.get(self.framework, self.framework.lower())


RNN: Options = {"cell": "rnn"}
RELU: Options = {"cell": "rnn", "activation": "relu"}
LSTM: Options = {"cell": "lstm"}
GRU: Options = {"cell": "gru"}


TABLES = (
    Table(
        "PyTorch",
        {
            "nn.RNN tanh": RNN,
            "nn.RNN relu": RELU,
            "nn.LSTM": LSTM,
            "nn.LSTM proj_size": {**LSTM, "projection": 2},
            "nn.GRU": GRU,
        },
        ("", "batch_first", "no bias", "two biases and h0", "learned h0", "lengths"),
        _torch,
    ),
    Table(
        "Flax",
        {
            "nnx.SimpleCell tanh": RNN,
            "nnx.SimpleCell relu": RELU,
            "nnx.OptimizedLSTMCell": LSTM,
            "nnx.GRUCell": GRU,
        },
        ("", "batch_first", "h0", "learned h0", "lengths"),
        absent=("bhn",),
    ),
    Table("Flax", {"nnx.LSTMCell": LSTM}, ("LSTMCell",)),
    Table("Equinox", {"nn.LSTMCell": LSTM, "nn.GRUCell": GRU}, ("", "h0"), directions=1),
    Table(
        "Keras",
        {
            "SimpleRNN tanh": RNN,
            "SimpleRNN relu": RELU,
            "LSTM": LSTM,
            "GRU reset_after": GRU,
            "GRU reset before": {"cell": "gru_before"},
        },
        ("", "no bias", "h0", "learned h0", "lengths"),
    ),
    Table(
        "Keras",
        {"LSTM": LSTM, "GRU reset_after": GRU},
        ("go_backwards",),
        directions=1,
        depths=(1,),
    ),
)


def cases(
    table: Table, sizes: tuple[int, int, int] = SIZES[0], dtypes: Dtypes = DTYPES, seed: int = 0
) -> Iterator[Case]:
    """Every layer of a framework in every form; the read-outs take turns. ``sizes``: T, H, B."""
    T, H, B = sizes
    every = product(
        table.layers.items(), table.depths, range(table.directions), table.variants, dtypes
    )
    for turn, ((name, options), depth, both, variant, dtype) in enumerate(every):
        if options.get("projection", 0) >= H:  # it makes the state smaller
            continue
        readout = READOUTS[turn // len(dtypes) % 3]
        form: Options = {
            "layers": depth,
            "bidirectional": bool(both),
            "learn_h0": variant == "learned h0",
            "backend": "reference",
        }
        outputs = 5
        if readout == "none":
            outputs = (1 + both) * options.get("projection", H)
            form |= {"loss": "none", "reduction": "sum"}
        net = StackedNet(3, H, outputs, **{**options, **form, "readout": readout})
        absent = (*table.absent, *["bh"] * (variant == "no bias"))
        params, batch = _drawn(net, variant, absent, dtype, T, B, [seed, turn])
        many = f"{depth} layer{'s' * (depth > 1)}"
        parts = (name, many, "both directions" * both, variant, readout)
        what = ", ".join(filter(None, parts))
        yield Case(table.framework, what, net, params, batch, dtype, variant, absent)


def _drawn(
    net: StackedNet,
    variant: str,
    absent: tuple[str, ...],
    dtype: Kind,
    T: int,
    B: int,
    entropy: list[int],
) -> tuple[Params, Batch]:
    """Parameters and a batch, drawn again where all outputs are 0, as those of small layers of relu
    may be: their gradients would show nothing."""
    rng, added = np.random.default_rng(entropy), ADDED.get(variant, ())
    params, batch = random_form(net, rng, stored(dtype), T, B, added, variant == "lengths")
    params = {
        key: value * 0 if absent and key.startswith(absent) else value
        for key, value in params.items()
    }
    params, batch = held(arithmetic(dtype), params, batch)
    if net.forward(params, batch.x, batch.mask)[0].any():
        return params, batch
    return _drawn(net, variant, absent, dtype, T, B, [*entropy, 1])


def rows(
    table: Table, sizes: tuple[int, int, int] = SIZES[0], dtypes: Dtypes = DTYPES, seed: int = 0
) -> Rows:
    """A row for every case of a framework; the first wrong one with the fewest steps and sequences
    at which it still shows."""
    seconds = SHRINK
    for case in cases(table, sizes, dtypes, seed):
        T, B, _ = case.batch.x.shape
        row = judged(
            partial(_quietly, table.results, case),
            partial(_verdict, table, case, seconds),
            case.framework,
            table.package,
            case.what,
            case.dtype,
            T=T,
            H=case.net.hidden,
            B=B,
        )
        seconds *= row["verdict"] not in (NOT_ROUNDING, SUSPICIOUS)
        yield row


def _quietly(results: Callable[[Case], Params], case: Case) -> Params:
    """Without warnings of a slower path, such as oneDNN's lack of projections."""
    with catch_warnings():
        simplefilter("ignore")
        return results(case)


def _verdict(table: Table, case: Case, seconds: float, theirs: Params) -> Verdict:
    lacks = tuple(f"d{name}" for name in case.absent)

    def known(results: Params) -> Params:
        return {name: value for name, value in results.items() if not name.startswith(lacks)}

    def again(params: Params, batch: Batch) -> Params:
        return known(_quietly(table.results, replace(case, params=params, batch=batch)))

    required = tuple(known({f"d{name}": value for name, value in case.params.items()}))
    certified = certify(case.net, case.params, case.batch)
    verdict = compare(known(theirs), certified, dtype=case.dtype, required=required)
    inputs = case.params, case.batch
    given = case_of(case.net, inputs, dtype=case.dtype, required=required)
    return with_smallest(verdict, given, again, seconds)


def onnx_rows(dtype: DTypeLike = np.float32, seed: int = 0) -> Rows:
    """ONNX's operators with every input and attribute, forward, by both runtimes."""
    for case in operators.cases(dtype, SIZES[0], seed):
        T, B, _ = case.batch.x.shape
        proto = onnx_nets.layer_model(case)
        yield from models.judged_rows(proto, proto, case.feeds, case.what, T, B)
