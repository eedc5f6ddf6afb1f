"""torch.nn.RNN, LSTM and GRU in random configurations, PyTorch's own and refnet.torch's, judged:
``python -m benchmarks.judge.torch_modules --count 500``.

Outputs, final states and the gradients in all of them, in x, the initial states and every parameter
are judged by the certificate of a program in NumPy. The exit status is 1 if a verdict of refnet's
is not "explained by rounding". Checked by: tests/interop/test_torch_modules.py.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import refnet.torch
from benchmarks.records import Row
from refnet.batch import Array, Params
from refnet.check.noise import spread
from refnet.check.verdict import EXPLAINED, UNJUDGED, Verdict, compare
from refnet.exact.functions import certify_function

MODULES = {"torch": torch.nn, "refnet": refnet.torch}
FORMS = (
    "batched",
    "batched",
    "batch first",
    "unbatched",
    "packed",
    "packed sorted",
    "packed first",
)


class Configuration(NamedTuple):
    """A layer and how it is called. ``lengths``: of the sequences of a packed batch, or all T."""

    mode: str
    options: Row
    form: str
    starts: bool
    dtype: str
    lengths: tuple[int, ...]
    steps: int
    seed: int

    @property
    def hidden(self) -> int:
        return int(self.options["hidden_size"])


def random_configuration(seed: int) -> Configuration:
    """A small layer, sometimes with more units than a vector register holds numbers."""
    rng = np.random.default_rng(seed)
    mode = str(rng.choice(["RNN", "LSTM", "GRU"]))
    H = int(rng.choice([1, 2, 3, 5, 17]))
    options: Row = {
        "input_size": int(rng.integers(1, 6)),
        "hidden_size": H,
        "num_layers": int(rng.integers(1, 4 if H < 17 else 2)),
        "bias": bool(rng.random() < 0.75),
        "bidirectional": bool(rng.random() < 0.5),
        "dropout": float(rng.choice([0, 0, 0.3])),
    }
    if mode == "RNN":
        options["nonlinearity"] = str(rng.choice(["tanh", "relu"]))
    if mode == "LSTM" and H > 1 and rng.random() < 0.15:
        options["proj_size"] = int(rng.integers(1, H))
    form = str(rng.choice(FORMS))
    T, B = int(rng.integers(1, 8)), 1 if form == "unbatched" else int(rng.integers(1, 5))
    lengths = np.full(B, T)
    if form.startswith("packed"):
        lengths[1:] = rng.integers(1, T + 1, B - 1)
        lengths = -np.sort(-lengths) if form == "packed sorted" else rng.permutation(lengths)
    options["batch_first"] = form in ("batch first", "packed first")
    options["num_layers"] += options["dropout"] > 0 and options["num_layers"] == 1
    dtype, starts = str(rng.choice(["float32", "float64"])), bool(rng.random() < 0.5)
    return Configuration(mode, options, form, starts, dtype, tuple(map(int, lengths)), T, seed)


def layer_of(config: Configuration, package: Any) -> Any:
    """The layer, with weights that the seed decides."""
    torch.manual_seed(config.seed)
    layer = getattr(package, config.mode)(**config.options, dtype=getattr(torch, config.dtype))
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(weight + 0.3 * torch.randn_like(weight))
    return layer


def factors(config: Configuration) -> list[Array]:
    """What dropout multiplies the outputs of each layer but the last by, (T, B, W), from the
    random numbers that PyTorch draws."""
    options, T, B = config.options, config.steps, len(config.lengths)
    width = (options.get("proj_size") or config.hidden) * (1 + options["bidirectional"])
    counted = mask_of(config)
    torch.manual_seed(config.seed)
    drawn = []
    for _ in range(options["num_layers"] - 1):
        values = np.ones((T, B, width), config.dtype)
        if options["dropout"]:
            # a packed sequence's rows: step after step, the longest sequence first
            order = np.argsort(-np.array(config.lengths), kind="stable")
            rows = torch.ones(int(counted.sum()), width, dtype=getattr(torch, config.dtype))
            rows = torch.nn.functional.dropout(rows, options["dropout"])
            inside = values[:, order]
            inside[counted[:, order]] = rows.numpy()
            values[:, order] = inside
        drawn.append(values)
    return drawn


def mask_of(config: Configuration) -> Array:
    """Which steps count, bool (T, B)."""
    return np.arange(config.steps)[:, None] < np.array(config.lengths)


def arrays_of(config: Configuration) -> tuple[Array, ...]:
    """x (T, B, D), the initial states, and all weights as PyTorch lists them."""
    rng, B = np.random.default_rng([config.seed, 1]), len(config.lengths)
    x = rng.normal(size=(config.steps, B, config.options["input_size"]))
    cells = config.options["num_layers"] * (1 + config.options["bidirectional"])
    widths = [config.options.get("proj_size") or config.hidden]
    widths += [config.hidden] * (config.mode == "LSTM")
    states = [config.starts * rng.normal(size=(cells, B, width)) for width in widths]
    weights = [value.detach().numpy() for value in layer_of(config, torch.nn).parameters()]
    return x.astype(config.dtype), *(s.astype(config.dtype) for s in states), *weights


def step(config: Configuration, w: list[Any], x: Any, states: list[Any]) -> list[Any]:
    """The states after one step, in NumPy, by the equations of PyTorch's manual."""
    biases = w[2:4] if config.options["bias"] else [0, 0]
    a, b = x @ w[0].T + biases[0], states[0] @ w[1].T + biases[1]
    H = config.hidden
    if config.mode == "RNN":
        tanh = config.options["nonlinearity"] == "tanh"
        return [np.tanh(a + b) if tanh else np.where(a + b > 0, a + b, 0)]
    parts = [slice(n * H, (n + 1) * H) for n in range(a.shape[1] // H)]
    if config.mode == "GRU":
        r, z = (expit(a[:, part] + b[:, part]) for part in parts[:2])
        n = np.tanh(a[:, parts[2]] + r * b[:, parts[2]])
        return [(1 - z) * n + z * states[0]]
    i, f, o = (expit(a[:, parts[n]] + b[:, parts[n]]) for n in (0, 1, 3))
    c = f * states[1] + i * np.tanh(a[:, parts[2]] + b[:, parts[2]])
    h = o * np.tanh(c)
    return [h @ w[-1].T if "proj_size" in config.options else h, c]


def program(config: Configuration) -> Callable[..., Any]:
    """The layer in NumPy: all outputs, 0 in the padding, and then all final states, flat."""
    mask, thinning = mask_of(config)[:, :, None], factors(config)
    count = 1 + (config.mode == "LSTM")
    each = 2 + 2 * config.options["bias"] + ("proj_size" in config.options)

    def run(x: Any, *arrays: Any) -> Any:
        starts, weights = arrays[:count], arrays[count:]
        ends: list[list[Any]] = []
        for layer in range(config.options["num_layers"]):
            sides = []
            for way in range(1 + config.options["bidirectional"]):
                cell = len(ends)
                states = [start[cell] for start in starts]
                w = list(weights[cell * each : (cell + 1) * each])
                outputs = {}
                for t in range(config.steps)[:: -1 if way else 1]:
                    after = step(config, w, x[t], states)
                    states = [np.where(mask[t], *pair) for pair in zip(after, states)]
                    outputs[t] = np.where(mask[t], after[0], 0)
                sides.append(np.stack([outputs[t] for t in range(config.steps)]))
                ends.append(states)
            x = np.concatenate(sides, axis=2)
            if layer < len(thinning):
                x = x * thinning[layer] if config.options["dropout"] else x
        last = [np.stack(states) for states in zip(*ends)]
        return np.concatenate([x.reshape(-1), *(state.reshape(-1) for state in last)])

    return run


def results(config: Configuration, package: Any, cotangent: Array) -> Params:
    """What a layer of this package computes, by the names of the program's certificate."""
    layer, arrays = layer_of(config, package), arrays_of(config)
    count = 1 + (config.mode == "LSTM")
    x, *states = (torch.tensor(array, requires_grad=True) for array in arrays[: 1 + count])
    given, start = x, states
    if config.form == "unbatched":
        given, start = x[:, 0], [state[:, 0] for state in states]
    given = given.transpose(0, 1) if config.options["batch_first"] else given
    if config.form.startswith("packed"):
        lengths, first = torch.tensor(config.lengths), config.options["batch_first"]
        given = pack_padded_sequence(given, lengths, first, config.form == "packed sorted")
    torch.manual_seed(config.seed)
    hx = tuple(start) if count == 2 else start[0]
    outputs, end = layer(given, hx if config.starts else None)
    if config.form.startswith("packed"):
        outputs, _ = pad_packed_sequence(outputs, config.options["batch_first"])
    outputs = outputs.transpose(0, 1) if config.options["batch_first"] else outputs
    ends = end if isinstance(end, tuple) else (end,)
    value = torch.cat([outputs.reshape(-1), *(each.reshape(-1) for each in ends)])
    value.backward(torch.from_numpy(cotangent))
    tensors = [x, *states, *layer.parameters()]
    grads = {
        f"d{name}": np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
        for name, tensor in zip(["x", *(f"x{n}" for n in range(1, len(tensors)))], tensors)
        if config.starts or not any(tensor is state for state in states)
    }
    return {"value": value.detach().numpy(), **grads}


def verdicts(
    config: Configuration, packages: dict[str, ModuleType] = MODULES
) -> Iterator[tuple[str, Verdict]]:
    """The judge's verdict on each package's layer."""
    run, arrays = program(config), arrays_of(config)
    plain = run(*arrays)
    cotangent = np.random.default_rng([config.seed, 2]).normal(size=plain.shape)
    cotangent = cotangent.astype(config.dtype)
    certified = certify_function(run, *arrays, cotangent=cotangent, check=False)
    sigma = spread(certified, np.dtype(config.dtype))
    for name, package in packages.items():
        theirs = results(config, package, cotangent)
        yield name, compare(theirs, certified, sigma=sigma, required=tuple(theirs))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--count", type=int, default=500, help="configurations (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (default: 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # which is faster for layers as small as these
    counts: Counter[tuple[str, str]] = Counter()
    largest: dict[str, float] = dict.fromkeys(MODULES, 0.0)
    for seed in range(options.seed, options.seed + options.count):
        config = random_configuration(seed)
        for name, verdict in verdicts(config):
            counts[name, verdict.verdict] += 1
            largest[name] = max(largest[name], float(verdict.worst.z))
            if verdict.verdict not in (EXPLAINED, UNJUDGED):
                print(name, config, verdict, sep="\n", flush=True)
    for (name, said), count in sorted(counts.items()):
        print(f"{name}: {count} {said}, largest z {largest[name]:.2f}")
    wrong = options.count - counts["refnet", EXPLAINED] - counts["refnet", UNJUDGED]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
