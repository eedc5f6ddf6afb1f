// TensorFlow.js: a sequence of one step has no gradient
//
// package: npm:@tensorflow/tfjs
// known: yes, closed for lack of activity (https://github.com/tensorflow/tfjs/issues/1529)
//
// The layers split a sequence by `tf.unstack`, whose gradient is `stack(dy)`. Of an operation with
// a single output the engine passes dy as a tensor, not as an array of one, and `stack` throws.
// From two steps on all layers are explained by rounding.
console.warn = () => {};
const tf = require("@tensorflow/tfjs");

tf.setBackend("cpu");
for (const steps of [2, 1]) {
  const x = tf.ones([steps, 1]);
  try {
    const d = tf.grad(x => tf.addN(tf.unstack(x)).sum())(x);
    console.log(`unstack, ${steps} steps: gradient ${d.dataSync()}, right ${Array(steps).fill(1)}`);
  } catch (error) {
    console.log(`unstack, ${steps} step: ${error.message}`);
  }
}
