// Recurrent nets, forward and backward, from the golden vectors' manifest alone: rnn, lstm and
// gru, in one layer and more, one direction and both, with every read-out.
//
//   node net.js DIR OUT
//
// Runs every such case of DIR and writes OUT/NAME.json; the folder OUT has to be there.
// Everything follows the manifest's "conventions"; no formula was taken from elsewhere.
"use strict";
const fs = require("fs");
const path = require("path");

const logistic = (a) => 1 / (1 + Math.exp(-a));
const ACTIVATIONS = {
  tanh: [Math.tanh, (a, h) => 1 - h * h],
  relu: [(a) => (a > 0 ? a : 0), (a) => (a > 0 ? 1 : 0)],
  identity: [(a) => a, () => 1],
  softsign: [(a) => a / (1 + Math.abs(a)), (a) => 1 / (1 + Math.abs(a)) ** 2],
  elu: [(a) => (a > 0 ? a : Math.expm1(a)), (a) => (a > 0 ? 1 : Math.exp(a))],
};
const GATES = { rnn: 1, lstm: 4, gru: 3 };

const zeros = (...shape) => (shape.length
  ? Array.from({ length: shape[0] }, () => zeros(...shape.slice(1))) : 0);
const map = (fill, ...shape) => {
  const each = (left, index) => (left.length
    ? Array.from({ length: left[0] }, (_, i) => each(left.slice(1), [...index, i]))
    : fill(...index));
  return each(shape, []);
};
const times = (W, v) => W.map((row) => row.reduce((sum, w, j) => sum + w * v[j], 0));
const add = (to, values) => values.forEach((value, i) => { to[i] += value; });
// d is the gradient of W v: to W's own is added, and W' d to v's
const pull = (W, v, d, dW, dv) => W.forEach((row, r) => row.forEach((w, j) => {
  dW[r][j] += d[r] * v[j];
  if (dv) dv[j] += d[r] * w;
}));

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

class Cell {
  constructor(net, inputs, suffix, steps) {
    const own = (name) => inputs[`${name}${suffix}`];
    Object.assign(this, { net, suffix, steps, H: net.hidden, G: GATES[net.cell] });
    this.P = net.projection || net.hidden;
    this.p = Object.fromEntries(["Whh", "Wxh", "bh", "bhh", "bhn", "Whr", "h0"].map(
      (name) => [name, own(name)]));
    [this.f, this.slope] = ACTIVATIONS[net.activation];
  }

  // the step of the input that the cell sees at its own step s
  when(s, b) {
    return this.suffix.endsWith("_reverse") && s < this.steps[b] ? this.steps[b] - 1 - s : s;
  }

  forward(x) {
    const { net, H, G, P, f } = this;
    const { Whh, Wxh, bh, bhh, bhn, Whr, h0 } = this.p;
    const [T, B] = [x.length, x[0].length];
    const lstm = net.cell === "lstm";
    const start = (n) => map((b, i) => (h0 ? (lstm ? h0[n][i] : h0[i]) : 0), B, n ? H : P);
    Object.assign(this, { x, h: [start(0)], c: [start(1 * lstm)], a: [], u: [], m: [] });
    for (let s = 0; s < T; s++) {
      const next = zeros(B);
      for (const list of [this.a, this.u, this.m, this.c]) list.push(zeros(B));
      for (let b = 0; b < B; b++) {
        const h = this.h[s][b];
        const rec = times(Whh, h);
        const a = times(Wxh, x[this.when(s, b)][b]).map(
          (sum, r) => sum + bh[r] + (bhh && r < bhh.length ? bhh[r] : 0));
        const u = bhn ? bhn.map((bias, i) => net.gain * (rec[2 * H + i] + bias)) : [];
        for (let r = 0; r < G * H; r++) {
          a[r] = bhn && r >= 2 * H ? net.gain * a[r] + logistic(a[r - 2 * H]) * u[r - 2 * H]
            : net.gain * (a[r] + rec[r]);
        }
        let m = a.slice(0, H).map(f);
        if (lstm) {
          this.c[s + 1][b] = this.c[s][b].map((c, i) => logistic(a[H + i]) * c
            + logistic(a[i]) * f(a[2 * H + i]));
          m = this.c[s + 1][b].map((c, i) => logistic(a[3 * H + i]) * f(c));
        } else if (bhn) {
          m = m.map((_, i) => (1 - logistic(a[H + i])) * f(a[2 * H + i])
            + logistic(a[H + i]) * h[i]);
        }
        [this.a[s][b], this.u[s][b], this.m[s][b]] = [a, u, m];
        next[b] = Whr ? times(Whr, m) : m;
      }
      this.h.push(next);
    }
  }

  // dh (T + 1, B, P): the direct gradient of every state; that of the input is added to dx
  backward(dh, dx) {
    const { net, H, G, f, slope, x, h, c } = this;
    const { Whh, Wxh, bhh, bhn, Whr, h0 } = this.p;
    const [T, B] = [x.length, x[0].length];
    const lstm = net.cell === "lstm";
    const g = { Whh: zeros(G * H, this.P), Wxh: zeros(G * H, Wxh[0].length), bh: zeros(G * H),
      ...(bhn && { bhn: zeros(H) }), ...(Whr && { Whr: zeros(this.P, H) }) };
    const dc = zeros(B, H);
    for (let s = T - 1; s >= 0; s--) {
      for (let b = 0; b < B; b++) {
        const [a, e] = [this.a[s][b], dh[s + 1][b]];
        const at = this.when(s, b);
        let dm = e;
        if (Whr) pull(Whr, this.m[s][b], e, g.Whr, dm = zeros(H));
        const [da, du] = [zeros(G * H), zeros(H)];
        for (let i = 0; i < H; i++) {
          if (lstm) {
            const [input, forget, o] = [a[i], a[H + i], a[3 * H + i]].map(logistic);
            const [cell, v] = [f(a[2 * H + i]), f(c[s + 1][b][i])];
            da[3 * H + i] = dm[i] * v * o * (1 - o);
            dc[b][i] += dm[i] * o * slope(c[s + 1][b][i], v);
            da[i] = dc[b][i] * cell * input * (1 - input);
            da[H + i] = dc[b][i] * c[s][b][i] * forget * (1 - forget);
            da[2 * H + i] = dc[b][i] * input * slope(a[2 * H + i], cell);
            dc[b][i] *= forget;
          } else if (bhn) {
            const [r, z, n] = [logistic(a[i]), logistic(a[H + i]), f(a[2 * H + i])];
            da[2 * H + i] = dm[i] * (1 - z) * slope(a[2 * H + i], n);
            da[H + i] = dm[i] * (h[s][b][i] - n) * z * (1 - z);
            da[i] = da[2 * H + i] * this.u[s][b][i] * r * (1 - r);
            du[i] = da[2 * H + i] * r;
            dh[s][b][i] += dm[i] * z;
            g.bhn[i] += net.gain * du[i];
          } else {
            da[i] = dm[i] * slope(a[i], h[s + 1][b][i]);
          }
        }
        const d = da.map((value) => net.gain * value);
        add(g.bh, d);
        pull(Wxh, x[at][b], d, g.Wxh, dx[at][b]);
        pull(Whh, h[s][b], d.map((value, r) => (bhn && r >= 2 * H
          ? net.gain * du[r - 2 * H] : value)), g.Whh, dh[s][b]);
      }
    }
    if (bhh) g.bhh = g.bh.slice(0, bhh.length);
    const wide = dh[0].map((row) => [...row, ...zeros(H - row.length)]);
    const total = (rows) => rows.reduce((sum, row) => sum.map((value, i) => value + row[i]));
    const parts = lstm ? [wide, dc] : [wide];
    const shown = h0 ? parts.map(total) : parts;
    g.h0 = lstm ? shown : shown[0];
    return Object.fromEntries([...Object.entries(g).map(([key, value]) => [
      `d${key}${this.suffix}`, value]), [`h${this.suffix}`, h]]);
  }
}

function run(net, inputs) {
  const { Why, by, x, y, mask } = inputs;
  const [T, B] = [x.length, x[0].length];
  const stacked = net.kind === "stacked";
  const [last, alone] = [net.readout === "last", net.readout === "none"];
  const lengths = x[0].map((_, b) => (mask ? mask.filter((row) => row[b]).length : T));
  const counted = (t, b) => last || !mask || mask[t][b];
  const within = (s, b) => !stacked || s < lengths[b];

  const layers = map((l, d) => new Cell(net, inputs, stacked ? `_l${l}${["", "_reverse"][d]}` : "",
    lengths), net.layers || 1, net.bidirectional ? 2 : 1);
  const P = layers[0][0].P;
  const seen = [x];
  for (const cells of layers) {
    const below = seen[seen.length - 1];
    const states = zeros(T, B, cells.length * P);
    cells.forEach((cell, d) => {
      cell.forward(below);
      map((s, b, i) => {
        if (within(s, b)) states[cell.when(s, b)][b][d * P + i] = cell.h[s + 1][b][i];
      }, T, B, P);
    });
    seen.push(states);
  }
  const top = layers[layers.length - 1];
  const places = last ? x[0].map((_, b) => [0, b]) : map((t, b) => [t, b], T, B).flat();
  const rows = places.map(([t, b]) => (last ? top.map((cell) => cell.h[lengths[b]][b]).flat()
    : seen[seen.length - 1][t][b]));
  const number = places.filter(([t, b]) => counted(t, b)).length;
  const divisor = { sum: 1, mean: number, batch_mean: B }[net.reduction];

  let loss = 0;
  const g = alone ? {} : { dWhy: zeros(Why.length, Why[0].length), dby: zeros(by.length) };
  const outputs = rows.map((row) => (alone ? row : times(Why, row).map((v, i) => v + by[i])));
  const drows = outputs.map((v, n) => {
    const [t, b] = places[n];
    const target = last ? y[b] : y[t][b];
    if (!counted(t, b)) return zeros(rows[n].length);
    let dv;
    if (net.loss === "cross_entropy") {
      const largest = Math.max(...v);
      const e = v.map((value) => Math.exp(value - largest));
      const total = e.reduce((sum, value) => sum + value, 0);
      loss += (Math.log(total) + largest - v[target]) / divisor;
      dv = e.map((value, c) => (value / total - (c === target ? 1 : 0)) / divisor);
    } else if (net.loss === "none") {
      loss += v.reduce((sum, value, c) => sum + value * target[c], 0);
      dv = target;
    } else {
      loss += v.reduce((sum, value, c) => sum + (value - target[c]) ** 2, 0) / v.length / divisor;
      dv = v.map((value, c) => 2 * (value - target[c]) / v.length / divisor);
    }
    if (alone) return dv;
    const drow = zeros(rows[n].length);
    add(g.dby, dv);
    pull(Why, rows[n], dv, g.dWhy, drow);
    return drow;
  });

  let d = last ? null : nest(drows, [T, B]);
  for (let l = layers.length - 1; l >= 0; l--) {
    const below = zeros(T, B, seen[l][0][0].length);
    layers[l].forEach((cell, n) => {
      const dh = zeros(T + 1, B, P);
      map((b, i) => {
        if (!d) { dh[lengths[b]][b][i] = drows[b][n * P + i]; return; }
        for (let s = 0; s < T; s++) {
          if (within(s, b)) dh[s + 1][b][i] = d[cell.when(s, b)][b][n * P + i];
        }
      }, B, P);
      Object.assign(g, cell.backward(dh, below));
    });
    d = below;
  }
  return { loss, outputs: last ? outputs : nest(outputs, [T, B]), ...g, dx: d };
}

const [dir, out] = process.argv.slice(2);
const manifest = JSON.parse(fs.readFileSync(path.join(dir, "manifest.json"), "utf8"));
for (const name of Object.keys(manifest.cases)) {
  const { arrays, net } = JSON.parse(fs.readFileSync(path.join(dir, `${name}.json`), "utf8"));
  if (!(net.cell in GATES) || net.transition || "in.Wpi" in arrays) continue;
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
