"""Whole fits, from arrays to the test score: ``python -m benchmarks.fit [--quick] [--rows N ...]``.

refnet's compiled core, PyTorch on padded batches and on packed ones, and Keras on JAX start from
the same weights, take the same batches (Keras shuffles by itself) and Adam, and then score the test
part. Before, each one's loss and gradients at the first batch are compared with those of refnet's
reference in float64. Each fit runs once to compile and then in turns, but what takes more than
LONG seconds counts from its first one alone; PyTorch's counts at its better number of threads.
Medians with quartiles go to benchmarks/results/fit.json. The orthogonal net has e^X for Whh in
refnet and in PyTorch (``parametrizations.orthogonal``); Keras has none.

Lengths: "equal"; "different", 25% to 100% of T; "skewed", about a quarter of T on average. Two
real data sets come with sktime: ``pip install --no-deps sktime``.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.turns import between, spread
from refnet.batch import Array, Batch, Params
from refnet.check.adapters import torch_nets
from refnet.compiled import info
from refnet.interop import torch_weights
from refnet.maths.threads import set_threads
from refnet.nets.base import to_transition
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.files import write_text
from refnet.runs.rows import machine, table
from refnet.training.optimizers import Adam

RESULTS = Path(__file__).parent / "results" / "fit.json"
CLASSES, RATE, EPOCHS, BATCHES = 4, 1e-3, 2, 10
"""Of generated data, and of each fit."""
EPS = 1e-8
AGREE = 1000
"""How far a gradient may be off, in eps of its largest entry."""
THREADS = 2
LONG = 30
"""Seconds of a fit beyond which it runs once."""
SHIPPED = ("JapaneseVowels", "PLAID")
BIG, WIDE = (120, 6, 64, 50), (50, 32, 256, 32)
ROWS = (
    *(
        (cell, *size, kind)
        for size in (BIG, WIDE)
        for cell in ("lstm", "gru", "rnn")
        for kind in ("equal", "different")
    ),
    *((cell, 1344, 1, 64, 50, "skewed") for cell in ("lstm", "gru")),
    *((cell, 0, 0, 64, 50, name) for name in SHIPPED for cell in ("lstm", "gru")),
    *(("rnn", *BIG, kind, "expm") for kind in ("equal", "different")),
)
"""Cell, T, D, H, B, and the lengths or the data set, which has its own T and D; the transition."""


class Data(NamedTuple):
    """A part of the sequences: x (T, N, D) padded with zeros, ``lengths`` (N,), classes y (N,)."""

    x: Array
    lengths: Array
    y: Array

    def batch(self, rows: Array) -> tuple[Array, Array, Array]:
        """x no longer than the longest of these, their lengths and classes."""
        lengths = self.lengths[rows]
        return self.x[: lengths.max(), rows], lengths, self.y[rows]


def generated(T: int, D: int, B: int, kind: str, count: int, seed: int) -> Data:
    """Noisy waves, whose frequency is the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, count)
    lengths = {
        "equal": np.full(count, T),
        "different": rng.integers(T // 4, T + 1, count),
        "skewed": np.minimum(T * 100 // 1344 + rng.exponential(T / 6, count).astype(int), T),
    }[kind]
    lengths[0] = T
    t = np.arange(T)[:, None, None]
    x = np.sin(t * 0.3 * (1 + y[:, None]) + 6.3 * rng.random((count, D))) + rng.normal(
        size=(T, count, D)
    )
    x[np.arange(T)[:, None] >= lengths] = 0
    return Data(x.astype(np.float32), lengths, y)


def shipped(name: str) -> tuple[Data, Data]:
    """The training and the test part of a data set of sktime's, standardized by the former."""
    place = find_spec("sktime")
    if place is None or place.submodule_search_locations is None:
        sys.exit(f"{name} comes with sktime: pip install --no-deps sktime")
    folder = Path(place.submodule_search_locations[0]) / "datasets" / "data" / name
    parts, known = [], dict[str, int]()
    for part in ("TRAIN", "TEST"):
        text = (folder / f"{name}_{part}.ts").read_text(encoding="utf-8-sig")
        lines = text.partition("@data")[2].split("\n")
        cases = [line.strip().split(":") for line in lines if line.strip()]
        series = [
            np.array([column.split(",") for column in case[:-1]], np.float32).T for case in cases
        ]
        labels = [known.setdefault(case[-1], len(known)) for case in cases]
        parts.append((series, np.array(labels)))
    every = np.concatenate(parts[0][0])
    mean, scale = every.mean(axis=0), every.std(axis=0)
    data = []
    for series, labels in parts:
        lengths = np.array(list(map(len, series)))
        x = np.zeros((lengths.max(), len(series), every.shape[1]), np.float32)
        for n, values in enumerate(series):
            x[: len(values), n] = (values - mean) / scale
        data.append(Data(x, lengths, labels))
    return data[0], data[1]


class Fit:
    """A problem: the data, the net and its start. ``orders``: the batches of all epochs."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        cell, T, D, H, self.size, kind, *transition = row
        if T:
            self.train, self.test = (
                generated(T, D, self.size, kind, self.size * batches, seed)
                for seed, batches in ((0, BATCHES), (1, BATCHES // 2))
            )
        else:
            self.train, self.test = shipped(kind)
        D, classes = self.train.x.shape[2], int(self.train.y.max()) + 1
        self.net = RecurrentNet(D, H, classes, cell, backend="compiled")
        if transition:
            self.net = replace(self.net, transition=to_transition(*transition))
        rng = np.random.default_rng(2)
        self.params = self.net.init(rng, recurrent="orthogonal")
        count = len(self.train.y)
        self.orders = [
            rows
            for _ in range(EPOCHS)
            for rows in np.split(rng.permutation(count), range(self.size, count, self.size))
        ]

    def tests(self) -> list[Array]:
        return np.array_split(np.arange(len(self.test.y)), -(-len(self.test.y) // 256))

    def batch(self, data: Data, rows: Array) -> Batch:
        x, lengths, y = data.batch(rows)
        return Batch(x, y, np.arange(len(x))[:, None] < lengths)


class Refnet:
    """This package, on its compiled core."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit

    def gradients(self) -> tuple[float, Params]:
        fit = self.fit
        result = loss_and_gradients(fit.net, fit.params, fit.batch(fit.train, fit.orders[0]))
        return float(result.loss), result.gradients

    def run(self) -> float:
        fit, params = self.fit, self.fit.params
        rule = Adam(RATE, eps=EPS, skip=tuple(name for name in params if name.endswith(".base")))
        state = rule.init(params)
        for rows in fit.orders:
            batch = fit.batch(fit.train, rows)
            result = loss_and_gradients(fit.net, params, batch, inputs=False)
            params, state = rule.step(params, result.gradients, state)
        right = 0
        for rows in fit.tests():
            x, y, mask = fit.batch(fit.test, rows)[:3]
            outputs, _ = replace(fit.net, checkpoint="forward").forward(params, x, mask)
            right += int((outputs.argmax(axis=1) == y).sum())
        return right / len(fit.test.y)


class Torch:
    """torch's layers and Adam, on packed batches, or on padded ones, read at sequences' ends."""

    def __init__(self, fit: Fit, packed: bool, threads: int) -> None:
        self.fit, self.packed, self.threads = fit, packed, threads

    def start(self) -> Any:
        import torch

        torch.set_num_threads(self.threads)
        net, plain = self.fit.net, replace(self.fit.net, transition=None)
        p = net.matrices(self.fit.params)[0]
        modules = torch_nets.module(plain, np.float32)
        start = {name: value for name, value in p.items() if name in plain.shapes}
        modules.load_state_dict(torch_weights.state_dict(plain, start))
        if net.transition is not None:
            torch.nn.utils.parametrizations.orthogonal(
                modules["rnn"], "weight_hh_l0", orthogonal_map="matrix_exp"
            )
        return torch, modules

    def outputs(self, torch: Any, modules: Any, x: Array, lengths: Array) -> Any:
        steps = torch.from_numpy(x)
        if not self.packed:
            h = modules["rnn"](steps)[0]
            return modules["head"](h[torch.from_numpy(lengths) - 1, torch.arange(len(lengths))])
        pack = torch.nn.utils.rnn.pack_padded_sequence
        end = modules["rnn"](pack(steps, torch.from_numpy(lengths), enforce_sorted=False))[1]
        return modules["head"]((end[0] if isinstance(end, tuple) else end)[0])

    def loss(self, torch: Any, modules: Any, rows: Array) -> Any:
        x, lengths, y = self.fit.train.batch(rows)
        outputs = self.outputs(torch, modules, x, lengths)
        return torch.nn.functional.cross_entropy(outputs, torch.from_numpy(y))

    def gradients(self) -> tuple[float, Params]:
        torch, modules = self.start()
        loss = self.loss(torch, modules, self.fit.orders[0])
        loss.backward()
        rnn, head = modules["rnn"], modules["head"]
        named = {"Wxh": rnn.weight_ih_l0, "Why": head.weight}
        if self.fit.net.transition is None:
            named["Whh"] = rnn.weight_hh_l0
        grads = {name: value.grad.numpy() for name, value in named.items()}
        return float(loss.detach()), grads

    def run(self) -> float:
        torch, modules = self.start()
        rule = torch.optim.Adam(modules.parameters(), lr=RATE, eps=EPS)
        for rows in self.fit.orders:
            rule.zero_grad()
            self.loss(torch, modules, rows).backward()
            rule.step()
        right = 0
        with torch.no_grad():
            for rows in self.fit.tests():
                x, lengths, y = self.fit.test.batch(rows)
                outputs = self.outputs(torch, modules, x, lengths)
                right += int((outputs.argmax(1).numpy() == y).sum())
        return right / len(self.fit.test.y)


class Keras:
    """Keras's layers and Adam on JAX, with a mask if the lengths differ."""

    def __init__(self, fit: Fit) -> None:
        os.environ["KERAS_BACKEND"] = "jax"
        import keras

        self.fit, net, H = fit, fit.net, fit.net.hidden
        layer = {"rnn": keras.layers.SimpleRNN, "lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
        x, mask = keras.Input((None, net.inputs)), keras.Input((None,), dtype="bool")
        self.masked = (fit.train.lengths < len(fit.train.x)).any()
        rnn, head = layer[net.cell](H), keras.layers.Dense(net.outputs)
        self.model = keras.Model([x, mask], head(rnn(x, mask=mask if self.masked else None)))
        p = fit.params
        Wxh, Whh, bh = (_gates(p[name], net.cell, H) for name in ("Wxh", "Whh", "bh"))
        bias = np.stack([bh, np.concatenate([0 * bh[: 2 * H], p["bhn"]])]) if "bhn" in p else bh
        self.weights = [Wxh.T, Whh.T, bias, p["Why"].T, p["by"]]
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.rule, self.parts = (
            keras.optimizers.Adam,
            [self._whole(d) for d in (fit.train, fit.test)],
        )

    @staticmethod
    def _whole(data: Data) -> tuple[list[Array], Array]:
        mask = np.arange(len(data.x))[:, None] < data.lengths
        return [np.ascontiguousarray(data.x.swapaxes(0, 1)), np.ascontiguousarray(mask.T)], data.y

    def gradients(self) -> tuple[float, Params]:
        """The loss alone, which has all of the forward pass."""
        self.model.set_weights(self.weights)
        (x, mask), y = self.parts[0]
        rows = self.fit.orders[0]
        return float(self.loss(y[rows], self.model([x[rows], mask[rows]]))), {}

    def run(self) -> float:
        self.model.set_weights(self.weights)
        if getattr(self.model, "optimizer", None) is None:
            self.model.compile(self.rule(RATE, epsilon=EPS), self.loss)
        for variable in self.model.optimizer.variables[2:]:
            variable.assign(0 * variable)
        (x, y), (test, labels) = self.parts
        self.model.fit(x, y, self.fit.size, EPOCHS, verbose=0)
        answers = self.model.predict(test, 256, verbose=0).argmax(axis=1)
        return float((answers == labels).mean())


def _gates(value: Array, cell: str, H: int) -> Array:
    """A stack of gates in Keras's order, z before r."""
    if cell != "gru":
        return value
    return np.concatenate([value[H : 2 * H], value[:H], value[2 * H :]])


def contenders(fit: Fit) -> dict[str, Any]:
    """What is timed, by name; PyTorch's once for each number of threads."""
    torches = {
        f"torch {how}, {threads}": Torch(fit, how == "packed", threads)
        for how in ("padded", "packed")
        for threads in (1, THREADS)
        if how == "padded" or (fit.train.lengths < len(fit.train.x)).any()
    }
    keras = {} if fit.net.transition else {"keras on jax": Keras(fit)}
    return {"refnet": Refnet(fit), **torches, **keras}


def verify(fit: Fit, runs: dict[str, Any]) -> dict[str, float]:
    """How far each one's loss and worst gradient are from float64's, in eps of its largest entry.

    Raises ArithmeticError for one that computes something else.
    """
    p = {name: value.astype(np.float64) for name, value in fit.params.items()}
    batch = fit.batch(fit.train, fit.orders[0])
    batch = batch._replace(x=batch.x.astype(np.float64))
    want = loss_and_gradients(replace(fit.net, backend="reference"), p, batch)
    eps, off = float(np.finfo(np.float32).eps), {}
    for name, contender in runs.items():
        loss, grads = contender.gradients()
        distances = [abs(loss - float(want.loss)) / (eps * abs(float(want.loss)))]
        for key, value in grads.items():
            exact = want.gradients[key]
            if key.endswith(".base"):  # a constant of the transition
                continue
            distances.append(float(abs(value - exact).max() / (eps * abs(exact).max())))
        off[name] = max(distances)
        if not off[name] <= AGREE:
            raise ArithmeticError(f"{name} is {off[name]:.0f} eps from float64; need {AGREE}")
    return off


def timed(run: Callable[[], float]) -> tuple[float, float]:
    start = time.perf_counter()
    score = run()
    return time.perf_counter() - start, score


def measure(row: tuple[Any, ...], rounds: int) -> dict[str, Any]:
    """One row of the record."""
    set_threads(THREADS)
    fit = Fit(row)
    runs = contenders(fit)
    off = verify(fit, runs)
    first = {name: timed(contender.run) for name, contender in runs.items()}  # compiles
    scores = {name: score for name, (_, score) in first.items()}
    seconds = {name: [taken] if taken > LONG else [] for name, (taken, _) in first.items()}
    for _ in range(rounds):
        for name, contender in runs.items():
            if first[name][0] <= LONG:
                seconds[name].append(timed(contender.run)[0])
    ours = seconds["refnet"]
    best = {}
    for name in runs:
        label = name.partition(",")[0]
        if label not in best or min(seconds[name]) < min(seconds[best[label]]):
            best[label] = name
    T, N, D = fit.train.x.shape
    return {
        "row": [row[0], T, D, *row[3:]],
        "sequences": [N, len(fit.test.y)],
        "share": float(fit.train.lengths.mean() / T),
        "off": off,
        "scores": scores,
        "seconds": {
            label: {**spread(seconds[name]), "best": min(seconds[name]), "as": name}
            for label, name in best.items()
        },
        "ratio": {
            label: statistics.median(theirs / mine for theirs, mine in zip(seconds[name], ours))
            for label, name in best.items()
        },
        "machine": machine(),
        "vector bytes": info()["vector bytes"],
    }


def fits(record: dict[str, Any]) -> str:
    """The record as a table: a fit's seconds, and how many times as long the others take."""
    others = ("torch padded", "torch packed", "keras on jax")
    lines = []
    for row in record["rows"]:
        cell, T, D, H, B, kind, *transition = row["row"]
        scores = [100 * score for score in row["scores"].values()]
        lines.append(
            [
                f"{' '.join([cell, *transition])} ({T}, {D}, {H}, {B}), {kind}",
                f"{row['share']:.0%}",
                between(row["seconds"]["refnet"]),
                *(f"{row['ratio'][name]:.1f}" if name in row["ratio"] else "" for name in others),
                f"{min(scores):.0f} to {max(scores):.0f}%",
                str(row["vector bytes"]),
            ]
        )
    names = [f"{name} / refnet" for name in others]
    return table(
        ["cell (T, D, H, B), lengths", "work", "refnet, s", *names, "test scores", "vector"], lines
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Time whole fits beside PyTorch and Keras.",
        epilog="Example: python -m benchmarks.fit --quick --rows 0 1",
    )
    parser.add_argument("--quick", action="store_true", help="one round; nothing is recorded")
    parser.add_argument(
        "--rows",
        nargs="*",
        type=int,
        metavar="N",
        choices=range(len(ROWS)),
        help="measure only these rows, by number from 0, and replace them in the record",
    )
    options = parser.parse_args()
    chosen = range(len(ROWS)) if options.rows is None else options.rows
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = {(row["row"][0], *row["row"][3:], row["vector bytes"]): row for row in known}
    for number in chosen:
        print(ROWS[number], "...", file=sys.stderr, flush=True)
        row = measure(ROWS[number], 1 if options.quick else 5)
        rows[(row["row"][0], *row["row"][3:], row["vector bytes"])] = row
        record = {"rows": list(rows.values())}
        if not options.quick:
            write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    print(fits(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
