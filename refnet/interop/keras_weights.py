"""Keras (extra ``keras``): nets as models of its layers Embedding, SimpleRNN, LSTM, GRU,
Bidirectional and Dense, in and out.

Checked by: tests/check/test_jax.py, tests/interop/test_travel.py.
"""

import os
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from refnet.batch import Array, Params
from refnet.interop import (
    bare_stack,
    embedded,
    feedforward,
    package,
    refuse_states,
    reorder,
    resolved,
    split_biases,
    two_biases,
    unprojected,
)
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, named

Keras: TypeAlias = Any
"""A layer or a model of Keras's, which is an optional package."""
ORDER = {"rnn": (0,), "lstm": (0, 1, 2, 3), "gru": (1, 0, 2), "gru_before": (1, 0, 2)}
"""The gates as Keras stacks them: of a GRU z, r, h. The order is its own inverse."""
ACTIVATIONS = {
    "tanh": "tanh",
    "relu": "relu",
    "sigmoid": "sigmoid",
    "softsign": "softsign",
    "elu": "elu",
    "identity": "linear",
}
LAYERS = {"rnn": "SimpleRNN", "lstm": "LSTM", "gru": "GRU", "gru_before": "GRU"}


def keras_package() -> ModuleType:
    """Keras, on JAX unless the environment or an earlier import says otherwise."""
    os.environ.setdefault("KERAS_BACKEND", "jax")  # read once, when Keras is first imported
    return package("keras")


def layer_weights(
    net: RecurrentNet, p: Params, bias: bool = True, numpy: ModuleType = np
) -> list[Array]:
    """kernel, recurrent_kernel and, with a ``bias``, that: of a GRU that resets after the product
    two. ``numpy``: the module of the arrays, NumPy or JAX's."""
    order = ORDER[net.cell]
    weights = [reorder(p[name], order).T for name in ("Wxh", "Whh")]
    if not bias:
        return weights
    biases = [reorder(each, order) for each in two_biases(net, p, numpy)]
    return [*weights, numpy.stack(biases) if net.cell == "gru" else biases[0] + biases[1]]


def _activation(net: Net, name: str = "activation") -> str:
    act = getattr(net, name)
    if act.name not in ACTIVATIONS or act.alpha not in (0, 1):
        raise ValueError(f"Keras has no {name} {act.name} with constant {act.alpha}")
    return ACTIVATIONS[act.name]


def to_model(net: Net, params: Params) -> Keras:
    """The Keras model of a net, batch-first: its input is (B, T, D), symbols (B, T) if the net
    embeds them, or (B, D) of a feedforward net; its output what ``net.forward`` returns, of every
    step as (B, T, C).

    Raises ValueError for what Keras's layers do not have.

    Checked by: tests/interop/test_travel.py.
    """
    flat, params, vectors = resolved(net, params)
    keras = keras_package()
    dtype = str(next(iter(params.values())).dtype)
    model = keras.Sequential()
    weights: list[list[Array]] = []

    def add(layer: Keras, *values: Array) -> None:
        model.add(layer)
        weights.append([*values])

    if isinstance(flat, FeedforwardNet):
        model.add(keras.Input((flat.widths[0],), dtype=dtype))
        for n, width in enumerate(flat.widths[1:], 1):
            act = _activation(flat) if n <= flat.depth else "linear"
            dense = keras.layers.Dense(width, activation=act, dtype=dtype)
            add(dense, params[f"W{n}"].T, params[f"b{n}"])
    else:
        flat, params = unprojected(flat, params)
        refuse_states("Keras", params)
        if flat.clip_forward is not None:
            raise ValueError("Keras's layers have no clip_forward")
        if vectors is None:
            model.add(keras.Input((None, flat.inputs), dtype=dtype))
        else:
            model.add(keras.Input((None,), dtype="int32"))
            add(keras.layers.Embedding(*vectors.shape, dtype=dtype), vectors)
        for n, layer in enumerate(flat.cells):
            every = n + 1 < flat.layers or flat.readout != "last"
            cells = [layer_weights(cell, flat.of(params, each)) for each, cell in layer.items()]
            add(_layer(flat, dtype, every), *(value for values in cells for value in values))
        if "Why" in params:
            add(keras.layers.Dense(flat.outputs, dtype=dtype), params["Why"].T, params["by"])
    model.build()
    for layer, values in zip(model.layers, weights):
        for variable, value in zip(layer.weights, values):
            variable.assign(value)
    return model


def _layer(net: StackedNet, dtype: str, every: bool) -> Keras:
    layers = keras_package().layers
    options: dict[str, Any] = {"activation": _activation(net), "return_sequences": every}
    if net.cell != "rnn":
        options["recurrent_activation"] = _activation(net, "gate")
    if LAYERS[net.cell] == "GRU":
        options["reset_after"] = net.cell == "gru"
    layer = getattr(layers, LAYERS[net.cell])(net.hidden, dtype=dtype, **options)
    return layers.Bidirectional(layer, dtype=dtype) if net.bidirectional else layer


# ---- in


def net_of(model: Keras) -> tuple[Net, Params]:
    """The net that a Keras model is, and its parameters. Layers one after the other: Embedding,
    SimpleRNN, LSTM, GRU and Bidirectional of these, Dense; dropout is left out, and so is a
    softmax at the end: the outputs are its arguments.

    Raises ValueError naming a layer that is no part of one of refnet's nets.

    Checked by: tests/interop/test_travel.py.
    """
    plain = ("InputLayer", "Dropout", "SpatialDropout1D", "Softmax", "Masking", "GaussianNoise")
    layers = [each for each in _chain(model) if type(each).__name__ not in plain]
    kinds = [type(_inner(each)).__name__ for each in layers]
    recurrent = [each for each, kind in zip(layers, kinds) if kind in LAYERS.values()]
    dense = [each for each, kind in zip(layers, kinds) if kind == "Dense"]
    tables = [each for each, kind in zip(layers, kinds) if kind == "Embedding"]
    expected = [*tables[:1], *recurrent, *(dense[:1] if recurrent else dense)]
    if layers != expected or not layers:
        strange = next((kind for each, kind in zip(layers, kinds) if each not in expected), "none")
        raise ValueError(
            f"the model has the layer {strange} where refnet's nets have none; need an Embedding, "
            "recurrent layers and one Dense, or Dense layers alone"
        )
    if not recurrent:
        return _feedforward(dense)
    net, params = _stack(recurrent)
    if dense:
        W, b = _dense(_inner(dense[0]))
        every = recurrent[-1].return_sequences
        head: dict[str, Any] = {"loss": "cross_entropy", "reduction": "mean", "outputs": len(W)}
        net = replace(net, **head, readout="every" if every else "last")
        params |= {"Why": W, "by": b}
        _ends(dense[0], ("linear", "softmax"))
    return embedded(net, params, _weights(tables[0])[0]) if tables else (net, params)


def _chain(model: Keras) -> list[Keras]:
    """The layers in order; ValueError where they are not one after the other."""
    layers = [*model.layers]
    for each in layers:
        nodes = getattr(each, "_inbound_nodes", [])
        if any(len(node.parent_nodes) > 1 for node in nodes):
            raise ValueError(f"the layer {each.name} has several inputs; need a chain of layers")
    return layers


def _inner(layer: Keras) -> Keras:
    """The recurrent layer of a Bidirectional one, the Dense of a TimeDistributed one."""
    return getattr(layer, "forward_layer", None) or (
        layer.layer if type(layer).__name__ == "TimeDistributed" else layer
    )


def _name(function: Any) -> str:
    ours = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
    name = getattr(function, "__name__", str(function))
    if name not in ours:
        raise ValueError(f"the activation {name} is none of {', '.join(ours)}")
    return ours[name]


def _ends(layer: Keras, names: tuple[str, ...]) -> None:
    name = _inner(layer).activation.__name__
    if name not in names:
        raise ValueError(f"the layer {layer.name} ends with {name}; need {' or '.join(names)}")


def _weights(layer: Keras) -> list[Array]:
    return [np.asarray(keras_package().ops.convert_to_numpy(v.value)) for v in layer.weights]


def _dense(layer: Keras) -> tuple[Array, Array]:
    W, *b = _weights(layer)
    return W.T, b[0] if b else np.zeros(W.shape[1], W.dtype)


def _feedforward(layers: list[Keras]) -> tuple[Net, Params]:
    acts = {_name(each.activation) for each in layers[:-1]} or {"identity"}
    if len(acts) > 1:
        raise ValueError(f"the hidden layers have the activations {', '.join(acts)}; need one")
    _ends(layers[-1], ("linear", "softmax"))
    return feedforward(map(_dense, layers), [], acts.pop())


def _stack(layers: list[Keras]) -> tuple[StackedNet, Params]:
    params: Params = {}
    nets = []
    for n, layer in enumerate(layers):
        inner, both = _inner(layer), hasattr(layer, "backward_layer")
        if getattr(layer, "merge_mode", "concat") != "concat" or inner.go_backwards:
            raise ValueError(f"the layer {layer.name} joins or reverses its states; need concat")
        if n + 1 < len(layers) and not inner.return_sequences:
            raise ValueError(f"the layer {layer.name} returns one state; need all below another")
        kind = type(inner).__name__
        after = kind != "GRU" or inner.reset_after
        cell = {"SimpleRNN": "rnn", "LSTM": "lstm", "GRU": "gru" if after else "gru_before"}[kind]
        weights = _weights(layer)
        each = len(weights) // (1 + both)
        gate = "sigmoid" if cell == "rnn" else _name(inner.recurrent_activation)
        act = _name(inner.activation)
        net = bare_stack(len(weights[0]), inner.units, both, cell=cell, activation=act, gate=gate)
        nets.append(net)
        for m, side in enumerate(("", "_reverse")[: 1 + both]):
            p = _cell_params(net, weights[m * each : (m + 1) * each])
            params |= {named(name, f"_l{n}{side}"): value for name, value in p.items()}
    if any(replace(net, inputs=nets[0].inputs) != nets[0] for net in nets):
        raise ValueError("the recurrent layers differ; a stack has layers of one kind and size")
    return replace(nets[0], layers=len(nets)), params


def _cell_params(net: StackedNet, weights: list[Array]) -> Params:
    order = ORDER[net.cell]
    W, U = (reorder(value.T, order) for value in weights[:2])
    bias = weights[2] if len(weights) > 2 else np.zeros(len(W), W.dtype)
    if net.cell == "gru":
        both = bias if bias.ndim == 2 else (bias, bias * 0)
        biases = [reorder(each, order) for each in both]
        return {"Wxh": W, "Whh": U} | split_biases(net, *biases)
    return {"Wxh": W, "Whh": U, "bh": reorder(bias, order)}
