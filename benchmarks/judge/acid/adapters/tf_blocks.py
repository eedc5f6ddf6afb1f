"""TensorFlow's kernels with backward passes written by hand: BlockLSTMV2, with peepholes or
without, and GRUBlockCell, which resets before the product."""

import numpy as np
import tensorflow as tf

from benchmarks.judge.acid.head import with_head

PEEPHOLES = ("Wpi", "Wpf", "Wpo")


def lstm(p, x, y):
    """The layer."""
    H = p["Whh"].shape[1]
    peephole = PEEPHOLES[0] in p
    zero = np.zeros(H, x.dtype)
    given = {
        "x": x,
        "w": np.concatenate([p["Wxh"].T, p["Whh"].T]),
        **{name: p.get(PEEPHOLES[n], zero) for n, name in enumerate(("wci", "wcf", "wco"))},
        "b": p["bh"],
    }
    given = {name: tf.constant(value) for name, value in given.items()}
    start = tf.zeros((x.shape[1], H), x.dtype)
    with tf.GradientTape() as tape:
        tape.watch(given)
        h = tf.raw_ops.BlockLSTMV2(
            seq_len_max=tf.constant(len(x), tf.int64),
            cs_prev=start,
            h_prev=start,
            cell_clip=0.0,
            use_peephole=peephole,
            **given,
        ).h
    results, dh = with_head(p, h.numpy(), y)
    d = {name: v.numpy() for name, v in tape.gradient(h, given, output_gradients=dh).items()}
    D = x.shape[2]
    peepholes = {f"d{PEEPHOLES[n]}": d[f"wc{'ifo'[n]}"] for n in range(3) if peephole}
    return {
        **results,
        "h": np.concatenate([np.zeros_like(h[:1]), h]),
        "dx": d["x"],
        "dWxh": d["w"][:D].T,
        "dWhh": d["w"][D:].T,
        "dbh": d["b"],
        **peepholes,
    }


def gru(p, x, y):
    """The cell, step by step; of its backward kernel, whose results are dx, dh and those of the
    gates, the weights' gradients are products."""
    H, D = p["Whh"].shape[1], x.shape[2]
    both = np.concatenate([p["Wxh"].T, p["Whh"].T])
    weights = {
        "w_ru": both[:, : 2 * H],
        "w_c": both[:, 2 * H :],
        "b_ru": p["bh"][: 2 * H],
        "b_c": p["bh"][2 * H :],
    }
    h, steps = [np.zeros((x.shape[1], H), x.dtype)], []
    for at in x:
        steps.append(tf.raw_ops.GRUBlockCell(x=at, h_prev=h[-1], **weights))
        h.append(steps[-1].h.numpy())
    results, dh = with_head(p, np.stack(h[1:]), y)
    dx, dW, db, carry = np.zeros_like(x), np.zeros_like(both.T), np.zeros_like(p["bh"]), 0
    for t in reversed(range(len(x))):
        gates = {name: getattr(steps[t], name) for name in ("r", "u", "c")}
        back = tf.raw_ops.GRUBlockCellGrad(
            x=x[t], h_prev=h[t], d_h=dh[t] + carry, **weights, **gates
        )
        dx[t], carry = back.d_x.numpy(), back.d_h_prev.numpy()
        da = np.concatenate([back.d_r_bar_u_bar, back.d_c_bar], axis=1)
        db += da.sum(axis=0)
        dW[: 2 * H] += da[:, : 2 * H].T @ np.hstack([x[t], h[t]])
        dW[2 * H :] += da[:, 2 * H :].T @ np.hstack([x[t], gates["r"] * h[t]])
    d = {"dx": dx, "dWxh": dW[:, :D], "dWhh": dW[:, D:], "dbh": db}
    return {**results, "h": np.stack(h), **d}


def gradients(p, x, y):
    """The loss, the outputs, the states and every gradient, by name."""
    return (lstm if len(p["Whh"]) == 4 * p["Whh"].shape[1] else gru)(p, x, y)
