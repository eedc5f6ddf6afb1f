"""Table 5 of Vorontsov et al., measured again: ``python -m benchmarks.table5 [--hidden 128 ...]``.

Seconds per training step on the copy task (T = 100, batch 50, one-hot, tanh, float32): a plain
net with SGD, the factorised one with Cayley steps on both bases (the paper's geoSGD) and, for
comparison with the peers, which have one orthogonal matrix, the same with one; beside them
PyTorch with SGD, with ``parametrizations.orthogonal`` (Cayley and matrix exponential) and with
a dynamic trivialisation as in geotorch (matrix exponential at a base that is moved every 100
steps). The refnet steps are the trainer's own, with NumPy's products on one thread, as there;
the compiled core and PyTorch use all cores.

First every contender must get the same loss as refnet's plain net from the same weights, and
stay orthogonal over a step. Then, round by round, each takes a few steps; ratios are formed
within a round, so that a slower moment of the machine slows both sides. Medians, quartiles and
the environment go to benchmarks/results/table5.json.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.records import RESULTS, options
from benchmarks.turns import spread
from refnet.runs.files import write_text
from refnet.runs.rows import environment
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.steps import Run, step

RESULT = RESULTS / "table5.json"
PAPER = {128: (21.9, 40.4), 500: (46.7, 161.4), 1000: (95.4, 711.2)}
RATE, MANIFOLD_RATE = 1e-4, 1e-6
STEPS = {128: 20, 500: 5, 1000: 2}
EPS = float(np.finfo(np.float32).eps)


class Refnet:
    """The trainer's step; ``matrix()`` is the recurrent matrix."""

    def __init__(self, hidden, transition, start, backend):
        self.experiment = build(
            Config(
                task="copy",
                length=100,
                batch=50,
                hidden=hidden,
                transition=transition,
                recurrent="orthogonal",
                rate=RATE,
                manifold_rate=MANIFOLD_RATE,
                backend=backend,
            )
        )
        params, _ = self.experiment.start()
        if start:
            ours = {name: value for name, value in start.items() if not name.startswith("Whh")}
            parametrisation = self.experiment.net.transition
            parts = (
                {"Whh": start["Whh"]}
                if parametrisation is None
                else {
                    f"Whh.{part}": value.astype(np.float32)
                    for part, value in parametrisation.init(start["Whh"].astype(np.float64)).items()
                }
            )
            params = {**ours, **parts}
        self.run = Run(params, self.experiment.optimizer.init(params), params, {})

    def batch(self, number):
        config = self.experiment.config
        return self.experiment.task.batch(number, config.batch, config.seed)

    def step(self, batch):
        self.run, result, _ = step(self.experiment, self.run, batch)
        return float(result.loss)

    def matrix(self):
        return self.experiment.net.matrices(self.run.params)[0]["Whh"]


class Torch:
    """PyTorch's fused recurrence with a recurrent matrix that ``recurrent()`` makes."""

    def __init__(self, start, orthogonal):
        import torch
        from torch.nn.utils import parametrizations

        self.torch, self.orthogonal, self.steps = torch, orthogonal, 0
        hidden = len(start["Whh"])
        self.value = {
            name: torch.nn.Parameter(torch.tensor(value))
            for name, value in start.items()
            if name != "Whh"
        }
        Whh = torch.tensor(start["Whh"])
        parameters = list(self.value.values())
        if orthogonal in MAPS:
            holder = torch.nn.Linear(hidden, hidden, bias=False)
            parametrizations.orthogonal(holder, orthogonal_map=orthogonal)
            holder.weight = Whh
            self.recurrent = lambda: holder.weight
            parameters += list(holder.parameters())
        elif orthogonal == "trivialisation":
            self.A, self.base = torch.nn.Parameter(torch.zeros_like(Whh)), Whh
            self.recurrent = self._trivialised
            parameters.append(self.A)
        else:
            ours = torch.nn.Parameter(Whh)
            self.recurrent = lambda: ours
            parameters.append(ours)
        self.none = torch.zeros(hidden)
        self.optimizer = torch.optim.SGD(parameters, lr=RATE)

    def _trivialised(self):
        lower = self.A.tril(-1)
        return self.torch.matrix_exp(lower - lower.T) @ self.base

    def step(self, batch):
        torch, value = self.torch, self.value
        if self.orthogonal == "trivialisation" and self.steps % 100 == 99:
            with torch.no_grad():
                self.base = self._trivialised()
                self.A.zero_()
        self.steps += 1
        x, y = torch.from_numpy(batch.x), torch.from_numpy(batch.y)
        weights = [value["Wxh"], self.recurrent(), value["bh"], self.none]
        h, _ = torch.rnn_tanh(
            x, torch.zeros(1, x.shape[1], len(self.none)), weights, True, 1, 0.0, True, False, False
        )
        outputs = h @ value["Why"].T + value["by"]
        loss = torch.nn.functional.cross_entropy(
            outputs.reshape(-1, outputs.shape[-1]), y.reshape(-1)
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def matrix(self):
        return self.recurrent().detach().numpy()


MAPS = {"cayley": "cayley", "matrix_exp": "expm", "householder": "householder"}
"""PyTorch's maps, and refnet's of the same kind."""
COUNTERPARTS = (
    *((f"torch {theirs}", f"refnet {ours}") for theirs, ours in MAPS.items()),
    ("torch cayley", "refnet scaled_cayley"),
    ("torch trivialisation", "refnet expm"),
)


def contenders(hidden, backend):
    sgd = Refnet(hidden, "dense", None, backend)
    start = sgd.run.params
    return {
        "refnet sgd": sgd,
        "refnet geosgd": Refnet(hidden, "svd:margin=0.1", start, backend),
        "refnet orthogonal": Refnet(hidden, "orthogonal", start, backend),
        **{
            f"refnet {name}": Refnet(hidden, name, start, backend)
            for name in (*MAPS.values(), "scaled_cayley", "schur")
        },
        "torch sgd": Torch(start, None),
        **{f"torch {name}": Torch(start, name) for name in MAPS},
        "torch trivialisation": Torch(start, "trivialisation"),
    }


def verify(entries, hidden):
    """Two steps: the first loss is everyone's, the second one that of both plain nets, and what
    should be orthogonal is. Raises AssertionError.

    Losses differ by the rounding of a pass over 120 steps: some hundred times sqrt(H) eps.
    """
    batches = [entries["refnet sgd"].batch(number) for number in range(2)]
    losses = {name: [entry.step(batch) for batch in batches] for name, entry in entries.items()}
    first, second = losses["refnet sgd"]
    for name, (first_loss, second_loss) in losses.items():
        assert abs(first_loss - first) <= 100 * hidden**0.5 * EPS * first, (name, losses)
        if name == "torch sgd":
            assert abs(second_loss - second) <= 100 * hidden**0.5 * EPS * second, (
                name,
                second_loss,
                second,
            )
        W = entries[name].matrix().astype(np.float64)
        if not name.endswith(" sgd") and name not in ("refnet geosgd", "refnet schur"):
            defect = np.linalg.norm(W.T @ W - np.eye(hidden))
            # the peers have no drift guard: each step may add what one product rounds
            assert defect <= 100 * hidden**0.5 * EPS, (name, defect)
    return losses


def measure(hidden, rounds, backend):
    entries = contenders(hidden, backend)
    losses = verify(entries, hidden)
    count = STEPS.get(hidden, 5)
    number, seconds = 2, {name: [] for name in entries}
    for _ in range(rounds + 1):  # the first warms up
        batches = [entries["refnet sgd"].batch(number + k) for k in range(count)]
        number += count
        for name, entry in entries.items():
            started = time.perf_counter()
            for batch in batches:
                entry.step(batch)
            seconds[name].append((time.perf_counter() - started) / count)
    times = {name: np.array(values[1:]) for name, values in seconds.items()}
    ratios = {"geosgd / sgd": times["refnet geosgd"] / times["refnet sgd"]}
    for ours in ("refnet geosgd", "refnet orthogonal"):
        for peer in ("torch cayley", "torch matrix_exp", "torch trivialisation"):
            ratios[f"{peer} / {ours}"] = times[peer] / times[ours]
    for peer, ours in COUNTERPARTS:
        ratios[f"{peer} / {ours}"] = times[peer] / times[ours]
    ratios["torch sgd / refnet sgd"] = times["torch sgd"] / times["refnet sgd"]
    return {
        "hidden": hidden,
        "rounds": rounds,
        "steps_per_round": count,
        "losses": losses,
        "paper_geosgd / sgd": round(PAPER[hidden][1] / PAPER[hidden][0], 2)
        if hidden in PAPER
        else None,
        "milliseconds": {name: spread(1e3 * values) for name, values in times.items()},
        "ratios": {name: spread(values) for name, values in ratios.items()},
    }


def main() -> int:
    parser = options(
        "Measure Table 5 of Vorontsov et al. again.", "table5 --hidden 128 --rounds 30"
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=[128, 500, 1000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--backend", choices=["compiled", "reference"], default="compiled")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    import torch

    record = {
        "backend": args.backend,
        "environment": {
            **environment(),
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
        },
        "sizes": [],
    }
    for hidden in args.hidden:
        measured = measure(hidden, args.rounds, args.backend)
        record["sizes"].append(measured)
        print(f"{hidden} units, milliseconds a step:", flush=True)
        for group in ("milliseconds", "ratios"):
            for name, value in measured[group].items():
                print(f"  {name:42} {value['median']:10.2f}  {value['quartiles']}", flush=True)
        write_text(args.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
