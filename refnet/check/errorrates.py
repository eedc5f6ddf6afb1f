"""How often the verdict is wrong: correct implementations and planted bugs by the hundred.

And the same bugs before the checkers that people use today.
Checked by: tests/test_errorrates.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.adapters import jax_nets, torch_nets
from refnet.check.bugs import BUGS, CORRECT, Bug, run
from refnet.check.cases import random_batch, random_params, reference_results
from refnet.check.noise import spread
from refnet.check.verdict import EXPLAINED, LIMITS, compare
from refnet.exact.enclose import certify
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.recurrent import RecurrentNet

__all__ = ["bug_rows", "checker_rows", "correct_rows", "summary"]

Rows = Iterator[dict[str, Any]]
Implementation = Callable[[RecurrentNet, Params, Batch], Params]
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 784)


def permuted(net: RecurrentNet, params: Params, batch: Batch) -> Params:
    """The reference with units and examples in another order, so that every sum is."""
    rng = np.random.default_rng(0)
    units, examples = rng.permutation(net.hidden), rng.permutation(batch.x.shape[1])
    G = len(net.gates)
    rows = np.concatenate([g * net.hidden + units for g in range(G)])
    turned = {**params, "Whh": params["Whh"][rows][:, units], "Wxh": params["Wxh"][rows],
              "bh": params["bh"][rows], "Why": params["Why"][:, units]}
    if "bhn" in params:
        turned["bhn"] = params["bhn"][units]
    axis = 1 if net.readout == "every" else 0
    found = reference_results(net, turned, Batch(
        batch.x[:, examples], np.take(batch.y, examples, axis), None))
    back, order = np.argsort(rows), np.argsort(units)
    out = {**found, "dWhh": found["dWhh"][back][:, order], "dWxh": found["dWxh"][back],
           "dbh": found["dbh"][back], "dWhy": found["dWhy"][:, order],
           "dx": found["dx"][:, np.argsort(examples)],
           "outputs": np.take(found["outputs"], np.argsort(examples), axis),
           "dh0": found["dh0"][..., np.argsort(examples), :][..., order]}
    if "dbhn" in found:
        out["dbhn"] = found["dbhn"][order]
    return out


def compiled(net: RecurrentNet, params: Params, batch: Batch) -> Params:
    """The compiled core."""
    return reference_results(replace(net, backend="compiled"), params, batch)


IMPLEMENTATIONS: dict[str, Implementation] = {
    "NumPy": reference_results, "permuted NumPy": permuted, "compiled": compiled,
    "PyTorch": torch_nets.results, "JAX": jax_nets.results}


def _draw(rng: np.random.Generator, dtype: Any, longest: int) -> tuple[RecurrentNet, Params, Batch]:
    """A net of random kind, size and weight scale; long ones are narrow."""
    T = int(rng.choice([length for length in LENGTHS if length <= longest]))
    cell = str(rng.choice(["rnn", "rnn", "lstm", "gru"]))
    H = int(rng.integers(1, 33 if T <= 50 else 13))
    B = int(rng.integers(1, 9 if T <= 50 else 4))
    act = str(rng.choice(["tanh", "tanh", "relu"])) if cell == "rnn" else "tanh"
    net = RecurrentNet(int(rng.integers(1, 5)), H, int(rng.integers(2, 8)), cell=cell,
                       activation=ACTIVATIONS[act], readout=str(rng.choice(["last", "every"])))
    params = random_params(net, rng, dtype)
    # relu and large scales explode over many steps: float32 overflows, and that is no rounding
    scale = rng.uniform(0.3, 1.5) if T <= 50 and act != "relu" else rng.uniform(0.3, 1)
    params["Whh"] = (params["Whh"] * scale).astype(dtype)
    return net, params, random_batch(net, rng, dtype, T, B)


def correct_rows(nets: int, seed: int = 0, longest: int = 784,
                 implementations: tuple[str, ...] = tuple(IMPLEMENTATIONS)) -> Rows:
    """One row for every correct implementation of ``nets`` random nets, half in float32."""
    for number in range(nets):
        rng = np.random.default_rng([seed, number])
        dtype = (np.float32, np.float64)[number % 2]
        net, params, batch = _draw(rng, dtype, longest)
        certified = certify(net, params, batch)
        sigma = spread(certified, dtype)
        for name in implementations:
            verdict = compare(IMPLEMENTATIONS[name](net, params, batch), certified, dtype=dtype,
                              sigma=sigma)
            yield {"kind": "correct", "what": name, "net": number, "cell": net.cell,
                   "activation": net.activation.name, "readout": net.readout,
                   "T": len(batch.x), "H": net.hidden, "B": batch.x.shape[1],
                   "dtype": np.dtype(dtype).name, "z": verdict.worst.z,
                   "worst": verdict.worst.name, "verdict": verdict.verdict,
                   "note": verdict.worst.note}


def bug_rows(seed: int = 0, sizes: tuple[tuple[int, int, int], ...] = (
        (2, 3, 2), (5, 4, 2), (10, 16, 4), (50, 32, 4), (200, 8, 2)),
        bugs: tuple[Bug, ...] = BUGS) -> Rows:
    """One row for every bug at every size (T, H, B) in float32 and float64.

    ``true_z``: how far the bug itself goes, computed in float64 (where that is wide enough to
    be called exact: for float32), in units of sigma. A bug with true_z below the limit changes
    nothing that rounding could not have changed.
    """
    for T, H, B in sizes:
        net = RecurrentNet(3, H, 4)
        for dtype in (np.float32, np.float64):
            rng = np.random.default_rng([seed, T])
            params, batch = random_params(net, rng, dtype), random_batch(net, rng, dtype, T, B)
            certified = certify(net, params, batch)
            sigma = spread(certified, dtype)
            wide = {name: value.astype(float) for name, value in params.items()}
            for bug in (CORRECT, *bugs):
                verdict = compare(run(bug, params, batch), certified, dtype=dtype, sigma=sigma)
                exact = compare(run(bug, wide, batch._replace(x=batch.x.astype(float))), certified,
                                dtype=dtype, sigma=sigma)
                yield {"kind": "bug" if bug is not CORRECT else "correct", "what": bug.name,
                       "T": T, "H": H, "B": B, "dtype": np.dtype(dtype).name,
                       "z": verdict.worst.z, "true_z": exact.worst.z,
                       "worst": verdict.worst.name, "verdict": verdict.verdict,
                       "convention": verdict.convention}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts: false alarms among the correct, misses among the bugs."""
    correct = [row for row in rows if row["kind"] == "correct"]
    bugs = [row for row in rows if row["kind"] == "bug"]
    missed = [row for row in bugs if row["verdict"] == EXPLAINED]
    return {"correct": len(correct),
            "false_alarms": sum(row["verdict"] != EXPLAINED for row in correct),
            "largest_z_of_correct": max((row["z"] for row in correct), default=0.0),
            "bugs": len(bugs), "kinds_of_bugs": len({row["what"] for row in bugs}),
            "found": len(bugs) - len(missed),
            "hidden_in_rounding": sum(row["true_z"] <= LIMITS[1] for row in missed),
            "missed": sum(row["true_z"] > LIMITS[1] for row in missed)}


def _gradcheck(bug: Bug, params: Params, batch: Batch) -> bool:
    """Whether torch.autograd.gradcheck, in float64 as it advises, passes the bug."""
    import torch
    names = [*params, "x"]

    class Function(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            arrays = {name: value.detach().numpy() for name, value in zip(names, values)}
            ctx.found = run(bug, arrays, batch._replace(x=arrays.pop("x")))
            return torch.tensor(ctx.found["loss"])

        @staticmethod
        def backward(ctx: Any, dloss: Any) -> Any:
            return tuple(dloss * torch.from_numpy(ctx.found[f"d{name}"].copy()) for name in names)

    inputs = [torch.from_numpy(value.copy()).requires_grad_()
              for value in (*params.values(), batch.x)]
    return bool(torch.autograd.gradcheck(Function.apply, inputs, raise_exception=False))


def _check_grads(bug: Bug, params: Params, batch: Batch) -> bool:
    """Whether jax.test_util.check_grads, in float64, passes the bug in reverse mode."""
    import jax
    from jax.test_util import check_grads

    def call(p: Any, x: Any) -> Any:
        return jax.pure_callback(
            lambda p, x: run(bug, {k: np.asarray(v) for k, v in p.items()},
                             batch._replace(x=np.asarray(x)))["loss"],
            jax.ShapeDtypeStruct((), x.dtype), p, x)

    def pull(kept: Any, dloss: Any) -> Any:
        p, x = kept
        found = run(bug, {k: np.asarray(v) for k, v in p.items()},
                    batch._replace(x=np.asarray(x)))
        return {name: dloss * found[f"d{name}"] for name in p}, dloss * found["dx"]

    function = jax.custom_vjp(call)
    function.defvjp(lambda p, x: (call(p, x), (p, x)), pull)
    with jax.enable_x64(True):
        at = {name: jax.numpy.asarray(value) for name, value in params.items()}
        try:
            check_grads(function, (at, jax.numpy.asarray(batch.x)), order=1, modes=("rev",))
        except AssertionError:
            return False
    return True


def checker_rows(seed: int = 0, bugs: tuple[Bug, ...] = BUGS) -> Rows:
    """Which checker passes which bug: True is a pass. The first row of a case is correct.

    ``gradcheck`` and ``check_grads`` see float64, as their authors advise, with their defaults;
    ``allclose`` (rtol 1e-5, atol 1e-8) and ``assert_allclose`` (rtol 1e-7) compare the float32
    gradients with the certified ones. Two cases: a short net, and one of 40 steps whose
    gradients fade.
    """
    for case, T, scale in (("short", 5, 1.0), ("fading", 40, 0.4)):
        net = RecurrentNet(2, 4, 3)
        rng = np.random.default_rng([seed, T])
        params, batch = random_params(net, rng, np.float32), random_batch(
            net, rng, np.float32, T, 2)
        params["Whh"] = (params["Whh"] * scale).astype(np.float32)
        certified = certify(net, params, batch)
        true = {name: value.value for name, value in certified.named().items()}
        sigma = {dtype: spread(certified, dtype) for dtype in (np.float32, np.float64)}
        wide = {name: value.astype(float) for name, value in params.items()}
        checked = {**wide, "h0": np.zeros((2, 4))}  # an input, so that its gradient is checked
        wide_batch = batch._replace(x=batch.x.astype(float))
        for bug in (CORRECT, *bugs):
            narrow = run(bug, params, batch)
            exact = run(bug, wide, wide_batch)
            names = [name for name in narrow if name.startswith("d")]

            def close(rtol: float, atol: float) -> bool:
                return all(np.allclose(narrow[name], true[name], rtol, atol) for name in names)

            yield {"case": case, "bug": bug.name, "forward": bug.forward,
                   "refnet float32": compare(narrow, certified, sigma=sigma[np.float32]).passed,
                   "refnet float64": compare(exact, certified, sigma=sigma[np.float64]).passed,
                   "gradcheck": _gradcheck(bug, checked, wide_batch),
                   "check_grads": _check_grads(bug, checked, wide_batch),
                   "allclose": close(1e-5, 1e-8), "assert_allclose": close(1e-7, 0)}
