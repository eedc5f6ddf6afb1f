"""A recurrent net of one layer, rnn, lstm or gru, as a scan in TensorFlow, for the judge:

    refnet check function mine.py:gradients --cell lstm

It gets p, a dict of NumPy arrays with Whh (G H, H), Wxh (G H, D) and bh (G H,) for G gates, bhn
(H,) of a gru, Why (C, H) and by (C,); x (T, B, D); y, the classes, (B,) or, with --readout every,
(T, B); no mask; and returns what it computed by name.
"""

import tensorflow as tf


def step(p, state, z):
    """The next states h and c of a cell; z is what the input adds to its gates."""
    h, c = state
    u = tf.matmul(h, p["Whh"], transpose_b=True)
    gates = p["Whh"].shape[0] // p["Whh"].shape[1]
    if gates == 1:
        return tf.tanh(z + u), c
    if gates == 4:
        i, f, g, o = tf.split(z + u, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c
    (zr, zk, zn), (ur, uk, un) = tf.split(z, 3, axis=1), tf.split(u, 3, axis=1)
    k = tf.sigmoid(zk + uk)
    return (1 - k) * tf.tanh(zn + tf.sigmoid(zr + ur) * (un + p["bhn"])) + k * h, c


@tf.function
def derive(p, x, y):
    """The mean cross-entropy, the outputs and the gradients in p and x."""
    with tf.GradientTape() as tape:
        tape.watch([p, x])
        z = tf.matmul(x, p["Wxh"], transpose_b=True) + p["bh"]
        start = tf.zeros((x.shape[1], p["Whh"].shape[1]), x.dtype)
        h, _ = tf.scan(lambda state, at: step(p, state, at), z, (start, start))
        rows = h if len(y.shape) == 2 else h[-1]
        outputs = tf.matmul(rows, p["Why"], transpose_b=True) + p["by"]
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs)
        loss = tf.reduce_mean(each)
    return loss, outputs, *tape.gradient(loss, [p, x])


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    tensors = {name: tf.constant(value) for name, value in p.items()}
    loss, outputs, dp, dx = derive(tensors, tf.constant(x), tf.constant(y))
    return {
        "loss": loss,
        "outputs": outputs,
        "dx": dx,
        **{f"d{name}": value for name, value in dp.items()},
    }
