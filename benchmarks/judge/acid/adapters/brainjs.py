"""brain.js's recurrent cells: each step's equations are run and backpropagated as its own training
does, in node; the sequences one after the other, the read-out and the loss here."""

import json
import subprocess

import numpy as np

from benchmarks.judge.acid.head import with_head

SOURCE = r"""
const path = "brain.js/dist/recurrent/";
const Matrix = require(path + "matrix").default;
const Equation = require(path + "matrix/equation").default;
const {kind, model, x, dh} = JSON.parse(require("fs").readFileSync(0, "utf8"));
const {getEquation} = require(path + kind).default.prototype;
const names = Object.keys(model);

function matrixOf(rows) {
  const matrix = new Matrix(rows.length, rows[0].length);
  rows.flat().forEach((value, n) => { matrix.weights[n] = value; });
  return matrix;
}
const layer = Object.fromEntries(names.map(name => [name, matrixOf(model[name])]));
const H = model[names[0]].length;

const results = x.map((sequence, b) => {
  let h = new Matrix(H, 1);
  const steps = sequence.map(values => {
    const equation = new Equation(), input = new Matrix(values.length, 1);
    h = getEquation(equation, equation.input(input), h, layer);
    equation.runInput(Float32Array.from(values));
    return {equation, input, h};
  });
  if (!dh) return {h: steps.map(step => Array.from(step.h.weights))};
  steps.forEach((_, n) => {
    const t = steps.length - 1 - n;
    dh[b][t].forEach((value, i) => { steps[t].h.deltas[i] += value; });
    steps[t].equation.backpropagate();
  });
  return {
    dx: steps.map(step => Array.from(step.input.deltas)),
    model: Object.fromEntries(names.map(name => [name, layer[name].deltasToArray()])),
  };
});
process.stdout.write(JSON.stringify(results));
"""
GATES = {
    "rnn": [("weight", "transition", "bias")],
    "lstm": [
        (f"{gate}Matrix", f"{gate}Hidden", f"{gate}Bias")
        for gate in ("input", "forget", "cellActivation", "output")
    ],
    "gru": [
        (f"{gate}InputMatrix", f"{gate}HiddenMatrix", f"{gate}Bias")
        for gate in ("resetGate", "updateGate", "cellWrite")
    ],
}
"""The names of its matrices, by gate in refnet's order."""


def run(**given):
    """What node computes, a sequence an entry."""
    call = subprocess.run(
        ["node", "-e", SOURCE], input=json.dumps(given), text=True, capture_output=True
    )
    if call.returncode:
        raise RuntimeError(f"node: {call.stderr}")
    return json.loads(call.stdout)


def gradients(p, x, y):
    """The loss, the outputs, the states and every gradient, by name."""
    rows, H = p["Whh"].shape
    kind = {1: "rnn", 3: "gru", 4: "lstm"}[rows // H]
    model = {}
    for n, names in enumerate(GATES[kind]):
        at = slice(n * H, (n + 1) * H)
        for name, value in zip(names, (p["Wxh"][at], p["Whh"][at], p["bh"][at, None])):
            model[name] = value.tolist()
    given = {"kind": kind, "model": model, "x": x.swapaxes(0, 1).tolist()}
    h = np.array([result["h"] for result in run(**given)], np.float32).swapaxes(0, 1)
    results, dh = with_head(p, h, y)
    each = run(**given, dh=dh.swapaxes(0, 1).tolist())
    for part, name in enumerate(("dWxh", "dWhh", "dbh")):
        value = sum(
            np.concatenate([result["model"][names[part]] for names in GATES[kind]])
            for result in each
        )
        results[name] = (value[:, 0] if name == "dbh" else value).astype(np.float32)
    dx = np.array([result["dx"] for result in each], np.float32).swapaxes(0, 1)
    return {**results, "dx": dx, "h": np.concatenate([np.zeros_like(h[:1]), h])}
