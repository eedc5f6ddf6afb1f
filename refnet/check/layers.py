"""Recurrent layers as frameworks ship them, judged: stacked, in both directions, in every form that
they are used in.

Checked by: tests/check/test_torch.py, tests/check/test_jax.py,
tests/check/test_onnx.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from refnet.batch import Batch, Params
from refnet.check import operators
from refnet.check.adapters import jax_nets, onnx_nets, torch_nets
from refnet.check.arithmetic import arithmetic, stored
from refnet.check.cases import held, random_form
from refnet.check.noise import spread
from refnet.check.survey import DTYPES, Dtypes, Rows, by_runtimes, judged
from refnet.check.verdict import Verdict, compare, compare_values
from refnet.exact.enclose import certify
from refnet.nets.stacked import StackedNet

__all__ = ["TABLES", "Case", "Table", "cases", "onnx_rows", "rows"]

SIZES = ((6, 4, 3),)
READOUTS = ("last", "every", "none")
ADDED = {"two biases and h0": ("bhh", "h0"), "h0": ("h0",)}
"""What a variant has beyond the parameters of its net."""


@dataclass(frozen=True)
class Case:
    """A layer, what it computes from and in, and the form in which it is used. ``absent``: the
    starts of the names of parameters that it lacks in this form."""

    what: str
    net: StackedNet
    params: Params
    batch: Batch
    dtype: Any
    variant: str
    absent: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """What a framework has. ``layers``: options of StackedNet by the layer's name; ``absent``:
    what of a cell's parameters it lacks, which is zero then; ``directions``: 2 if it has both;
    ``depths``: numbers of layers."""

    framework: str
    package: str
    layers: dict[str, dict[str, Any]]
    variants: tuple[str, ...]
    results: Callable[[Case], Params]
    directions: int = 2
    depths: tuple[int, ...] = (1, 2, 3)
    absent: tuple[str, ...] = ()


RELU = {"cell": "rnn", "activation": "relu"}


def _torch(case: Case) -> Params:
    return torch_nets.results(
        case.net,
        case.params,
        case.batch,
        case.dtype,
        batch_first=case.variant == "batch_first",
        bias=case.variant != "no bias",
    )


def _on_jax(framework: str, case: Case) -> Params:
    return jax_nets.layer_results(framework, case.net, case.params, case.batch, case.variant)


TABLES = (
    Table(
        "PyTorch",
        "torch",
        {
            "nn.RNN tanh": {"cell": "rnn"},
            "nn.RNN relu": RELU,
            "nn.LSTM": {"cell": "lstm"},
            "nn.LSTM proj_size": {"cell": "lstm", "projection": 2},
            "nn.GRU": {"cell": "gru"},
        },
        ("", "batch_first", "no bias", "two biases and h0", "learned h0", "lengths"),
        _torch,
    ),
    Table(
        "Flax",
        "flax",
        {
            "nnx.SimpleCell tanh": {"cell": "rnn"},
            "nnx.SimpleCell relu": RELU,
            "nnx.OptimizedLSTMCell": {"cell": "lstm"},
            "nnx.GRUCell": {"cell": "gru"},
        },
        ("", "batch_first", "h0", "learned h0", "lengths"),
        partial(_on_jax, "Flax"),
        absent=("bhn",),
    ),
    Table(
        "Flax", "flax", {"nnx.LSTMCell": {"cell": "lstm"}}, ("LSTMCell",), partial(_on_jax, "Flax")
    ),
    Table(
        "Equinox",
        "equinox",
        {"nn.LSTMCell": {"cell": "lstm"}, "nn.GRUCell": {"cell": "gru"}},
        ("", "h0"),
        partial(_on_jax, "Equinox"),
        directions=1,
    ),
    Table(
        "Keras",
        "keras",
        {
            "SimpleRNN tanh": {"cell": "rnn"},
            "SimpleRNN relu": RELU,
            "LSTM": {"cell": "lstm"},
            "GRU reset_after": {"cell": "gru"},
            "GRU reset before": {"cell": "gru_before"},
        },
        ("", "no bias", "h0", "learned h0", "lengths"),
        partial(_on_jax, "Keras"),
    ),
    Table(
        "Keras",
        "keras",
        {"LSTM": {"cell": "lstm"}, "GRU reset_after": {"cell": "gru"}},
        ("go_backwards",),
        partial(_on_jax, "Keras"),
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
        alone: dict[str, Any] = {"loss": "none", "reduction": "sum"} if readout == "none" else {}
        width = (1 + both) * options.get("projection", H)
        net = StackedNet(
            3,
            H,
            width if readout == "none" else 5,
            **{
                **options,
                **alone,
                "readout": readout,
                "layers": depth,
                "bidirectional": bool(both),
                "learn_h0": variant == "learned h0",
            },
        )
        absent = (*table.absent, *["bh"] * (variant == "no bias"))
        params, batch = _drawn(net, variant, absent, dtype, T, B, [seed, turn])
        many = f"{depth} layer{'s' * (depth > 1)}"
        parts = (name, many, "both directions" * both, variant, readout)
        yield Case(", ".join(filter(None, parts)), net, params, batch, dtype, variant, absent)


def _drawn(
    net: StackedNet,
    variant: str,
    absent: tuple[str, ...],
    dtype: Any,
    T: int,
    B: int,
    entropy: list[int],
) -> tuple[Params, Batch]:
    """Parameters and a batch; others where all outputs are 0, as of small layers of relu, whose
    gradients would show nothing."""
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
    """A row for every case of a framework."""
    for case in cases(table, sizes, dtypes, seed):
        x = case.batch.x
        yield judged(
            partial(_quietly, table.results, case),
            partial(_verdict, case),
            table.framework,
            table.package,
            case.what,
            case.dtype,
            T=len(x),
            H=case.net.hidden,
            B=x.shape[1],
        )


def _quietly(results: Callable[[Case], Params], case: Case) -> Params:
    """Without warnings of a slower path, such as oneDNN's lack of projections."""
    with catch_warnings():
        simplefilter("ignore")
        return results(case)


def _verdict(case: Case, theirs: Params) -> Verdict:
    lacks = tuple(f"d{name}" for name in case.absent)
    names = [f"d{name}" for name in case.params]
    return compare(
        {name: value for name, value in theirs.items() if not name.startswith(lacks)},
        certify(case.net, case.params, case.batch),
        dtype=case.dtype,
        required=tuple(name for name in names if not name.startswith(lacks)),
    )


def onnx_rows(
    dtype: Any = np.float32, sizes: tuple[int, int, int] = SIZES[0], seed: int = 0
) -> Rows:
    """ONNX's operators with every input and attribute, forward, by both runtimes."""
    for case in operators.cases(dtype, sizes, seed):
        certified = certify(case.net, case.params, case.batch)
        values = {name: value.value for name, value in certified.states.items()}
        true, sigma = (
            onnx_nets.views(case, states) for states in (values, spread(certified, dtype))
        )
        T, B, _ = case.batch.x.shape
        yield from by_runtimes(
            partial(onnx_nets.layer_results, case),
            partial(compare_values, true=true, sigma=sigma, dtype=dtype, required=tuple(true)),
            what=case.what,
            dtype=dtype,
            T=T,
            H=case.net.hidden,
            B=B,
        )
