"""JAX (extra ``jax``): scans and functions of your own judged, refnet inside it, and the
layers of Flax, Equinox and Keras (extras ``flax``, ``equinox`` and ``keras``).

Each framework runs one layer after the other on its own cells and its own loop over time; JAX
differentiates through it, down to refnet's parameters, of which the framework's are made. A
function of your own is judged with a loss written on refnet's names::

    def loss(p, x, y):                   # jax arrays: p["Whh"], p["Wxh"], p["bh"], ...
        ...

    compare(gradients(loss, params, batch), certify(net, params, batch))

Checked by: tests/check/test_jax.py.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters import framework_errors, summed_over_sequences
from refnet.interop import as_stack, initial_states, package
from refnet.interop.keras_weights import layer_weights
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import plain

__all__ = ["LAYERS", "gradients", "layer_results", "results", "step", "use_device"]

Jax: TypeAlias = Any
"""An array of JAX's, a tree of them, or a module of Flax, Equinox or Keras: optional packages."""


_jax = partial(package, "jax", called="JAX")


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
    loss: Callable[[Jax, Jax, Jax], Jax], params: Params, batch: Batch, jit: bool = True
) -> Params:
    """The loss and its gradients in every parameter and x, by ``jax.value_and_grad``.

    ``loss(p, x, y)``, or ``loss(p, x, y, mask)`` if the batch has a mask: p has the parameters by
    refnet's names. float64 arrays are computed in float64, whatever JAX's own setting is.
    """
    jax = _jax()
    with jax.enable_x64(any(value.dtype == np.float64 for value in params.values())):
        derive = jax.value_and_grad(loss, argnums=(0, 1))
        given = params, *(part for part in batch if part is not None)
        value, (dp, dx) = _run(derive, *given) if jit else derive(*given)
        return _arrays({"loss": value, "dx": dx}, dp)


def _run(function: Callable[..., Jax], *given: Jax) -> Jax:
    """A function's result, compiled: it is traced, which calls refnet's code, and then run."""
    traced = _jax().jit(function).trace(*given)
    with framework_errors():
        return traced.lower().compile()(*given)


def _arrays(results: dict[str, Jax], gradients: dict[str, Jax]) -> Params:
    """Results of JAX's, and gradients in the parameters of these names."""
    results |= {f"d{name}": value for name, value in gradients.items()}
    return {name: np.asarray(value) for name, value in results.items()}


def step(cell: str, activation: str, H: int) -> Callable[..., Jax]:
    """One step of a cell as a JAX user would write it; the carry is h, or (h, c)."""
    jax = _jax()
    s = jax.nn.sigmoid
    f = getattr(jax.nn, {"softsign": "soft_sign"}.get(activation, activation))

    def rnn(p: Jax, h: Jax, z: Jax) -> Jax:
        return f(z + h @ p["Whh"].T)

    def lstm(p: Jax, carry: Jax, z: Jax) -> Jax:
        h, c = carry
        i, g, k, o = jax.numpy.split(z + h @ p["Whh"].T, 4, axis=1)
        c = s(g) * c + s(i) * f(k)
        return s(o) * f(c), c

    def gru(p: Jax, h: Jax, z: Jax) -> Jax:
        u = h @ p["Whh"].T
        r, k = s(z[:, :H] + u[:, :H]), s(z[:, H : 2 * H] + u[:, H : 2 * H])
        n = f(z[:, 2 * H :] + r * (u[:, 2 * H :] + p["bhn"]))
        return (1 - k) * n + k * h

    return {"rnn": rnn, "lstm": lstm, "gru": gru}[cell]


def _loss(net: RecurrentNet, outputs: Jax, y: Jax, mask: Array | None = None) -> Jax:
    jax = _jax()
    if net.loss == "cross_entropy":
        each = -jax.numpy.take_along_axis(jax.nn.log_softmax(outputs), y[..., None], -1)[..., 0]
    else:
        each = (outputs * y).sum(-1) if net.loss == "none" else ((outputs - y) ** 2).mean(-1)
    counted = np.ones(each.shape, bool) if mask is None or net.readout == "last" else mask
    total = jax.numpy.where(counted, each, 0).sum()
    divisors = {"sum": 1, "mean": counted.sum(), "batch_mean": outputs.shape[-2]}
    return total / divisors[net.reduction]


def results(net: RecurrentNet, params: Params, batch: Batch) -> Params:
    """Loss, outputs and gradients of a jitted scan, by refnet's names."""
    if net.cell not in ("rnn", "lstm", "gru") or net.transition is not None or net.gain != 1:
        raise ValueError(
            f"results: there is no scan for the cell {net.cell} with this "
            "transition and gain; write the loss and use gradients()"
        )
    return layer_results("JAX", net, params, batch)


CellParams = dict[str, dict[str, Jax]]
"""The parameters of a layer's cells, by the names of a net of one layer, with h0 always."""
States: TypeAlias = tuple[Jax, list[Jax]]
"""A layer's states (T, B, N), each direction's side by side, and every direction's last state."""
Run = Callable[[RecurrentNet, CellParams, Jax, Array | None, str], States]
"""A layer: x (T, B, D), the lengths (B,) if they differ and the variant to its states."""


def _scanned(
    advance: Callable[[Jax, Jax], Jax], net: RecurrentNet, p: dict[str, Jax], x: Jax
) -> States:
    """What a layer of one direction gives, by one step of a cell: of the carry and its input."""
    lstm = net.cell == "lstm"

    def body(carry: Jax, at: Jax) -> Jax:
        new = advance(carry, at)
        return new, new[0] if lstm else new

    h = _jax().lax.scan(body, tuple(p["h0"]) if lstm else p["h0"], x)[1]
    return h, [h[-1]]


def _plain(
    net: RecurrentNet, cells: CellParams, x: Jax, lengths: Array | None, variant: str
) -> States:
    (p,) = cells.values()
    advance = partial(step(net.cell, net.activation.name, net.hidden), p)
    return _scanned(advance, net, p, x @ p["Wxh"].T + p["bh"])


def _flax(
    net: RecurrentNet, cells: CellParams, x: Jax, lengths: Array | None, variant: str
) -> States:
    nnx, H = package("flax.nnx"), net.hidden
    kind = {
        "rnn": nnx.SimpleCell,
        "gru": nnx.GRUCell,
        "lstm": nnx.LSTMCell if variant == "LSTMCell" else nnx.OptimizedLSTMCell,
    }[net.cell]
    options = {"activation_fn": _jax().nn.relu} if net.activation.name == "relu" else {}
    major = variant != "batch_first"
    runs, starts = [], []
    for p in cells.values():
        cell = kind(x.shape[2], H, dtype=x.dtype, param_dtype=x.dtype, rngs=nnx.Rngs(0), **options)
        apart = variant == "LSTMCell"
        names = "ii hi if_ hf ig hg io ho" if apart else "dense_i dense_h"
        parts = [getattr(cell, name) for name in names.split()]
        for n, (i, h) in enumerate(zip(parts[::2], parts[1::2])):
            rows = slice(n * H, (n + 1) * H) if apart else slice(None)
            i.kernel, h.kernel = nnx.Param(p["Wxh"][rows].T), nnx.Param(p["Whh"][rows].T)
            (h if net.cell == "lstm" else i).bias = nnx.Param(p["bh"][rows])
        runs.append(nnx.RNN(cell, time_major=major, return_carry=True))
        starts.append((p["h0"][1], p["h0"][0]) if net.cell == "lstm" else p["h0"])
    x = x if major else x.swapaxes(0, 1)
    with framework_errors():
        if len(runs) == 1:
            end, h = runs[0](x, initial_carry=starts[0], seq_lengths=lengths)
            ends = [end]
        else:
            both = nnx.Bidirectional(*runs, time_major=major, return_carry=True)
            ends, h = both(x, initial_carry=tuple(starts), seq_lengths=lengths)
    return (
        h if major else h.swapaxes(0, 1),
        [end[1] if net.cell == "lstm" else end for end in ends],
    )


def _equinox(
    net: RecurrentNet, cells: CellParams, x: Jax, lengths: Array | None, variant: str
) -> States:
    jax, eqx = _jax(), package("equinox")
    (p,) = cells.values()
    lstm = net.cell == "lstm"
    cell = (eqx.nn.LSTMCell if lstm else eqx.nn.GRUCell)(
        x.shape[2], net.hidden, dtype=x.dtype, key=jax.random.key(0)
    )
    weights = {"weight_ih": p["Wxh"], "weight_hh": p["Whh"], "bias": p["bh"]}
    if not lstm:
        weights["bias_n"] = p["bhn"]
    cell = eqx.tree_at(
        lambda c: [getattr(c, name) for name in weights], cell, list(weights.values())
    )

    def advance(carry: Jax, at: Jax) -> Jax:
        with framework_errors():
            return jax.vmap(cell)(at, carry)

    return _scanned(advance, net, p, x)


def _keras(
    net: RecurrentNet, cells: CellParams, x: Jax, lengths: Array | None, variant: str
) -> States:
    os.environ.setdefault("KERAS_BACKEND", "jax")  # read once, when Keras is first imported
    keras = package("keras")
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"Keras runs on {keras.backend.backend()} in this process; need jax: set "
            "KERAS_BACKEND=jax before it is first imported"
        )
    kind = {"rnn": keras.layers.SimpleRNN, "lstm": keras.layers.LSTM}.get(
        net.cell, keras.layers.GRU
    )
    options: dict[str, Any] = {
        "activation": net.activation.name,
        "dtype": str(x.dtype),
        "return_sequences": True,
        "return_state": True,
        "use_bias": variant != "no bias",
        "kernel_initializer": "zeros",
        "recurrent_initializer": "zeros",
    }
    if net.cell in ("gru", "gru_before"):
        options["reset_after"] = net.cell == "gru"
    backwards = variant == "go_backwards"
    given = (x[::-1] if backwards else x).swapaxes(0, 1)
    with _jax().ensure_compile_time_eval():  # their own weights are not part of the function
        layers = [
            kind(net.hidden, go_backwards=backwards or reverse, **options)
            for reverse in (False, True)[: len(cells)]
        ]
        layer = (
            layers[0]
            if len(cells) == 1
            else keras.layers.Bidirectional(
                layers[0], backward_layer=layers[1], dtype=options["dtype"]
            )
        )
        layer.build(given.shape)
    weights = [
        value
        for p in cells.values()
        for value in layer_weights(net, p, variant != "no bias", _jax().numpy)
    ]
    starts = [h for p in cells.values() for h in (p["h0"] if net.cell == "lstm" else [p["h0"]])]
    mask = None if lengths is None else np.arange(len(x)) < lengths[:, None]
    rest = [variable.value for variable in layer.non_trainable_variables]  # dropout's seed
    with framework_errors():
        (h, *ends), _ = layer.stateless_call(weights, rest, given, initial_state=starts, mask=mask)
    return h.swapaxes(0, 1), ends[::2] if net.cell == "lstm" else ends


LAYERS: dict[str, Run] = {"JAX": _plain, "Flax": _flax, "Equinox": _equinox, "Keras": _keras}


def layer_results(
    framework: str, net: RecurrentNet, params: Params, batch: Batch, variant: str = ""
) -> Params:
    """Loss, outputs and gradients of a framework's own layers, by refnet's names.

    ``framework``: one of LAYERS. A mask becomes what the framework takes for it: lengths (Flax)
    or a mask (Keras).
    """
    jax, (stack, params) = _jax(), as_stack(net, params)
    with jax.enable_x64(batch.x.dtype == np.float64):
        lengths = None if batch.mask is None else last_steps(batch.mask)
        starts = initial_states(stack, params, batch.x)

        def loss(p: Jax, x: Jax) -> Jax:
            for layer in stack.cells:
                cell = next(iter(layer.values()))
                cells = {suffix: stack.of(p, suffix) for suffix in layer}
                x, ends = LAYERS[framework](cell, cells, x, lengths, variant)
            if batch.mask is not None:
                x = jax.numpy.where(batch.mask[:, :, None], x, 0)
            rows = jax.numpy.concatenate(ends, axis=1) if net.readout == "last" else x
            outputs = rows if net.readout == "none" else rows @ p["Why"].T + p["by"]
            return _loss(net, outputs, batch.y, batch.mask), outputs

        derive = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        given = {name: jax.numpy.asarray(value) for name, value in {**params, **starts}.items()}
        (value, outputs), (dp, dx) = _run(derive, given, jax.numpy.asarray(batch.x))
        arrays = _arrays({"loss": value, "outputs": outputs, "dx": dx}, dp)
    arrays = summed_over_sequences(arrays, params)
    return arrays if stack is net else {plain(name): value for name, value in arrays.items()}
