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
from typing import Any, TypeAlias

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters import jax_nets, onnx_nets, torch_nets
from refnet.check.cases import reference_results
from refnet.check.naive import PEEPHOLES
from refnet.check.programs.passes import run
from refnet.interop import onnx_nodes
from refnet.maths.losses import counted_predictions
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

Implementation = Callable[[Any, Params, Batch], Params]
"""Of a net that it is not ``refused`` for."""
Traced: TypeAlias = Any
"""A number or an array of autograd's."""


def _sequential(a: Array, b: Array) -> Array:
    """a @ b, every sum from its first term to its last."""
    terms = (a[..., :, k : k + 1] * b[..., k : k + 1, :] for k in range(1, a.shape[-1]))
    return np.asarray(sum(terms, a[..., :1] * b[..., :1, :]))


def _backwards(a: Array, b: Array) -> Array:
    """The same from the last term to the first."""
    return _sequential(a[..., ::-1], b[..., ::-1, :])


def _pairwise(a: Array, b: Array) -> Array:
    """The same in NumPy's pairwise order."""
    columns = np.ascontiguousarray(np.swapaxes(b, -1, -2))
    return np.stack(
        [(a * column[..., None, :]).sum(axis=-1) for column in np.moveaxis(columns, -2, 0)], -1
    )


def permuted(net: RecurrentNet, params: Params, batch: Batch) -> Params:
    """The reference with units and examples in another order, so that every sum is."""
    rng = np.random.default_rng(0)
    units, examples = rng.permutation(net.hidden), rng.permutation(batch.x.shape[1])
    rows = np.concatenate([g * net.hidden + units for g in range(len(net.gates))])
    every = slice(None)
    at: dict[str, Any] = {
        "Whh": np.ix_(rows, units),
        "Wxh": rows,
        "bh": rows,
        "Why": (every, units),
        **dict.fromkeys(("bhn", *PEEPHOLES), units),
    }
    by_example = (every,) * (net.readout == "every") + (examples,)
    turned = {name: value[at.get(name, every)] for name, value in params.items()}
    mask = None if batch.mask is None else batch.mask[:, examples]
    results = reference_results(net, turned, Batch(batch.x[:, examples], batch.y[by_example], mask))
    places = {f"d{name}": index for name, index in at.items()} | {
        "dx": (every, examples),
        "outputs": by_example,
        "dh0": (..., *np.ix_(examples, units)),
    }
    for name in places.keys() & results.keys():
        back = np.empty_like(results[name])
        back[places[name]] = results[name]
        results[name] = back
    return results


def compiled(net: RecurrentNet, params: Params, batch: Batch) -> Params:
    """The compiled core."""
    return reference_results(replace(net, backend="compiled"), params, batch)


def _counted(net: RecurrentNet, batch: Batch) -> tuple[Array, float, Array]:
    """The weight of every prediction, the divisor of their loss, and each sequence's last step."""
    T, B, _ = batch.x.shape
    lead = (T, B) if net.readout == "every" else (B,)
    counted, divisor = counted_predictions(batch.mask, lead, net.reduction)
    steps = np.full(B, T) if batch.mask is None else last_steps(batch.mask)
    return np.ones(lead, bool) if counted is None else counted, divisor, steps


def by_autograd(net: RecurrentNet, params: Params, batch: Batch) -> Params:
    """HIPS/autograd on a forward pass in plain NumPy: the cells once more, because autograd
    differentiates functions of its own NumPy alone, and no backward pass is written by hand."""
    import autograd.numpy as anp
    from autograd import value_and_grad
    from autograd.scipy.special import expit as s

    (T, B, _), H, kind = batch.x.shape, net.hidden, batch.x.dtype.type
    weights, divisor, steps = _counted(net, batch)
    y = batch.y.reshape(weights.size, -1)

    def act(a: Traced) -> Traced:
        return anp.where(a > 0, a, 0 * a) if net.activation.name == "relu" else anp.tanh(a)

    def step(p: Traced, h: Traced, c: Traced, x: Traced) -> Traced:
        z, u = anp.dot(x, p["Wxh"].T) + p["bh"], anp.dot(h, p["Whh"].T)
        if net.cell == "rnn":
            return act(z + u), c
        if net.cell == "lstm":
            wi, wf, wo = (p[name] if name in params else 0 for name in PEEPHOLES)
            i, f, g, o = (z[:, n : n + H] + u[:, n : n + H] for n in range(0, 4 * H, H))
            new = s(f + wf * c) * c + s(i + wi * c) * act(g)
            return s(o + wo * new) * act(new), new
        r, q = s(z[:, :H] + u[:, :H]), s(z[:, H : 2 * H] + u[:, H : 2 * H])
        if net.cell == "gru":
            reset = r * (u[:, 2 * H :] + p["bhn"])
        else:
            reset = anp.dot(r * h, p["Whh"][2 * H :].T)
        return q * h + (1 - q) * act(z[:, 2 * H :] + reset), c

    def loss(p: Traced) -> Traced:
        h = c = np.zeros((B, H), kind)
        states = [h]
        for t in range(T):
            h, c = step(p, h, c, p["x"][t])
            states.append(h)
        if net.readout == "every":
            rows = anp.concatenate(states[1:])
        else:
            rows = anp.stack(states)[steps, np.arange(B)]
        v = anp.dot(rows, p["Why"].T) + p["by"]
        if net.loss == "cross_entropy":
            top = v - anp.max(v, axis=1, keepdims=True)
            each = anp.log(anp.sum(anp.exp(top), axis=1)) - top[np.arange(len(y)), y[:, 0]]
        else:
            each = anp.sum((v - y) ** 2, axis=1) / v.shape[1]
        return anp.sum(each * weights.ravel().astype(kind)) / divisor

    value, grads = value_and_grad(loss)({**params, "x": batch.x})
    return {"loss": np.asarray(value, kind), **{f"d{n}": np.asarray(g) for n, g in grads.items()}}


def onnx_forward(
    net: RecurrentNet, params: Params, batch: Batch, runtime: str = "onnxruntime"
) -> Params:
    """The states of an ONNX model, by one of the runtimes."""
    return onnx_nets.results(onnx_nodes.model(net, params, batch.x.dtype.type), batch.x, runtime)


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
def _library(*flags: str, text: str = "") -> Callable[..., None]:
    """cells.c, or the ``text`` of a changed one, compiled with these flags."""
    if which("cc") is None:
        raise ValueError(
            "the implementations in C need a compiler called cc on the path; "
            "leave them out with --implementations"
        )
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / f"cells{sysconfig.get_config_var('SHLIB_SUFFIX') or '.so'}"
        text = text or Path(__file__).with_name("cells.c").read_text(encoding="utf-8")
        command = ["cc", "-shared", "-fPIC", *flags, "-xc", "-", "-o", str(library), "-lm"]
        subprocess.run(command, check=True, capture_output=True, input=text.encode())
        return ctypes.CDLL(str(library)).net


def _results(net: RecurrentNet, params: Params, x: Array, lead: tuple[int, ...]) -> Params:
    """Zero arrays for what cells.c computes, in its order; ``lead``: the predictions' shape."""
    (T, B, D), H, C, R = x.shape, net.hidden, net.outputs, len(params["bh"])
    shapes = {"loss": (), "outputs": (*lead, C), "h": (T + 1, B, H), "c": (T + 1, B, H)}
    shapes |= {"dWhh": (R, H), "dWxh": (R, D), "dbh": (R,), "dbhn": (H,), "dpeep": (3, H)}
    shapes |= {"dWhy": (C, H), "dby": (C,), "dh0": net.initial_state(params, x).shape}
    return {name: np.zeros(shape, x.dtype) for name, shape in (shapes | {"dx": x.shape}).items()}


def in_c(
    net: RecurrentNet,
    params: Params,
    batch: Batch,
    flags: tuple[str, ...] = STRICT,
    text: str = "",
    **form: int,
) -> Params:
    """cells.c in one order of summation and form of the formulas: ``form`` has some of order, join,
    steps, form and flush, which its first lines list; ``text`` is
    that of a changed cells.c. Raises ValueError without a C compiler."""
    x, cells = batch.x, ("rnn", "lstm", "gru", "gru_before")
    entropy, relu = net.loss == "cross_entropy", net.activation.name == "relu"
    weights, divisor, last = _counted(net, batch)
    peepholes = [params[name] for name in PEEPHOLES if name in params]
    sizes = [*x.shape, net.hidden, net.outputs]
    sizes += [cells.index(net.cell), net.readout == "every", relu, entropy]
    results = _results(net, params, x, weights.shape)
    arrays: list[Array | None] = [
        last.astype(np.int64),
        weights.astype(np.uint8),
        x,
        batch.y.astype(np.int64) if entropy else None,
        None if entropy else batch.y,
        *(params.get(name) for name in ("Whh", "Wxh", "bh", "bhn")),
        np.concatenate(peepholes) if peepholes else None,
        params["Why"],
        params["by"],
        net.initial_state(params, x),
        *results.values(),
    ]
    held = [None if value is None else np.ascontiguousarray(value) for value in arrays]
    defined = {"REAL": "float" if x.itemsize == 4 else "double", "ORDER": 0, **form}
    flags = (*flags, *(f"-D{name.upper()}={value}" for name, value in defined.items()))
    _library(*flags, text=text)(
        np.array(sizes, np.int64).ctypes,
        ctypes.c_double(divisor),
        *(None if value is None else ctypes.c_void_p(value.ctypes.data) for value in held),
    )
    results |= {f"d{name}": value for name, value in zip(PEEPHOLES, results.pop("dpeep"))}
    absent = {f"d{name}" for name in ("bhn", *PEEPHOLES) if name not in params}
    absent |= set() if net.cell == "lstm" else {"c"}
    return {name: value for name, value in results.items() if name not in absent}


IMPLEMENTATIONS: dict[str, Implementation] = {
    "reference": reference_results,
    "permuted": permuted,
    "compiled": compiled,
    "loops BLAS": run,
    "loops sequential": partial(run, product=_sequential),
    "loops backwards": partial(run, product=_backwards),
    "loops pairwise": partial(run, product=_pairwise),
    "C bias-first": in_c,
    "C bias-first fma": partial(in_c, flags=FUSED),
    "C backwards": partial(in_c, order=1),
    "C four-lanes fma": partial(in_c, order=2, flags=FUSED),
    "C pairwise": partial(in_c, order=3),
    "C compensated": partial(in_c, order=4),
    "autograd": by_autograd,
    "PyTorch": torch_nets.results,
    "JAX": jax_nets.results,
    "onnxruntime": onnx_forward,
    "ONNX reference": partial(onnx_forward, runtime="onnx reference"),
}


def refused(name: str, net: Net, params: Params, batch: Batch) -> bool:
    """Whether an implementation is not written for such a net."""
    if name.startswith("loops") or name == "reference":
        return False
    if isinstance(net, FeedforwardNet):
        return name != "PyTorch" or net.transition is not None
    if name == "compiled" or net.transition is not None:
        return name != "compiled"
    act = net.activation.name
    if net.gain != 1 or net.clip_step is not None or act not in ("tanh", "relu"):
        return True
    framework = name in ("PyTorch", "JAX", "onnxruntime", "ONNX reference")
    if framework and (batch.mask is not None or not params.keys().isdisjoint(PEEPHOLES)):
        return True
    # ONNX Runtime's RNN has a tanh that is accurate only absolutely: 570 units roundoff off at 1e-3
    refusals = {
        "PyTorch": net.cell == "gru_before" or (net.cell != "rnn" and act != "tanh"),
        "JAX": net.cell == "gru_before",
        "ONNX reference": act != "tanh",
        "onnxruntime": batch.x.dtype != np.float32 or (net.cell == "rnn" and act == "tanh"),
    }
    return refusals.get(name, False)
