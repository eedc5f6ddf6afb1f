"""One training run's configuration: every choice by name, in TOML and as CLI flags.

A choice with options of its own is a *spec*: ``name`` or ``name:key=value,key=value``, such
as ``svd:margin=0.1`` or ``gaussian:std=0.001``.
"""

import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

__all__ = ["Config", "PRESETS", "from_toml", "parse_spec", "preset", "to_toml"]


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """All that a run depends on; the same configuration gives the same bits."""

    task: str = _option("temporal-order", "the task, with its options as a spec")
    length: int = _option(0, "sequence length T of a synthetic task (0: the task's default)")
    net: str = _option("recurrent", "recurrent or feedforward")
    cell: str = _option("rnn", "recurrent cell: rnn, gru, gru_before or lstm, such as "
                               "lstm:peepholes=true,forget=1")
    hidden: int = _option(100, "units in a hidden layer")
    depth: int = _option(10, "hidden layers of a feedforward net")
    activation: str = _option("tanh", "activation, such as tanh, relu or leaky_relu:alpha=0.5")
    gain: float = _option(1.0, "factor on the pre-activation of a recurrent net")
    learn_h0: bool = _option(False, "train the initial state")
    transition: str = _option("dense", "what the recurrent matrix is made of: dense, or a "
                                       "transition such as svd:margin=0.1")
    weights: str = _option("glorot_uniform", "initialiser of every matrix, such as "
                                             "gaussian:std=0.001")
    input_weights: str = _option("", "initialiser of the input matrix (empty: as weights)")
    recurrent: str = _option("", "initialiser of the recurrent matrix (empty: as weights)")
    gate_recurrent: str = _option("", "initialiser of the recurrent matrices of a gated cell's "
                                      "gates, such as ramp (empty: as recurrent)")
    reduction: str = _option("mean", "the loss is a mean (over all predictions), batch_mean (the "
                                     "sum over a sequence, the mean over sequences) or sum")
    method: str = _option("plain", "plain, oinit (orthogonal pre-training), open (orthogonality "
                                   "penalty) or oinit+open")
    orthogonal: str = _option("hidden", "which matrices oinit and open act on: hidden (recurrent "
                                        "or hidden layers') or all")
    oinit_rate: float = _option(0.1, "step size of the orthogonal pre-training")
    oinit_cost: float = _option(1e-6, "defect below which the pre-training stops")
    oinit_steps: int = _option(100, "steps after which the pre-training stops")
    strength: float = _option(0.01, "lambda of the orthogonality penalty")
    open_form: str = _option("squared", "form of the penalty: squared, unsquared or mean_square")
    open_as: str = _option("penalty", "penalty (a term of the loss) or update (a step of its "
                                      "own beside the optimiser's)")
    optimizer: str = _option("sgd", "optimiser, such as sgd, momentum:momentum=0.9 or rmsprop")
    rate: float = _option(0.01, "learning rate")
    manifold_rate: float = _option(1e-6, "learning rate of the parts that move on a manifold")
    weight_decay: float = _option(0.0, "coefficient of the sum of squares of every matrix")
    clip: str = _option("none", "gradient clipping: none, norm, value or step")
    clip_at: float = _option(1.0, "the bound of the clipping")
    batch: int = _option(20, "sequences or images in a batch")
    iterations: int = _option(100_000, "training batches at most")
    evaluate_every: int = _option(100, "batches between evaluations")
    seed: int = _option(0, "seed of everything random")
    dtype: str = _option("float32", "float32 or float64")
    backend: str = _option("compiled", "compiled (Numba) or reference (NumPy)")
    checkpoint: str = _option("none", "gradient checkpointing of a recurrent net: none, or sqrt "
                                      "(memory grows with the square root of the sequence "
                                      "length; each step is run forward twice)")


_SYNTHETIC = {"optimizer": "rmsprop:form=lasagne", "rate": 1e-4, "strength": 1.0}
_PIXELS = {**_SYNTHETIC, "batch": 16, "iterations": 1_000_000, "evaluate_every": 1000}

_FACTORISED = {"hidden": 128, "batch": 50, "transition": "svd:margin=0.1",
               "recurrent": "orthogonal", "input_weights": "uniform:limit=0.01",
               "learn_h0": True, "optimizer": "rmsprop:form=lasagne", "rate": 1e-4,
               "manifold_rate": 1e-6, "weight_decay": 1e-4, "clip": "step", "clip_at": 100.0}

PRESETS: dict[str, dict[str, Any]] = {
    "temporal-order": _SYNTHETIC,
    "temporal-order-3bit": _SYNTHETIC,
    "adding": _SYNTHETIC,
    "random-permutation": _SYNTHETIC,
    "mnist": {"net": "feedforward", "weights": "gaussian:sd=0.001", "batch": 16,
              "iterations": 375_000, "evaluate_every": 3750},
    "sequential-mnist": _PIXELS,
    "permuted-mnist": {**_FACTORISED, "iterations": 120_000, "evaluate_every": 1000},
    "copy": {**_FACTORISED, "activation": "identity", "iterations": 20_000},
    "ptb": {**_FACTORISED, "hidden": 512, "reduction": "batch_mean", "rate": 1e-3,
            "clip_at": 30.0, "iterations": 40_000, "evaluate_every": 200},
}
"""What differs from Config's defaults, by task. The synthetic tasks and MNIST follow Manchev &
Spratling (their code's RMSprop; their table gives the rates that a grid search chose);
permuted MNIST, copy and the Penn Treebank follow Vorontsov et al."""


def preset(task: str) -> Config:
    """The configuration of the task's protocol; ``task`` may be a spec."""
    return Config(**{"task": task, **PRESETS.get(parse_spec(task)[0], {})})


def parse_spec(text: str) -> tuple[str, dict[str, Any]]:
    """``"svd:margin=0.1"`` as ``("svd", {"margin": 0.1})``; values are read as in TOML, and
    bare words are strings. Raises ValueError on anything else.
    """
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ValueError(f"{text!r}: {item!r} is not key=value; write it like "
                             "svd:margin=0.1,start=identity")
        try:
            options[key.strip()] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            options[key.strip()] = value.strip()
    return name, options


def to_toml(config: Config) -> str:
    """The configuration as TOML that ``from_toml`` reads back to an equal one."""
    lines = ["# a refnet run; repeat it with: refnet train --config THIS_FILE"]
    for name, value in asdict(config).items():
        text = str(value).lower() if isinstance(value, bool) else (
            '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
            if isinstance(value, str) else repr(value))
        lines.append(f"{name} = {text}")
    return "\n".join(lines) + "\n"


def from_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, checked by name and type; absent ones stay absent."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: not a readable TOML file: {error}") from None
    known = {entry.name: entry for entry in fields(Config)}
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"{path}: setting {name!r} is unknown; the settings are "
                             f"{', '.join(known)}")
        need = type(known[name].default)
        if need is float and type(value) is int:
            settings[name] = float(value)
        elif type(value) is not need:
            raise ValueError(f"{path}: {name} is {value!r}; need a {need.__name__}")
    return settings
