"""The protocols of the papers: the settings of each paper's text and of each released code.

A protocol is a list of rules, each with the runs that it is for and the settings that it gives;
later rules replace earlier ones. ``AUTHORS/text`` has what the text says and, where the text says
nothing, the plainest choice (of Vorontsov et al. the code's, where _VORONTSOV has one);
``AUTHORS/code`` has what the released code does. ``refnet/default`` is for tasks of neither, such
as your own: ``_DEFAULT`` says why it is what it is; so does ``_BEST`` of ``refnet/best``. Tables
that print a rate or another parameter for each cell have one rule per cell, in both protocols.

Sources: Manchev & Spratling, III, Tables I-IV, and their released code; Vorontsov et al., 3 and
appendix, and theirs; Orhan & Pitkow (2020), and theirs.
Checked by: tests/training/test_protocols.py, tests/training/test_printed_settings.py.
"""

from collections.abc import Mapping
from math import log, sqrt
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from refnet.common.specs import parse_spec
from refnet.runs.read import Record
from refnet.tasks import make_task
from refnet.tasks.tables import READERS
from refnet.training.config import OWN, Config
from refnet.training.specs import read_spec


class Rule(NamedTuple):
    """``settings`` for certain runs: those in which each setting in ``when`` has the name, or one
    of the names, that are given there. A function among them takes the settings so far."""

    when: dict[str, str | tuple[str, ...]]
    settings: Record


UNSET = vars(Config())
_PLAIN = Rule({}, {name: value for name, value in UNSET.items() if name not in OWN})
"""The plainest choice where a text says nothing, which is Config's default; every protocol begins
with it. OINIT's rate and cost are Manchev & Spratling's, II-A; their text names no number of steps,
and 100 is the code's, which counts the last check too."""

SYNTHETIC = ("temporal-order", "temporal-order-3bit", "adding", "random-permutation")

TABLE_I: dict[str, dict[str, tuple[float, ...]]] = {
    "temporal-order": {"plain": (0.01,), "open": (0.001, 1.0), "oinit": (0.0001,)},
    "temporal-order-3bit": {"plain": (0.1,), "open": (0.001, 1.0), "oinit": (0.0001,)},
    "adding": {"plain": (0.01,), "open": (0.01, 0.0001), "oinit": (0.01,)},
    "random-permutation": {"plain": (0.0001,), "open": (0.1, 0.01), "oinit": (0.1,)},
}
"""Rate, and lambda for OPEN, by problem and method."""

_MANCHEV = [
    _PLAIN,
    Rule(
        {"task": SYNTHETIC},
        {
            "net": "recurrent",
            "hidden": 100,
            "activation": "tanh",
            "weights": "glorot_uniform",
            "batch": 20,
            "iterations": 100_000,
            "evaluate_every": 100,
        },
    ),
    *(
        Rule({"task": task, "method": method}, dict(zip(("rate", "strength"), values)))
        for task, cells in TABLE_I.items()
        for method, values in cells.items()
    ),
    # the combination is left open: OINIT's rate with OPEN's lambda
    *(
        Rule(
            {"task": task, "method": "oinit+open"},
            {"rate": cells["oinit"][0], "strength": cells["open"][1]},
        )
        for task, cells in TABLE_I.items()
    ),
    Rule(
        {"task": "sequential-mnist"},
        {
            "net": "recurrent",
            "hidden": 100,
            "activation": "tanh",
            "weights": "gaussian:sd=0.001",
            "batch": 16,
            "iterations": 1_000_000,
            "evaluate_every": 1000,
            "rate": 1e-4,
        },
    ),
    Rule(
        {"task": "sequential-mnist", "method": ("oinit", "oinit+open")},
        {"rate": 1e-5, "weights": "gaussian:sd=0.01"},
    ),
    Rule({"task": "sequential-mnist", "method": ("open", "oinit+open")}, {"strength": 0.1}),
    Rule(
        {"task": "mnist"},
        {
            "net": "feedforward",
            "hidden": 100,
            "activation": "tanh",
            "weights": "gaussian:sd=0.001",
            "batch": 20,
            "iterations": 300_000,
            "evaluate_every": 3000,
            "optimizer": "sgd",
            "rate": 0.01,
        },
    ),
    Rule({"task": "mnist", "method": ("open", "oinit+open")}, {"strength": 0.01}),
]

_VORONTSOV = [
    _PLAIN,
    Rule(
        {},
        {
            "net": "recurrent",
            "hidden": 128,
            "batch": 50,
            "activation": "tanh",
            "transition": "svd:margin=0.1,spectrum_rate=printed",
            "recurrent": "orthogonal",
            "weights": "glorot_uniform",
            "input_weights": "uniform:limit=0.01",
            "optimizer": "rmsprop:form=lasagne",
            "rate": 1e-4,
            "manifold_rate": 1e-6,
            "weight_decay": 1e-4,
            "clip_at": 100.0,
        },
    ),
    Rule({"task": "copy"}, {"activation": "identity", "iterations": 20_000}),
    Rule({"task": "adding"}, {"activation": "relu", "length": 1000, "iterations": 200_000}),
    Rule(
        {"task": ("sequential-mnist", "permuted-mnist")},
        {"task": {"validation": "10000"}, "iterations": 120_000, "evaluate_every": 1000},
    ),
    Rule(
        {"task": "ptb"},
        {
            "hidden": 512,
            "rate": 1e-3,
            "clip_at": 30.0,
            "order": "mixed",
            "task": {"select": "accuracy"},
        },
    ),
    # 200 epochs of the training lines that are short enough, in batches of 50
    Rule(
        {"task": "ptb", "task:characters": "75"}, {"iterations": 200 * 198, "evaluate_every": 198}
    ),
    Rule(
        {"task": "ptb", "task:characters": "300"}, {"iterations": 200 * 837, "evaluate_every": 837}
    ),
    Rule(
        {"cell": "lstm"},
        {
            "cell": "lstm:peepholes=true,forget=1",
            "transition": "dense",
            "input_weights": "orthogonal",
            "clip_at": 1.0,
            "activation": "tanh",
        },
    ),
    Rule({"cell": "lstm", "task": ("sequential-mnist", "permuted-mnist")}, {"iterations": 150_000}),
]

_ORHAN = [
    _PLAIN,
    Rule(
        {},
        {
            "net": "recurrent",
            "hidden": 100,
            "batch": 16,
            "activation": "elu",
            "recurrent": "chain",
            "weights": "glorot_uniform",
            "input_weights": "identity:scale=0.9",
            "optimizer": "rmsprop:form=keras,place=outside",
            "rate": 1e-4,
            "clip": "norm",
            "clip_at": 10.0,
            "iterations": 375_000,
            "evaluate_every": 3750,
        },
    ),
    Rule(
        {"recurrent": ("orthogonal", "identity")},
        {"input_weights": lambda settings: f"gaussian:sd={0.9 / sqrt(settings['hidden'])}"},
    ),
    Rule({"task": "copy"}, {"length": 480}),
    Rule(
        {"task": "adding"},
        {"length": 750, "activation": "relu", "task": {"protocol": "orhan-pitkow"}},
    ),
]


def _of_a_file(settings: Mapping[str, Any]) -> bool:
    return Path(parse_spec(settings["task"])[0]).suffix.lower() in READERS


def _net_for(settings: Mapping[str, Any]) -> str:
    if _of_a_file(settings):
        return "recurrent"
    name, options = read_spec("task", settings["task"])
    return "feedforward" if make_task(name, **options).readout == "none" else "recurrent"


PATIENCE = 20


def _patience_for(settings: Mapping[str, Any]) -> int:
    """A task from a file of one's own is never solved: it ends if nothing gets better."""
    return PATIENCE if _of_a_file(settings) else 0


_DEFAULT = [
    _PLAIN,
    Rule(
        {},
        {
            "net": _net_for,
            "cell": "gru",
            "optimizer": "adam",
            "rate": 1e-3,
            "recurrent": "orthogonal",
            "clip": "norm",
            "clip_at": 1.0,
            "patience": _patience_for,
        },
    ),
]

"""A GRU, Adam at .001, orthogonal recurrent matrices, gradients clipped to the norm 1. Recorded by
``python -m benchmarks.defaults`` for 100 units, T = 60, 2,000 batches of 20 and one seed: with Adam
at .001 a GRU solves temporal order of two and three bits and random permutation, adds to a mean
square of .001 and is right in 99% of majorities and of noisy waves; an LSTM and an rnn neither
permute nor add. At .01 a GRU learns most of these sooner, but an rnn none."""

_BEST = [
    _PLAIN,
    Rule(
        {},
        {
            "input_weights": "gaussian:sd=0.01",
            "optimizer": "adam",
            "rate": 3e-4,
            "clip": "norm",
            "clip_at": 0.1,
            "iterations": 30_000,
            "evaluate_every": 500,
        },
    ),
    Rule({"task": "temporal-order"}, {"length": 120}),
    Rule({"task": "temporal-order-3bit"}, {"length": 90}),
    Rule(
        {"task": "adding"},
        {
            "length": 100,
            "task": {"protocol": "manchev-spratling-hs97"},
            "input_weights": "gaussian:sd=0.1",
            "rate": 1e-3,
            "schedule": "cosine:steps=20000",
            "iterations": 20_000,
        },
    ),
    Rule({"task": "random-permutation"}, {"length": 240, "rate": 3e-5}),
    Rule({"method": "plain"}, {"recurrent": "orthogonal"}),
    Rule(
        {"task": ("adding", "random-permutation")}, {"activation": "relu", "recurrent": "identity"}
    ),
    Rule({"method": ("open", "oinit+open")}, {"strength": 0.1}),
    Rule(
        {"method": ("open", "oinit+open"), "task": ("adding", "random-permutation")},
        {"strength": 1e-3},
    ),
]
"""For the problems of Manchev & Spratling's Table I at the longest length printed there and each of
the three nets: what the studies best and best-search have tried is in refnet/training/README.md."""

PROTOCOLS: dict[str, tuple[tuple[str, ...], list[Rule]]] = {
    "manchev-spratling/text": (
        (*SYNTHETIC, "sequential-mnist", "mnist"),
        [
            *_MANCHEV,
            Rule({}, {"optimizer": "sgd", "orthogonal": "hidden", "open_form": "squared"}),
            Rule({"task": "adding"}, {"task": {"protocol": "manchev-spratling"}}),
            Rule({"task": ("sequential-mnist", "mnist")}, {"task": {"scaling": "unit"}}),
            Rule({"task": "mnist"}, {"depth": 10}),
        ],
    ),
    "manchev-spratling/code": (
        (*SYNTHETIC, "sequential-mnist", "mnist"),
        [
            *_MANCHEV,
            Rule({"net": "recurrent"}, {"optimizer": "rmsprop:form=lasagne"}),
            Rule({"method": ("oinit", "oinit+open")}, {"orthogonal": "all"}),
            Rule({"method": "open", "net": "recurrent"}, {"orthogonal": "hidden"}),
            Rule({"method": "oinit+open", "net": "recurrent"}, {"orthogonal": "all-at-start"}),
            Rule({"method": "open", "net": "feedforward"}, {"orthogonal": "all"}),
            Rule(
                {"method": ("open", "oinit+open"), "net": "recurrent"}, {"open_form": "unsquared"}
            ),
            Rule({"task": "adding"}, {"task": {"protocol": "manchev-spratling-code"}}),
            Rule(
                {"task": ("sequential-mnist", "mnist")},
                {"task": {"scaling": "code"}, "order": "file"},
            ),
            # 10,000 examples to a test
            Rule({"task": "mnist"}, {"depth": 11, "evaluate_every": 500}),
        ],
    ),
    "vorontsov/text": (
        ("copy", "adding", "sequential-mnist", "permuted-mnist", "ptb"),
        [
            *_VORONTSOV,
            Rule({}, {"learn_h0": False, "clip": "norm"}),
            Rule({"task": "copy"}, {"task": {"encoding": "one-hot"}}),
            Rule({"task": "adding"}, {"task": {"protocol": "vorontsov"}}),
        ],
    ),
    "vorontsov/code": (
        ("copy", "adding", "sequential-mnist", "permuted-mnist", "ptb"),
        [
            *_VORONTSOV,
            # every step of U and V starts from where they began (erratum 44)
            Rule({}, {"learn_h0": True, "clip": "step", "manifold_rate": 0.0}),
            Rule(
                {"transition": "svd"},
                {"transition": "svd:margin=0.1,spectrum_rate=printed,negative=relu"},
            ),
            Rule({"task": "copy"}, {"task": {"encoding": "scalar"}}),
            Rule({"task": "adding"}, {"task": {"protocol": "vorontsov-code"}}),
            Rule({"task": ("sequential-mnist", "permuted-mnist")}, {"order": "drawn"}),
            # its loss is in bits: in nats, what stands beside the loss is multiplied by ln 2
            Rule(
                {"task": "ptb"},
                {
                    "embedding": itemgetter("hidden"),
                    "weight_decay": 1e-4 * log(2),
                    "clip_at": 30 * log(2),
                    "optimizer": f"rmsprop:form=lasagne,eps={1e-6 * log(2) ** 2}",
                },
            ),
            Rule({"task": "ptb", "cell": "lstm"}, {"clip_at": log(2)}),
            # the spectrum's rate stays 1e-4 where the others' is 1e-3, but not without a margin
            Rule(
                {"task": "ptb", "transition": "svd"},
                {
                    "transition": "svd:margin=0.1,spectrum_rate=printed,negative=relu,"
                    "spectrum_factor=0.1"
                },
            ),
            Rule(
                {"task": "ptb", "transition": "svd", "transition:margin": "none"},
                {
                    "transition": "svd:margin=none,spectrum_rate=printed,negative=relu,"
                    "spectrum_factor=1"
                },
            ),
        ],
    ),
    "orhan-pitkow/code": (("copy", "adding", "permuted-mnist"), _ORHAN),
    "refnet/default": ((), _DEFAULT),
    "refnet/best": (SYNTHETIC, _BEST),
}
"""Name -> the tasks it is for (none: any), and its rules."""

DEFAULTS = {
    **dict.fromkeys((*SYNTHETIC, "sequential-mnist", "mnist"), "manchev-spratling/code"),
    **dict.fromkeys(("copy", "permuted-mnist", "ptb"), "vorontsov/text"),
}
"""The protocol of a task where none is named; of others it is refnet/default."""
