// A simple recurrent net, forward and backward, from the golden vectors' manifest alone.
//
//   node rnn.js DIR OUT
//
// Runs every case of DIR that is a plain recurrent net and writes OUT/NAME.json.
// Everything follows the manifest's "conventions"; no formula was taken from elsewhere.
"use strict";
const fs = require("fs");
const path = require("path");

const ACTIVATIONS = {
  tanh: [Math.tanh, (a, h) => 1 - h * h],
  relu: [(a) => (a > 0 ? a : 0), (a) => (a > 0 ? 1 : 0)],
  identity: [(a) => a, () => 1],
  softsign: [(a) => a / (1 + Math.abs(a)), (a) => 1 / (1 + Math.abs(a)) ** 2],
  elu: [(a) => (a > 0 ? a : Math.expm1(a)), (a) => (a > 0 ? 1 : Math.exp(a))],
};

// C-ordered flat data as nested arrays, and back
function nest(data, shape) {
  if (shape.length === 0) return data[0];
  if (shape.length === 1) return data.slice();
  const size = data.length / shape[0];
  return Array.from({ length: shape[0] }, (_, i) =>
    nest(data.slice(i * size, (i + 1) * size), shape.slice(1)));
}

function flat(value) {
  const shape = [];
  for (let at = value; Array.isArray(at); at = at[0]) shape.push(at.length);
  const data = [value].flat(Infinity).map((v) => (Number.isFinite(v) ? v : String(v)));
  return { shape, data };
}

const filled = (...shape) => (shape.length
  ? Array.from({ length: shape[0] }, () => filled(...shape.slice(1))) : 0);

function run(net, inputs) {
  const { Whh, Wxh, bh, Why, by, x, y, mask, h0 } = inputs;
  const [f, slope] = ACTIVATIONS[net.activation];
  const [T, B, D, H, C] = [x.length, x[0].length, net.inputs, net.hidden, net.outputs];
  const h = filled(T + 1, B, H);
  const a = filled(T, B, H);
  if (h0) for (let b = 0; b < B; b++) h[0][b] = h0.slice();
  for (let t = 0; t < T; t++) {
    for (let b = 0; b < B; b++) {
      for (let i = 0; i < H; i++) {
        let sum = bh[i];
        for (let j = 0; j < D; j++) sum += Wxh[i][j] * x[t][b][j];
        for (let j = 0; j < H; j++) sum += Whh[i][j] * h[t][b][j];
        a[t][b][i] = net.gain * sum;
        h[t + 1][b][i] = f(a[t][b][i]);
      }
    }
  }

  // every prediction: the step it reads, its example, its target, whether it counts
  const reads = [];
  if (net.readout === "every") {
    for (let t = 0; t < T; t++) {
      for (let b = 0; b < B; b++) reads.push([t + 1, b, y[t][b], !mask || mask[t][b]]);
    }
  } else {
    for (let b = 0; b < B; b++) {
      reads.push([mask ? mask.filter((row) => row[b]).length : T, b, y[b], true]);
    }
  }
  const counted = reads.filter((read) => read[3]).length;
  const divisor = { sum: 1, mean: counted, batch_mean: B }[net.reduction];

  const g = { dWhh: filled(H, H), dWxh: filled(H, D), dbh: filled(H), dWhy: filled(C, H),
    dby: filled(C), dx: filled(T, B, D) };
  const dh = filled(T + 1, B, H);
  const outputs = [];
  let loss = 0;
  for (const [t, b, target, counts] of reads) {
    const v = by.map((bias, c) => h[t][b].reduce((sum, s, i) => sum + Why[c][i] * s, bias));
    outputs.push(v);
    if (!counts) continue;
    let dv;
    if (net.loss === "cross_entropy") {
      const top = Math.max(...v);
      const e = v.map((value) => Math.exp(value - top));
      const total = e.reduce((sum, value) => sum + value, 0);
      loss += (Math.log(total) + top - v[target]) / divisor;
      dv = e.map((value, c) => (value / total - (c === target ? 1 : 0)) / divisor);
    } else {
      loss += v.reduce((sum, value, c) => sum + (value - target[c]) ** 2, 0) / C / divisor;
      dv = v.map((value, c) => 2 * (value - target[c]) / C / divisor);
    }
    for (let c = 0; c < C; c++) {
      g.dby[c] += dv[c];
      for (let i = 0; i < H; i++) {
        g.dWhy[c][i] += dv[c] * h[t][b][i];
        dh[t][b][i] += dv[c] * Why[c][i];
      }
    }
  }

  for (let t = T - 1; t >= 0; t--) {
    for (let b = 0; b < B; b++) {
      for (let i = 0; i < H; i++) {
        const da = net.gain * dh[t + 1][b][i] * slope(a[t][b][i], h[t + 1][b][i]);
        g.dbh[i] += da;
        for (let j = 0; j < D; j++) {
          g.dWxh[i][j] += da * x[t][b][j];
          g.dx[t][b][j] += da * Wxh[i][j];
        }
        for (let j = 0; j < H; j++) {
          g.dWhh[i][j] += da * h[t][b][j];
          dh[t][b][j] += da * Whh[i][j];
        }
      }
    }
  }
  const dh0 = h0 ? dh[0].reduce((sum, row) => sum.map((value, i) => value + row[i])) : dh[0];
  const shaped = net.readout === "every" ? nest(outputs, [T, B]) : outputs;
  return { loss, outputs: shaped, h, ...g, dh0 };
}

const [dir, out] = process.argv.slice(2);
const manifest = JSON.parse(fs.readFileSync(path.join(dir, "manifest.json"), "utf8"));
for (const name of Object.keys(manifest.cases)) {
  const { arrays, net } = JSON.parse(fs.readFileSync(path.join(dir, `${name}.json`), "utf8"));
  if (net.kind !== "recurrent" || net.cell !== "rnn" || net.transition) continue;
  if (!(net.activation in ACTIVATIONS)) continue;
  const inputs = {};
  for (const key of Object.keys(arrays).filter((k) => k.startsWith("in."))) {
    inputs[key.slice(3)] = nest(arrays[key].data, arrays[key].shape);
  }
  const results = Object.fromEntries(
    Object.entries(run(net, inputs)).map(([key, value]) => [key, flat(value)]));
  fs.writeFileSync(path.join(out, `${name}.json`),
    JSON.stringify({ dtype: "float64", arrays: results }));
}
