"""A recurrent net of one layer, rnn, lstm or gru_before, in TensorFlow.js, for the judge:

    npm install @tensorflow/tfjs
    refnet check function mine.py:gradients --cell lstm --dtypes float32

It gets p, a dict of NumPy arrays with Whh (G H, H), Wxh (G H, D) and bh (G H,) for G gates, Why
(C, H) and by (C,); x (T, B, D); y, the classes, (B,) or, with --readout every, (T, B); no mask;
and returns what it computed by name. A pipe to node carries the numbers, as JSON.
"""

import json
import subprocess

import numpy as np

SOURCE = r"""
console.warn = console.info = console.log = () => {};  // its greeting
const tf = require("@tensorflow/tfjs");

async function main() {
  await tf.setBackend("cpu");
  const {p, x, y, hidden, classes} = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const tensor = ([shape, values]) => tf.tensor(values, shape, "float32");
  const options = {units: hidden, returnSequences: true};
  const gates = p.bias[0][0] / hidden;
  const rnn = gates === 1 ? tf.layers.simpleRNN(options)
    : gates === 4 ? tf.layers.lstm({...options, recurrentActivation: "sigmoid"})
    : tf.layers.gru({...options, recurrentActivation: "sigmoid"});
  const head = tf.layers.dense({units: classes});
  const input = tf.variable(tensor(x));
  head.apply(rnn.apply(input));  // makes the weights
  rnn.setWeights([p.kernel, p.recurrent, p.bias].map(tensor));
  head.setWeights([p.Why, p.by].map(tensor));

  let outputs;
  const last = y[0].length === 1;
  const labels = tf.oneHot(tf.tensor1d(y[1], "int32"), classes);
  const loss = () => {
    const h = rnn.apply(input);
    const rows = last ? h.slice([0, h.shape[1] - 1], [-1, 1]) : h;
    outputs = tf.keep(head.apply(rows));
    return tf.losses.softmaxCrossEntropy(labels, outputs.reshape([-1, classes]));
  };
  const weights = [...rnn.trainableWeights, ...head.trainableWeights].map(weight => weight.val);
  const {value, grads} = tf.variableGrads(loss, [input, ...weights]);
  const results = [value, outputs, ...[input, ...weights].map(({name}) => grads[name])];
  const plain = results.map(result => [result.shape, Array.from(result.dataSync())]);
  process.stdout.write(JSON.stringify(plain));
}
main().catch(error => { process.stderr.write(String(error)); process.exit(1); });
"""


def blocks(value, gates):
    """The gates' rows in its order from refnet's, and back: a GRU has r and z the other way."""
    parts = np.split(value, gates)
    return np.concatenate([parts[1], parts[0], parts[2]] if gates == 3 else parts)


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    if x.dtype != np.float32 or "bhn" in p:
        raise ValueError("TensorFlow.js has float32 alone, and no GRU that resets after")
    (rows, H), (C, _) = p["Whh"].shape, p["Why"].shape
    gates = rows // H
    weights = {
        "kernel": blocks(p["Wxh"], gates).T,
        "recurrent": blocks(p["Whh"], gates).T,
        "bias": blocks(p["bh"], gates),
        "Why": p["Why"].T,
        "by": p["by"],
    }
    given = {
        "p": {name: [value.shape, value.ravel().tolist()] for name, value in weights.items()},
        "x": [x.swapaxes(0, 1).shape, x.swapaxes(0, 1).ravel().tolist()],
        "y": [y.shape, y.T.ravel().tolist()],
        "hidden": H,
        "classes": C,
    }
    run = subprocess.run(
        ["node", "-e", SOURCE], input=json.dumps(given), text=True, capture_output=True
    )
    if run.returncode:
        raise RuntimeError(f"node: {run.stderr}")
    loss, outputs, dx, dWxh, dWhh, dbh, dWhy, dby = (
        np.array(values, np.float32).reshape(shape) for shape, values in json.loads(run.stdout)
    )
    outputs = outputs.swapaxes(0, 1)
    return {
        "loss": loss,
        "outputs": outputs if y.ndim == 2 else outputs[0],
        "dx": dx.swapaxes(0, 1),
        "dWxh": blocks(dWxh.T, gates),
        "dWhh": blocks(dWhh.T, gates),
        "dbh": blocks(dbh, gates),
        "dWhy": dWhy.T,
        "dby": dby,
    }
