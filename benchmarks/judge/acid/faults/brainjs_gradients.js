// brain.js: the gradients of what is used twice are overwritten, and 1 - z has none
//
// package: npm:brain.js
// known: not in its tracker's issues as far as they were searched; the source of 2.0.0-beta has
// the same lines
//
// Where a matrix is used twice its gradient is the sum over its uses. `multiply-b.js` adds to
// `deltas`; `add-b.js`, `multiply-element-b.js`, `sigmoid-b.js`, `tanh-b.js` and `relu-b.js` assign
// (`left.deltas[i] = ...`), so that the use that is backpropagated last alone counts:
//
// - a bias, which every step adds, has the gradient of the first step, not the sum over the steps
//   (RNN, LSTM and GRU);
// - in the GRU, h[t-1] loses dh[t] z[t], which carries the gradient over many steps: the product
//   of the reset gate overwrites it;
// - `cloneNegative` has no backward function (recurrent/matrix/equation.js), so that the update
//   gate's gradient is dh[t] h[t-1] where it should be dh[t] (h[t-1] - n[t]).
//
// With `+=` in those five files, and `cloneNegative`'s backward pass, all three are right.
const path = "brain.js/dist/recurrent/";
const {default: Matrix} = require(path + "matrix");
const {default: Equation} = require(path + "matrix/equation");
const {default: RNN} = require(path + "rnn");
const {default: GRU} = require(path + "gru");

function run(kind, layer, xs, dhs) {
  let h = new Matrix(1, 1);
  const steps = xs.map(x => {
    const equation = new Equation(), input = new Matrix(1, 1);
    h = kind.prototype.getEquation(equation, equation.input(input), h, layer);
    equation.runInput([x]);
    return {equation, input, h};
  });
  for (let t = xs.length - 1; t >= 0; t--) {
    steps[t].h.deltas[0] += dhs[t];
    steps[t].equation.backpropagate();
  }
  return steps.map(step => step.input.deltas[0]);
}
function say(what, theirs, right) {
  console.log(`${what}: brain.js ${theirs.toFixed(6)}, right ${right.toFixed(6)}`);
}

const rnn = {weight: new Matrix(1, 1), transition: new Matrix(1, 1), bias: new Matrix(1, 1)};
rnn.weight.weights[0] = 1;
run(RNN, rnn, [1, 1], [1, 1]);
say("RNN, weight 1, x = 1, 1, loss h[1] + h[2]: d bias", rnn.bias.deltas[0], 2);

const gru = {};
for (const gate of ["updateGate", "resetGate", "cellWrite"])
  for (const part of ["InputMatrix", "HiddenMatrix", "Bias"]) gru[gate + part] = new Matrix(1, 1);
gru.cellWriteInputMatrix.weights[0] = 1;
const n = Math.tanh(1), z = 0.5;
const [dx] = run(GRU, gru, [1, 1], [0, 1]);
say("GRU, candidate's weight 1, x = 1, 1, loss h[2]: d x[1]", dx, z * (1 - z) * (1 - n * n));
run(GRU, gru, [1], [1]);
say("  x = 1, loss h[1]: d bias of the update gate", gru.updateGateBias.deltas[0], -n * z * (1 - z));
