"""Recurrent layers of frameworks on JAX, stacked and in both directions: Flax, Equinox, Keras
(extras ``flax``, ``equinox`` and ``keras``).

Each framework runs one layer after the other on its own cells and its own loop over time; JAX
differentiates through it, down to refnet's parameters, of which the framework's are made.
Checked by: tests/check/test_jax_layers.py.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters.jax_nets import _jax
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["LAYERS", "layer_results"]

Own = dict[str, dict[str, Any]]
"""The parameters of a layer's cells, by the names of a net of one layer, with h0 always."""
Run = Callable[[RecurrentNet, Own, Any, Array | None, str], tuple[Any, list[Any]]]
"""A layer: x (T, B, D), the lengths (B,) if they differ and the variant to the states (T, B, N),
each direction's side by side, and every direction's last state."""


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        extra = name.partition(".")[0]
        raise ImportError(f"this needs {extra}: pip install 'refnet[{extra}]'") from None


def _flax(
    net: RecurrentNet, own: Own, x: Any, lengths: Array | None, variant: str
) -> tuple[Any, list[Any]]:
    nnx, H = _module("flax.nnx"), net.hidden
    kind = {
        "rnn": nnx.SimpleCell,
        "gru": nnx.GRUCell,
        "lstm": nnx.LSTMCell if variant == "LSTMCell" else nnx.OptimizedLSTMCell,
    }[net.cell]
    options = {"activation_fn": _jax().nn.relu} if net.activation.name == "relu" else {}
    major = variant != "batch_first"
    runs, starts = [], []
    for p in own.values():
        cell = kind(x.shape[2], H, dtype=x.dtype, param_dtype=x.dtype, rngs=nnx.Rngs(0), **options)
        parts = (
            [(cell, "dense_i", "dense_h", slice(None))]
            if variant != "LSTMCell"
            else [
                (cell, name_i, name_h, slice(n * H, (n + 1) * H))
                for n, (name_i, name_h) in enumerate(
                    (("ii", "hi"), ("if_", "hf"), ("ig", "hg"), ("io", "ho"))
                )
            ]
        )
        for cell, name_i, name_h, rows in parts:
            i, h = getattr(cell, name_i), getattr(cell, name_h)
            i.kernel, h.kernel = nnx.Param(p["Wxh"][rows].T), nnx.Param(p["Whh"][rows].T)
            (h if net.cell == "lstm" else i).bias = nnx.Param(p["bh"][rows])
        runs.append(nnx.RNN(cell, time_major=major, return_carry=True))
        starts.append((p["h0"][1], p["h0"][0]) if net.cell == "lstm" else p["h0"])
    x = x if major else x.swapaxes(0, 1)
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
    net: RecurrentNet, own: Own, x: Any, lengths: Array | None, variant: str
) -> tuple[Any, list[Any]]:
    jax, eqx = _jax(), _module("equinox")
    (p,) = own.values()
    lstm = net.cell == "lstm"
    cell = (eqx.nn.LSTMCell if lstm else eqx.nn.GRUCell)(
        x.shape[2], net.hidden, dtype=x.dtype, key=jax.random.key(0)
    )
    weights = {
        "weight_ih": p["Wxh"],
        "weight_hh": p["Whh"],
        "bias": p["bh"],
        **({} if lstm else {"bias_n": p["bhn"]}),
    }
    cell = eqx.tree_at(
        lambda c: [getattr(c, name) for name in weights], cell, list(weights.values())
    )

    def step(carry: Any, at: Any) -> Any:
        new = jax.vmap(cell)(at, carry)
        return new, new[0] if lstm else new

    h = jax.lax.scan(step, tuple(p["h0"]) if lstm else p["h0"], x)[1]
    return h, [h[-1]]


def _keras(
    net: RecurrentNet, own: Own, x: Any, lengths: Array | None, variant: str
) -> tuple[Any, list[Any]]:
    os.environ.setdefault("KERAS_BACKEND", "jax")  # read once, when Keras is first imported
    keras = _module("keras")
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
            kind(net.hidden, go_backwards=backwards or bool(n), **options) for n in range(len(own))
        ]
        layer = (
            layers[0]
            if len(own) == 1
            else keras.layers.Bidirectional(
                layers[0], backward_layer=layers[1], dtype=options["dtype"]
            )
        )
        layer.build(given.shape)
    weights = [value for p in own.values() for value in _keras_weights(net, p, variant)]
    starts = [h for p in own.values() for h in (p["h0"] if net.cell == "lstm" else [p["h0"]])]
    mask = None if lengths is None else np.arange(len(x)) < lengths[:, None]
    rest = [variable.value for variable in layer.non_trainable_variables]  # dropout's seed
    (h, *ends), _ = layer.stateless_call(weights, rest, given, initial_state=starts, mask=mask)
    return h.swapaxes(0, 1), ends[::2] if net.cell == "lstm" else ends


def _keras_weights(net: RecurrentNet, p: dict[str, Any], variant: str) -> list[Any]:
    """kernel, recurrent_kernel and bias; of a GRU that resets after the product two biases."""
    jnp, H = _jax().numpy, net.hidden
    if net.cell in ("gru", "gru_before"):
        p = {
            **p,
            **{
                name: jnp.concatenate([p[name][H : 2 * H], p[name][:H], p[name][2 * H :]])
                for name in ("Wxh", "Whh", "bh")
            },
        }
        if net.cell == "gru":
            r, z = jnp.split(p.get("bhh", jnp.zeros(2 * H, p["bh"].dtype)), 2)
            p["bh"] = jnp.stack([p["bh"], jnp.concatenate([z, r, p["bhn"]])])
    return [p["Wxh"].T, p["Whh"].T, *([] if variant == "no bias" else [p["bh"]])]


LAYERS: dict[str, Run] = {"Flax": _flax, "Equinox": _equinox, "Keras": _keras}


def _loss(net: StackedNet, outputs: Any, batch: Batch) -> Any:
    jax = _jax()
    y, mask = batch.y, batch.mask
    if net.loss == "cross_entropy":
        each = -jax.numpy.take_along_axis(jax.nn.log_softmax(outputs), y[..., None], -1)[..., 0]
    else:
        each = (outputs * y).sum(axis=-1)
    counted = np.ones(each.shape, bool) if mask is None or net.readout == "last" else mask
    total = jax.numpy.where(counted, each, 0).sum()
    return total if net.reduction == "sum" else total / counted.sum()


def layer_results(
    framework: str, net: StackedNet, params: Params, batch: Batch, variant: str = ""
) -> Params:
    """Loss, outputs and gradients of a framework's own layers, by refnet's names.

    ``framework``: one of LAYERS. A mask becomes what the framework takes for it: lengths (Flax)
    or a mask (Keras). The loss is cross_entropy or none.
    """
    jax = _jax()
    with jax.enable_x64(batch.x.dtype == np.float64):
        lengths = None if batch.mask is None else last_steps(batch.mask)
        starts = {
            f"h0{suffix}": cell.initial_state(net.of(params, suffix), batch.x)
            for suffix, cell in net.every_cell.items()
        }

        def loss(p: Any, x: Any) -> Any:
            for layer in net.cells:
                cell = next(iter(layer.values()))
                own = {suffix: net.of(p, suffix) for suffix in layer}
                x, ends = LAYERS[framework](cell, own, x, lengths, variant)
            if batch.mask is not None:
                x = jax.numpy.where(batch.mask[:, :, None], x, 0)
            rows = jax.numpy.concatenate(ends, axis=1) if net.readout == "last" else x
            outputs = rows if net.readout == "none" else rows @ p["Why"].T + p["by"]
            return _loss(net, outputs, batch), outputs

        derive = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
        given = {name: jax.numpy.asarray(value) for name, value in {**params, **starts}.items()}
        (value, outputs), (dp, dx) = derive(given, jax.numpy.asarray(batch.x))
        found = {
            "loss": np.asarray(value),
            "outputs": np.asarray(outputs),
            "dx": np.asarray(dx),
            **{f"d{name}": np.asarray(grad) for name, grad in dp.items()},
        }
    for name in starts:  # a shared h0 has the sum of the sequences' gradients
        if name in params and params[name].ndim < found[f"d{name}"].ndim:
            found[f"d{name}"] = found[f"d{name}"].sum(axis=-2)
    return found
