"""A recurrent net of one layer, rnn, lstm, gru or gru_before, in Keras, on the backend that the
variable KERAS_BACKEND names, for the judge:

    refnet check function mine.py:gradients --cell lstm

It gets p, a dict of NumPy arrays with Whh (G H, H), Wxh (G H, D) and bh (G H,) for G gates, bhn
(H,) of a gru, Why (C, H) and by (C,); x (T, B, D); y, the classes, (B,) or, with --readout every,
(T, B); no mask; and returns what it computed by name. On JAX and PyTorch Keras computes parts of a
net of float64 in float32: judge it with --dtypes float32 there.
"""

import keras
import numpy as np


def blocks(value, gates):
    """The gates' rows in Keras's order from refnet's, and back: a GRU has r and z the other way."""
    parts = np.split(np.asarray(value), gates)
    return np.concatenate([parts[1], parts[0], parts[2]] if gates == 3 else parts)


def net_of(p, x, y):
    """The layers with the weights of p."""
    (rows, H), (C, _), (T, B, D) = p["Whh"].shape, p["Why"].shape, x.shape
    options = {"return_sequences": y.ndim == 2, "dtype": x.dtype.name}
    gates, bias = rows // H, blocks(p["bh"], rows // H)
    if gates == 3:
        rnn = keras.layers.GRU(H, reset_after="bhn" in p, **options)
    else:
        rnn = (keras.layers.SimpleRNN if gates == 1 else keras.layers.LSTM)(H, **options)
    if "bhn" in p:
        bias = np.stack([bias, np.concatenate([np.zeros(2 * H, x.dtype), p["bhn"]])])
    net = keras.Sequential([rnn, keras.layers.Dense(C, dtype=x.dtype.name)])
    net.build((B, T, D))
    weights = [blocks(p["Wxh"], gates).T, blocks(p["Whh"], gates).T, bias, p["Why"].T, p["by"]]
    net.set_weights(weights)
    return net


def loss_of(outputs, y):
    """The mean cross-entropy."""
    each = keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
    return keras.ops.mean(each)


def on_jax(net, x, y):
    """The loss, the outputs and the gradients in x and the weights."""
    import jax

    def run(x, weights):
        rest = [variable.value for variable in net.non_trainable_variables]
        outputs, _ = net.stateless_call(weights, rest, x)
        return loss_of(outputs, y), outputs

    weights = [variable.value for variable in net.trainable_variables]
    derive = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))
    (loss, outputs), (dx, dp) = derive(x, weights)
    return loss, outputs, dx, dp


def on_tensorflow(net, x, y):
    """The same."""
    import tensorflow as tf

    @tf.function
    def derive(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = net(x)
            loss = loss_of(outputs, y)
        weights = [variable.value for variable in net.trainable_variables]
        return loss, outputs, *tape.gradient(loss, [x, weights])

    return derive(tf.constant(x))


def on_torch(net, x, y):
    """The same."""
    import torch

    x = torch.from_numpy(x).requires_grad_()
    outputs = net(x)
    loss = loss_of(outputs, y)
    loss.backward()
    weights = [variable.value for variable in net.trainable_variables]
    return loss.detach(), outputs.detach(), x.grad, [weight.grad for weight in weights]


def derived(p, x, y):
    """The same, by this process's backend; x and y begin with the sequences."""
    net = net_of(p, x, y)
    x, y = np.ascontiguousarray(x.swapaxes(0, 1)), y.T if y.ndim == 2 else y
    name = keras.backend.backend()
    if name != "jax":
        return {"tensorflow": on_tensorflow, "torch": on_torch}[name](net, x, y)
    import jax

    with jax.enable_x64(x.dtype == "float64"):
        return on_jax(net, x, y)


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    loss, outputs, dx, dp = derived(p, x, y)
    dWxh, dWhh, bias, dWhy, dby = (np.asarray(value) for value in dp)
    H, (first, *second) = len(dWhh), np.atleast_2d(bias)
    gates = dWhh.shape[1] // H
    return {
        "loss": loss,
        "outputs": np.asarray(outputs).swapaxes(0, 1) if y.ndim == 2 else outputs,
        "dx": np.asarray(dx).swapaxes(0, 1),
        "dWxh": blocks(dWxh.T, gates),
        "dWhh": blocks(dWhh.T, gates),
        "dbh": blocks(first, gates),
        **({"dbhn": second[0][2 * H :]} if second else {}),
        "dWhy": dWhy.T,
        "dby": dby,
    }
