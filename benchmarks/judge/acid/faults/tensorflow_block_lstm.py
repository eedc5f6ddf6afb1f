"""TensorFlow: the gradient of BlockLSTMV2 takes the forget gate for the candidate

package: tensorflow-cpu
known: not in its tracker's issues as far as they were searched

`tf.raw_ops.BlockLSTMV2` has its gates in the order i, f, c, o, `BlockLSTM` in the order i, c, f, o,
and there is a backward kernel for each. `tensorflow/python/ops/rnn_grad.py` registers one function
for both, which calls the kernel of the first:

    ops.RegisterGradient("BlockLSTMV2")(_block_lstm_grad)  # gen_rnn_ops.block_lstm_grad

so that every gradient of a GradientTape through BlockLSTMV2 is wrong. `BlockLSTMGradV2`, called
by hand, is right. One unit, one step, x = 1, the weights 0.1, 0.2, 0.3, 0.4 of i, f, c, o:
"""

import tensorflow as tf

zero, w = tf.zeros((1, 1)), tf.constant([[0.1, 0.2, 0.3, 0.4], [0.0] * 4])
given = {
    "seq_len_max": tf.constant(1, tf.int64),
    "x": tf.ones((1, 1, 1)),
    "cs_prev": zero,
    "h_prev": zero,
    "w": w,
    **{name: tf.zeros(1) for name in ("wci", "wcf", "wco")},
    "b": tf.zeros(4),
}
with tf.GradientTape() as tape:
    tape.watch(w)
    out = tf.raw_ops.BlockLSTMV2(**given, cell_clip=0.0, use_peephole=False)
theirs = tape.gradient(out.h, w)[0]
states = {name: getattr(out, name) for name in ("i", "cs", "f", "o", "ci", "co", "h")}
ones = tf.ones_like(out.h)
by_hand = tf.raw_ops.BlockLSTMGradV2(
    **given, **states, cs_grad=0 * ones, h_grad=ones, use_peephole=False
).w_grad[0]
with tf.GradientTape() as tape:
    tape.watch(w)
    i, f, c, o = tf.unstack(w[0])
    h = tf.sigmoid(o) * tf.tanh(tf.sigmoid(i) * tf.tanh(c))
right = tape.gradient(h, w)[0]
print(f"h: BlockLSTMV2 {out.h.numpy().item():.6f}, right {h:.6f}")
for gate, tape_w, hand_w, right_w in zip("ifco", theirs, by_hand, right):
    print(f"dw of {gate}: tape {tape_w:.6f}, BlockLSTMGradV2 {hand_w:.6f}, right {right_w:.6f}")
