// brain.js: the LSTM has no cell state
//
// package: npm:brain.js
// known: not in its tracker's issues as far as they were searched; the source of 2.0.0-beta has
// the same lines
//
// An LSTM keeps c[t] = f[t] c[t-1] + i[t] g[t] from step to step beside h[t] = o[t] tanh(c[t]).
// brain.js's `getEquation` (recurrent/lstm.js) is given h[t-1] alone and writes
//
//     var retainCell = multiplyElement(forgetGate, previousResult); // what do we keep from cell
//
// where `previousResult` is h[t-1]: it computes c[t] = f[t] h[t-1] + i[t] g[t]. What a cell is to
// remember therefore passes a tanh and the output gate at every step, and vanishes. With one unit,
// x = 1, 0, all weights and biases 0 but the candidate's weight of the input, 1, every gate is 1/2:
const {default: LSTM} = require("brain.js/dist/recurrent/lstm");
const {default: Matrix} = require("brain.js/dist/recurrent/matrix");
const {default: Equation} = require("brain.js/dist/recurrent/matrix/equation");

const layer = {};
for (const gate of ["input", "forget", "output", "cellActivation"])
  for (const part of ["Matrix", "Hidden", "Bias"]) layer[gate + part] = new Matrix(1, 1);
layer.cellActivationMatrix.weights[0] = 1;
let h = new Matrix(1, 1), c = 0;
for (const x of [1, 0]) {
  const equation = new Equation();
  h = LSTM.prototype.getEquation(equation, equation.input(new Matrix(1, 1)), h, layer);
  equation.runInput([x]);
  c = c / 2 + Math.tanh(x) / 2;
  const right = Math.tanh(c) / 2;
  console.log(`x = ${x}: brain.js ${h.weights[0].toFixed(6)}, right ${right.toFixed(6)}`);
}
