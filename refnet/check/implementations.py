"""Correct implementations that the judge has to accept: each sums in another order.

Every one takes ``(net, params, batch)`` and gives arrays by refnet's names; ``IMPLEMENTATIONS``
has them by name, and ``refused`` says for which nets one is not written.
Checked by: tests/check/test_error_rates.py.
"""

import ctypes
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters import jax_nets, onnx_nets, torch_nets
from refnet.check.cases import reference_results
from refnet.check.naive import PEEPHOLES, run
from refnet.maths.losses import counted_predictions
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["IMPLEMENTATIONS", "refused"]

Implementation = Callable[[Net, Params, Batch], Params]


def _sequential(a: Array, b: Array) -> Array:
    """a @ b, every sum from its first term to its last."""
    return np.asarray(np.cumsum(a[:, :, None] * b, axis=1)[:, -1] if a.shape[1] else a @ b)


def _backwards(a: Array, b: Array) -> Array:
    """The same from the last term to the first."""
    return _sequential(a[:, ::-1], b[::-1])


def _pairwise(a: Array, b: Array) -> Array:
    """The same in NumPy's pairwise order."""
    return np.asarray((a[:, None] * np.ascontiguousarray(b.T)).sum(axis=2))


def _naive(net: Net, params: Params, batch: Batch, **how: Any) -> Params:
    return run(net, params, batch, **how)


def permuted(net: Net, params: Params, batch: Batch) -> Params:
    """The reference with units and examples in another order, so that every sum is."""
    assert isinstance(net, RecurrentNet)
    rng = np.random.default_rng(0)
    units, examples = rng.permutation(net.hidden), rng.permutation(batch.x.shape[1])
    rows = np.concatenate([g * net.hidden + units for g in range(len(net.gates))])
    vectors = [name for name in ("bhn", *PEEPHOLES) if name in params]
    turned = {
        **params,
        "Whh": params["Whh"][rows][:, units],
        "Wxh": params["Wxh"][rows],
        "bh": params["bh"][rows],
        "Why": params["Why"][:, units],
        **{name: params[name][units] for name in vectors},
    }
    axis = 1 if net.readout == "every" else 0
    mask = None if batch.mask is None else batch.mask[:, examples]
    found = reference_results(
        net, turned, Batch(batch.x[:, examples], np.take(batch.y, examples, axis), mask)
    )
    back, order, inverse = np.argsort(rows), np.argsort(units), np.argsort(examples)
    return {
        **found,
        "dWhh": found["dWhh"][back][:, order],
        "dWxh": found["dWxh"][back],
        "dbh": found["dbh"][back],
        "dWhy": found["dWhy"][:, order],
        "dx": found["dx"][:, inverse],
        "outputs": np.take(found["outputs"], inverse, axis),
        "dh0": found["dh0"][..., inverse, :][..., order],
        **{f"d{name}": found[f"d{name}"][order] for name in vectors},
    }


def compiled(net: Net, params: Params, batch: Batch) -> Params:
    """The compiled core."""
    assert isinstance(net, RecurrentNet)
    return reference_results(replace(net, backend="compiled"), params, batch)


def by_autograd(net: Net, params: Params, batch: Batch) -> Params:
    """HIPS/autograd on a forward pass in plain NumPy."""
    try:
        import autograd.numpy as anp
        from autograd import value_and_grad
    except ImportError:
        raise ImportError("this needs autograd: pip install 'refnet[test]'") from None
    assert isinstance(net, RecurrentNet)
    (T, B, _), H, kind = batch.x.shape, net.hidden, batch.x.dtype.type
    counted, divisor = counted_predictions(
        batch.mask, (T, B) if net.readout == "every" else (B,), net.reduction
    )
    weights = np.ones(batch.y.shape[: 2 if net.readout == "every" else 1], kind)
    if counted is not None:
        weights = counted.astype(kind)
    steps = np.full(B, T) if batch.mask is None else last_steps(batch.mask)
    relu = net.activation.name == "relu"

    def act(a: Any) -> Any:
        return anp.where(a > 0, a, 0 * a) if relu else anp.tanh(a)

    def s(a: Any) -> Any:
        return 1 / (1 + anp.exp(-a))

    def step(p: Any, h: Any, c: Any, x: Any) -> Any:
        z, u = anp.dot(x, p["Wxh"].T) + p["bh"], anp.dot(h, p["Whh"].T)
        if net.cell == "rnn":
            return act(z + u), c
        if net.cell == "lstm":
            a = [z[:, n * H : (n + 1) * H] + u[:, n * H : (n + 1) * H] for n in range(4)]
            i = s(a[0] + (p["Wpi"] * c if "Wpi" in p else 0))
            f = s(a[1] + (p["Wpf"] * c if "Wpf" in p else 0))
            c = f * c + i * act(a[2])
            return s(a[3] + (p["Wpo"] * c if "Wpo" in p else 0)) * act(c), c
        r, q = s(z[:, :H] + u[:, :H]), s(z[:, H : 2 * H] + u[:, H : 2 * H])
        n = z[:, 2 * H :] + (
            r * (u[:, 2 * H :] + p["bhn"])
            if net.cell == "gru"
            else anp.dot(r * h, p["Whh"][2 * H :].T)
        )
        return q * h + (1 - q) * act(n), c

    def loss(p: Any) -> Any:
        h = c = np.zeros((B, H), kind)
        states = [h]
        for t in range(T):
            h, c = step(p, h, c, p["x"][t])
            states.append(h)
        rows = (
            anp.concatenate(states[1:])
            if net.readout == "every"
            else anp.stack(states)[steps, np.arange(B)]
        )
        v = anp.dot(rows, p["Why"].T) + p["by"]
        y = batch.y.reshape(len(weights.ravel()), -1)
        if net.loss == "cross_entropy":
            top = v - anp.max(v, axis=1, keepdims=True)
            each = anp.log(anp.sum(anp.exp(top), axis=1)) - top[np.arange(len(y)), y[:, 0]]
        else:
            each = anp.sum((v - y) ** 2, axis=1) / v.shape[1]
        return anp.sum(each * weights.ravel()) / divisor

    value, grads = value_and_grad(loss)({**params, "x": batch.x})
    return {"loss": np.asarray(value, kind), **{f"d{n}": np.asarray(g) for n, g in grads.items()}}


def onnx_forward(net: Net, params: Params, batch: Batch, runtime: str = "onnxruntime") -> Params:
    """The states of an ONNX model, by one of the runtimes."""
    assert isinstance(net, RecurrentNet)
    return onnx_nets.results(onnx_nets.model(net, params, batch.x.dtype.type), batch.x, runtime)


def by_jax(net: Net, params: Params, batch: Batch) -> Params:
    """A jitted scan."""
    assert isinstance(net, RecurrentNet)
    return jax_nets.results(net, params, batch)


STRICT = ("-O2", "-ffp-contract=off")
FUSED = ("-O2", "-mfma", "-ffp-contract=fast")
# as -ffast-math, which would also set the processor to flush subnormal numbers from then on
FREE = (
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fassociative-math",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-freciprocal-math",
)


@cache
def _library(flags: tuple[str, ...]) -> Any:
    """cells.c, compiled with these flags."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"cells{sysconfig.get_config_var('SHLIB_SUFFIX') or '.so'}"
        if which("cc") is None:
            raise ValueError(
                "the implementations in C need a compiler called cc on the path; "
                "leave them out with --implementations"
            )
        subprocess.run(
            [
                "cc",
                "-shared",
                "-fPIC",
                *flags,
                str(Path(__file__).with_name("cells.c")),
                "-o",
                str(made),
                "-lm",
            ],
            check=True,
            capture_output=True,
        )
        return ctypes.CDLL(str(made)).net


def in_c(
    net: Net,
    params: Params,
    batch: Batch,
    order: int = 0,
    join: int = 0,
    steps: int = 0,
    form: int = 0,
    flags: tuple[str, ...] = STRICT,
) -> Params:
    """cells.c in one order of summation and form of the formulas, which its first lines list.
    Raises ValueError where there is no C compiler."""
    assert isinstance(net, RecurrentNet)
    kind = batch.x.dtype
    (T, B, D), H, C, G = batch.x.shape, net.hidden, net.outputs, len(net.gates)
    every, cells = net.readout == "every", ("rnn", "lstm", "gru", "gru_before")
    counted, divisor = counted_predictions(batch.mask, (T, B) if every else (B,), net.reduction)
    N, entropy = (T * B if every else B), net.loss == "cross_entropy"
    step = np.full(B, T) if batch.mask is None else last_steps(batch.mask)
    peeps = [name for name in PEEPHOLES if name in params]
    p = {name: np.ascontiguousarray(value) for name, value in params.items()}
    given: list[Any] = [
        np.array(
            [T, B, D, H, C, cells.index(net.cell), every, net.activation.name == "relu", entropy],
            np.int64,
        ),
        float(divisor),
        step.astype(np.int64),
        np.ones(N, np.uint8) if counted is None else counted.reshape(-1).astype(np.uint8),
        np.ascontiguousarray(batch.x),
        batch.y.astype(np.int64) if entropy else None,
        None if entropy else np.ascontiguousarray(batch.y),
        p["Whh"],
        p["Wxh"],
        p["bh"],
        p.get("bhn"),
        np.concatenate([p[name] for name in peeps]) if peeps else None,
        p["Why"],
        p["by"],
        net.initial_state(params, batch.x),
    ]
    lstm = net.cell == "lstm"
    shapes = {
        "loss": (),
        "outputs": (T, B, C) if every else (B, C),
        "h": (T + 1, B, H),
        "c": (T + 1, B, H),
        "dWhh": (G * H, H),
        "dWxh": (G * H, D),
        "dbh": (G * H,),
        "dbhn": (H,),
        "dpeep": (3, H),
        "dWhy": (C, H),
        "dby": (C,),
        "dh0": (2, B, H) if lstm else (B, H),
        "dx": (T, B, D),
    }
    made = {name: np.zeros(shape, kind) for name, shape in shapes.items()}
    room = [
        np.zeros(shape, kind)
        for shape in (
            (T, B, G * H),
            (T, B, G * H),
            (T, B, H),
            (T, B, H),
            (T, B, G * H),
            (T, B, G * H),
            (N, C),
            (N, H),
            (T + 1, B, H),
        )
    ]
    function = _library(
        (
            *flags,
            f"-DREAL={'float' if kind.itemsize == 4 else 'double'}",
            f"-DORDER={order}",
            f"-DJOIN={join}",
            f"-DSTEPS={steps}",
            f"-DFORM={form}",
        )
    )
    function(
        *(
            ctypes.c_double(value)
            if isinstance(value, float)
            else None
            if value is None
            else ctypes.c_void_p(value.ctypes.data)
            for value in (*given, *made.values(), *room)
        )
    )
    peep = made.pop("dpeep")
    lost = {"c"} - ({"c"} if lstm else set()) | ({"dbhn"} - {f"d{name}" for name in params})
    return {
        **{name: value for name, value in made.items() if name not in lost},
        **{f"d{name}": value for name, value in zip(peeps, peep)},
    }


IMPLEMENTATIONS: dict[str, Implementation] = {
    "reference": reference_results,
    "permuted": permuted,
    "compiled": compiled,
    "loops BLAS": _naive,
    "loops fused": partial(_naive, fused=True),
    "loops sequential": partial(_naive, product=_sequential),
    "loops sequential fused": partial(_naive, product=_sequential, fused=True),
    "loops backwards": partial(_naive, product=_backwards),
    "loops pairwise": partial(_naive, product=_pairwise),
    "C bias-first": in_c,
    "C bias-first fma": partial(in_c, flags=FUSED),
    "C backwards": partial(in_c, order=1),
    "C four-lanes fma": partial(in_c, order=2, flags=FUSED),
    "C pairwise": partial(in_c, order=3),
    "C compensated": partial(in_c, order=4),
    "autograd": by_autograd,
    "PyTorch": torch_nets.results,
    "JAX": by_jax,
    "onnxruntime": onnx_forward,
    "ONNX reference": partial(onnx_forward, runtime="onnx reference"),
}
FRAMEWORKS = ("PyTorch", "JAX", "onnxruntime", "ONNX reference")


def refused(name: str, net: Net, params: Params, batch: Batch) -> bool:
    """Whether an implementation is not written for such a net."""
    if name.startswith("loops") or name == "reference":
        return False
    if isinstance(net, FeedforwardNet):
        return name != "PyTorch" or net.transition is not None
    peepholes = any(peep in params for peep in PEEPHOLES)
    if net.transition is not None:
        return name != "compiled"
    if name == "compiled":
        return False
    if net.gain != 1 or net.clip_step is not None or net.activation.name not in ("tanh", "relu"):
        return True
    if name in FRAMEWORKS and (peepholes or batch.mask is not None):
        return True
    if name in ("PyTorch", "JAX") and net.cell == "gru_before":
        return True
    if name == "PyTorch" and net.cell != "rnn" and net.activation.name != "tanh":
        return True
    if name == "ONNX reference" and net.activation.name != "tanh":
        return True
    # ONNX Runtime's RNN has a tanh that is accurate only absolutely: 570 units roundoff off at 1e-3
    return name == "onnxruntime" and (
        batch.x.dtype != np.float32 or (net.cell == "rnn" and net.activation.name == "tanh")
    )
