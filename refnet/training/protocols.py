"""Protocols: the settings of each paper's text and of each released code, by name.

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
from dataclasses import fields, replace
from math import log, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from refnet.common.arguments import choice
from refnet.common.specs import format_spec, merge_specs, parse_spec
from refnet.runs.read import Record
from refnet.runs.rows import table
from refnet.tasks import TASKS, Task, make_task
from refnet.tasks.arrays import Arrays
from refnet.tasks.tables import READERS
from refnet.training.config import Config, applicable, check_given, check_value
from refnet.training.specs import KINDS, options_of, read_spec

__all__ = [
    "APART",
    "DEFAULTS",
    "PROTOCOLS",
    "Rule",
    "configure",
    "configure_task",
    "differences",
    "preset",
    "settings_of",
]


class Rule(NamedTuple):
    """``settings`` for certain runs: those in which each setting in ``when`` has the name, or one
    of the names, that are given there. A function among them takes the settings so far."""

    when: dict[str, str | tuple[str, ...]]
    settings: Record


_PLAIN = Rule(
    {},
    {
        "length": 0,
        "order": "shuffled",
        "net": "recurrent",
        "cell": "rnn",
        "hidden": 100,
        "layers": 1,
        "bidirectional": False,
        "depth": 10,
        "activation": "tanh",
        "embedding": 0,
        "gain": 1.0,
        "learn_h0": False,
        "transition": "dense",
        "weights": "glorot_uniform",
        "input_weights": "",
        "recurrent": "",
        "gate_recurrent": "",
        "reduction": "mean",
        "method": "plain",
        "orthogonal": "hidden",
        "oinit_rate": 0.1,
        "oinit_form": "squared",
        "oinit_gradient": 0.0,
        "oinit_cost": 1e-6,
        "oinit_steps": 100,
        "strength": 0.01,
        "open_form": "squared",
        "open_as": "penalty",
        "optimizer": "sgd",
        "rate": 0.01,
        "manifold_rate": 1e-6,
        "weight_decay": 0.0,
        "clip": "none",
        "clip_at": 1.0,
        "batch": 20,
        "iterations": 100_000,
        "evaluate_every": 100,
    },
)
"""The plainest choice where a text says nothing; every protocol begins with it. OINIT's rate and
cost are Manchev & Spratling's, II-A; their text names no number of steps, and 100 is the code's,
which counts the last check too."""

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
                    "embedding": lambda settings: settings["hidden"],
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


UNSET = vars(Config())


def _facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """What rules ask for: settings' names without their options, and the options of the task and
    of the transition."""
    facts = {
        key: str(value) if key not in KINDS else parse_spec(value)[0]
        for key, value in settings.items()
    }
    for kind in ("task", "transition"):
        name, options = parse_spec(settings[kind])
        known = {option: str(entry.default) for option, entry in options_of(kind, name).items()}
        facts |= {f"{kind}:{option}": value for option, value in {**known, **options}.items()}
    return facts


def _holds(rule: Rule, facts: Mapping[str, str]) -> bool:
    return all(
        facts[key] in ((names,) if isinstance(names, str) else names)
        for key, names in rule.when.items()
    )


def settings_of(protocol: str, given: Mapping[str, Any], saved: Mapping[str, Any]) -> Record:
    """All settings of a run under a protocol: those given, then those saved, then the protocol's,
    then Config's.

    One of the first two has the task. A spec that is given takes the options that it leaves out
    from the protocol's spec of the same name: ``svd:margin=1`` keeps the protocol's
    spectrum_rate. A saved spec is complete as it is.
    Raises ValueError for a protocol that is unknown, or not for this task.

    >>> settings_of("vorontsov/text", {"task": "copy"}, {})["hidden"]
    128
    """
    choice("protocol", protocol, PROTOCOLS)
    tasks, rules = PROTOCOLS[protocol]
    task = parse_spec({**saved, **given}["task"])[0]
    if tasks and task not in tasks:
        fitting = [name for name, (known, _) in PROTOCOLS.items() if not known or task in known]
        raise ValueError(
            f"protocol {protocol} has no task {task}: its tasks are "
            f"{', '.join(tasks)}; for {task} choose {' or '.join(fitting)}"
        )
    printed: Record = {}
    settings = UNSET | dict(saved) | dict(given)
    facts = _facts(settings)
    for rule in rules:
        if not _holds(rule, facts):
            continue
        for name, value in rule.settings.items():
            if name == "task":
                value = parse_spec(printed.get("task", task))[1] | value
                value = f"{task}:" + ",".join(f"{k}={v}" for k, v in value.items())
            printed[name] = value(settings) if callable(value) else value
        settings = UNSET | printed | dict(saved) | _merged(printed | dict(saved), given)
        facts = _facts(settings)
    return settings


def _merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> Record:
    """The settings given, each spec with the options that it leaves out taken from the base's."""
    return {
        name: merge_specs(base[name], value)
        if name in KINDS and base.get(name) and value
        else value
        for name, value in given.items()
    }


def configure(given: Mapping[str, Any], saved: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a run from the settings given, the task among them.

    ``saved``: settings from a file; one that applies to the run there and no longer to this one
    is left out. The rest comes from the protocol named, or from the task's own; what
    does not apply to the run keeps Config's default.
    Raises ValueError, in one line, for settings that are unknown, out of range or, if given,
    without effect.

    >>> configure({"task": "copy", "transition": "svd:margin=0.1"}).transition
    'svd:margin=0.1,spectrum_rate=printed'
    """
    saved = saved or {}
    chosen = {**saved, **given}
    for name, value in chosen.items():
        check_value(name, value)
    if not chosen.get("task"):
        raise ValueError("no task is given; name one, such as configure({'task': 'copy'})")
    task = parse_spec(chosen["task"])[0]
    options_of("task", task)
    protocol = chosen.get("protocol") or DEFAULTS.get(task, "refnet/default")
    settings = settings_of(protocol, given, saved) | {"protocol": protocol}
    if "length" in (task_options := parse_spec(chosen["task"])[1]):
        if chosen.get("length"):
            raise ValueError(
                f"length is {chosen['length']}, and the task's own is "
                f"{task_options['length']}; give one of them"
            )
        settings["length"] = 0  # not the protocol's
    apply = applicable(Config(**settings))
    if (
        saved
        and given.get("protocol", saved.get("protocol")) != saved.get("protocol")
        and applicable(Config(**saved)).keys() <= saved.keys()
    ):
        raise ValueError(
            f"protocol {protocol} would have no effect: the file has every setting; "
            "remove from it those that the protocol is to give"
        )
    # of what is saved for a run that other settings given have made another one, the rest is void
    void = applicable(Config(**saved)).keys() - given.keys() - apply.keys()
    config = Config(
        **{
            name: value
            for name, value in settings.items()
            if name in apply or name in chosen.keys() - void
        }
    )
    check_given(config, given)
    return config


def configure_task(task: Task, settings: Mapping[str, Any]) -> Config:
    """The configuration for a task object: one of ``refnet.tasks`` as its spec, which a run folder
    can keep; any other by its name alone, with the settings of ``refnet/default``.

    >>> configure_task(make_task("temporal-order", length=50), {"hidden": 8}).task
    'temporal-order:length=50,samples=10000'
    """
    if TASKS.get(task.name) is type(task):
        values: Any = task
        # all of them, for a protocol has defaults of its own
        options = {entry.name: getattr(task, entry.name) for entry in fields(values)}
        dtype = options.pop("dtype", "float32")
        given = {"order": options.pop("order")} if "order" in options else {}
        spec = format_spec(task.name, options)
        return configure({"task": spec, "dtype": dtype, **given, **settings})
    for name in ("task", "protocol", "length", "order", "carry"):
        if name in settings:
            said = f"{name} {settings[name]!r}"
            raise ValueError(f"{said} would have no effect: the task is an object; leave it out")
    flat = task.readout == "none"
    usual: Record = {"task": "mnist", "net": "feedforward"} if flat else {"task": "adding"}
    usual |= {"patience": PATIENCE} if isinstance(task, Arrays) else {}
    usual |= {"protocol": "refnet/default", "dtype": getattr(task, "dtype", "float32")}
    return replace(configure({**usual, **settings}), task=task.name, length=0)


def preset(task: str, **given: Any) -> Config:
    """``configure`` with the task, which may be a spec, and further settings by name.

    >>> preset("temporal-order", length=60, method="oinit").optimizer
    'rmsprop:form=lasagne'
    """
    return configure({"task": task, **given})


APART = """
On the Penn Treebank without a margin Vorontsov et al.'s code has a spectrum_factor of 1.

refnet does not follow the released codes in these points:

- Vorontsov et al. move U and V by steps along A = G'W - W'G, which is not a direction of descent,
  and start every step where U and V began (errata 31 and 44 of `refnet errata`). U and V never move
  further than one step of rate 1e-6, so the protocol has a rate of 0. Their OPLU returns its input
  unchanged.
- In the last release of Vorontsov et al.'s code, four things fail: adding, PReLU, the net without
  the factors U and V, and the Penn Treebank (the code asks for its batches with an argument that
  they do not take). The code also has no LSTM. For these the protocol has what the code was meant
  to do. Runs without a margin, and Glorot's and the identity's starts, follow the text: the code's
  spectrum always starts at 1, whatever the spectrum of the start is.
- Vorontsov et al.'s code uses Nesterov's SGD with a momentum of .9. Figure 4's runs with a prior
  use the text's SGD; the study causes has a run with the code's.
- Vorontsov et al. and Keras raise probabilities to at least 1e-7 before the logarithm, so the
  gradient of a symbol below it is 0. refnet's cross-entropy follows the formula.
- Scores. Vorontsov et al. log an epoch's mean on the training batches of generated tasks and do not
  stop when a task is solved; refnet tests on fresh sequences. Of several best weights they take the
  last and refnet the first. On the Penn Treebank they choose by an accuracy that counts the last
  two steps of a line, whose answer is always 0. The loss that refnet records includes the weight
  decay and penalties.
- Averages. Manchev & Spratling log the mean of the gradient's norm over 100 iterations; refnet logs
  the norm over all parameters in the last iteration. Pixel by pixel, Figure 3b has the norm of
  W_hh's gradient, a sixteenth of the mean over 1000 iterations, because their code divides by the
  number of images. Vorontsov et al. average batches by their number of lines, refnet by their
  number of characters.
- Images. Vorontsov et al. divide pixels by 256 and draw another permutation in every run; refnet
  divides them by 255 and uses one permutation.
- Tables II to IV of Manchev & Spratling are recorded with images shuffled in every epoch, and III
  and IV with a test after each epoch. Their code tests after every 10,000 examples, and the best of
  so many tests is a little higher. Table 3 of Vorontsov et al. is recorded with lines of similar
  length together (order shuffled), although both protocols mix lines of all lengths; so is the row
  "in nats" of the table by their code, whose U and V move.
- Units. In Vorontsov et al.'s code the Penn Treebank's loss is in bits. Here it is in nats. The
  protocol's weight decay and clipping are ln 2 times the code's, and RMSprop's eps is (ln 2)^2
  times the code's, so the steps are the same.
- Precision. Manchev & Spratling's code computes in float64. refnet computes in float32 unless told
  otherwise.
- Their OINIT makes one more update after the cost is below its threshold; refnet's does not. The
  update is of the order of the root of that cost.
- Limits on iterations. Manchev & Spratling's code allows 1,000,000 iterations on the synthetic
  problems, where the text has 100,000; 200 epochs on MNIST, where the text has 100; and 1,000,000
  iterations pixel by pixel. Both protocols take the text's limits, and its batches of 16 pixel by
  pixel, where the code's default is 20.
- Manchev & Spratling's code for the synthetic problems includes the penalty by default (--reg .1),
  even with OINIT. Their Table I gives no lambda for OINIT, and here OINIT has no penalty.
"""
"""What no protocol has, to be read beneath ``differences``."""

_METHODS = ("plain", "oinit", "open")


def differences() -> str:
    """A table of the settings in which each paper's text and its released code differ, made from
    the rules. Methods of Manchev & Spratling are named where not all of them differ.

    >>> differences().splitlines()[0].split("|")[1].strip()
    'authors'
    """
    tables: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for authors in ("manchev-spratling", "vorontsov"):
        methods = _METHODS if authors == "manchev-spratling" else _METHODS[:1]
        for task in PROTOCOLS[f"{authors}/text"][0]:
            for method in methods:
                text, code = (
                    applicable(preset(task, method=method, protocol=f"{authors}/{kind}"))
                    for kind in ("text", "code")
                )
                for name in text:
                    pair = [str(side[name]) for side in (text, code)]
                    if len({value.partition(":")[0] for value in pair}) == 1:
                        pair = [value.partition(":")[2] or value for value in pair]
                    if name != "protocol" and pair[0] != pair[1]:
                        cells = tables.setdefault((authors, name, *pair), {})
                        cells.setdefault(task, []).append(method)
    rows = [
        [
            *key,
            ", ".join(
                task
                + (
                    f" ({' and '.join(methods)})"
                    if methods not in (list(_METHODS), ["plain"])
                    else ""
                )
                for task, methods in cells.items()
            ),
        ]
        for key, cells in tables.items()
    ]
    return table(["authors", "setting", "text", "code", "in"], rows)
