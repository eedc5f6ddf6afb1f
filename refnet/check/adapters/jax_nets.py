"""JAX (extra ``jax``): scans judged, functions of one's own, refnet's nets with custom_vjp.

A function of one's own is judged with a loss written on refnet's names::

    def loss(p, x, y):                   # jax arrays: p["Whh"], p["Wxh"], p["bh"], ...
        ...

    compare(gradients(loss, params, batch), certify(net, params, batch))

Checked by: tests/check/test_adapters.py.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["as_function", "gradients", "results", "step", "use_device"]


def _jax() -> ModuleType:
    try:
        import jax
    except ImportError:
        raise ImportError("this needs JAX: pip install 'refnet[jax]'") from None
    return jax  # type: ignore[no-any-return]


def use_device(name: str) -> str:
    """Make the first device of a platform, such as cpu or gpu, JAX's default one, and say what
    it is. Raises ValueError if JAX has none."""
    jax = _jax()
    try:
        device = jax.devices(name)[0]
    except RuntimeError as error:
        raise ValueError(
            f"JAX cannot use the device {name}: {str(error).splitlines()[0]}"
        ) from None
    jax.config.update("jax_default_device", device)
    return str(device.device_kind)


def gradients(
    loss: Callable[[Any, Any, Any], Any], params: Params, batch: Batch, jit: bool = True
) -> Params:
    """The loss and its gradients in every parameter and x, by ``jax.value_and_grad``.

    ``loss(p, x, y)``, or ``loss(p, x, y, mask)`` if the batch has a mask: p has the parameters by
    refnet's names. float64 arrays are computed in float64, whatever JAX's own setting is.
    """
    jax = _jax()
    with _jax().enable_x64(any(value.dtype == np.float64 for value in params.values())):
        derive = jax.value_and_grad(loss, argnums=(0, 1))
        value, (dp, dx) = (jax.jit(derive) if jit else derive)(
            params, *(part for part in batch if part is not None)
        )
        found = {"loss": np.asarray(value), "dx": np.asarray(dx)}
        return {**found, **{f"d{name}": np.asarray(grad) for name, grad in dp.items()}}


def step(cell: str, activation: str, H: int) -> Callable[..., Any]:
    """One step of a cell as a JAX user would write it; the carry is h, or (h, c)."""
    jax = _jax()
    s = jax.nn.sigmoid
    f = {
        "identity": lambda a: a,
        "softsign": jax.nn.soft_sign,
        "sigmoid": s,
        "tanh": jax.numpy.tanh,
        "relu": jax.nn.relu,
        "elu": jax.nn.elu,
        "leaky_relu": jax.nn.leaky_relu,
    }[activation]

    def rnn(p: Any, h: Any, z: Any) -> Any:
        return f(z + h @ p["Whh"].T)

    def lstm(p: Any, carry: Any, z: Any) -> Any:
        h, c = carry
        i, g, k, o = jax.numpy.split(z + h @ p["Whh"].T, 4, axis=1)
        c = s(g) * c + s(i) * f(k)
        return s(o) * f(c), c

    def gru(p: Any, h: Any, z: Any) -> Any:
        u = h @ p["Whh"].T
        r, k = s(z[:, :H] + u[:, :H]), s(z[:, H : 2 * H] + u[:, H : 2 * H])
        n = f(z[:, 2 * H :] + r * (u[:, 2 * H :] + p["bhn"]))
        return (1 - k) * n + k * h

    return {"rnn": rnn, "lstm": lstm, "gru": gru}[cell]


def scan_loss(net: RecurrentNet) -> Callable[[Any, Any, Any], Any]:
    """The net's loss written for JAX with ``jax.lax.scan``."""
    jax = _jax()
    if net.cell not in ("rnn", "lstm", "gru") or net.transition is not None or net.gain != 1:
        raise ValueError(
            f"scan_loss: there is no scan for the cell {net.cell} with this "
            "transition and gain; write the loss and use gradients()"
        )
    advance = step(net.cell, net.activation.name, net.hidden)

    def loss(p: Any, x: Any, y: Any) -> Any:
        z = x @ p["Wxh"].T + p["bh"]
        h0 = jax.numpy.zeros((x.shape[1], net.hidden), x.dtype)

        def body(carry: Any, at: Any) -> Any:
            new = advance(p, carry, at)
            return new, new[0] if net.cell == "lstm" else new

        _, h = jax.lax.scan(body, (h0, h0) if net.cell == "lstm" else h0, z)
        v = (h if net.readout == "every" else h[-1]) @ p["Why"].T + p["by"]
        if net.loss == "cross_entropy":
            logs = jax.nn.log_softmax(v)
            each = -jax.numpy.take_along_axis(logs, y[..., None], axis=-1)[..., 0]
        else:
            each = ((v - y) ** 2).mean(axis=-1)
        return {"sum": each.sum(), "mean": each.mean(), "batch_mean": each.sum() / x.shape[1]}[
            net.reduction
        ]

    return loss


def results(net: RecurrentNet, params: Params, batch: Batch) -> Params:
    """Loss and gradients of a jitted scan, by refnet's names."""
    return gradients(scan_loss(net), params, batch)


def as_function(net: Net) -> Callable[[Any, Any], Any]:
    """refnet's net as a JAX function: ``f(params, x) -> outputs``, with its own backward.

    Works under jit and grad (reverse mode, once), by callbacks to the CPU.
    """
    jax = _jax()

    def run(params: Any, x: Any) -> Any:
        return net.forward({k: np.asarray(v) for k, v in params.items()}, np.asarray(x))[0]

    def pull(params: Any, x: Any, doutputs: Any) -> Any:
        p = {name: np.asarray(value) for name, value in params.items()}
        _, tape = net.forward(p, np.asarray(x))
        grads = net.backward(p, tape, np.asarray(doutputs))
        return {name: grads[name] for name in p}, grads["x"]

    def call(params: Any, x: Any) -> Any:
        C = net.outputs if isinstance(net, RecurrentNet) else net.widths[-1]
        every = isinstance(net, RecurrentNet) and net.readout != "last"
        lead = x.shape[:2] if every else x.shape[-2:-1]
        shape = jax.ShapeDtypeStruct((*lead, C), x.dtype)
        return jax.pure_callback(run, shape, params, x)

    def backward(kept: Any, doutputs: Any) -> Any:
        like = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), kept)
        return jax.pure_callback(pull, like, *kept, doutputs)

    function = jax.custom_vjp(call)
    function.defvjp(lambda params, x: (call(params, x), (params, x)), backward)
    return function  # type: ignore[no-any-return]
