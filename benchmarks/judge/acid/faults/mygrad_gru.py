"""mygrad: the gradient of the GRU's states has no entry for the first one

package: mygrad
known: not in its tracker's issues as far as they were searched

`gru` gives T + 1 states, of which the first is the initial one. `GRUnit.backward` in
mygrad/nnet/layers/gru.py has `hidden_seq._grad = dLds`, which has T entries, those of the states 1
to T: `s.grad[t]` is the gradient of the state t + 1. mygrad takes the gradient of a view from that
of its base, by the same indices, so that the backward pass fails where only the last of T states
is read and T is 1. The gradients of weights and inputs are right. One unit, all weights 0, so that
a state is half of the one before, and three times the last state:
"""

import mygrad as mg
import numpy as np
from mygrad.nnet.layers import gru

zero, b = np.zeros((1, 1)), np.zeros(1)
for steps in (2, 1):
    x = mg.tensor(np.ones((steps, 1, 1)))
    s = gru(x, zero, zero, b, zero, zero, b, zero, zero, b)
    right = [3 / 2 ** (steps - t) for t in range(steps + 1)]
    (3 * s[-1]).sum().backward()
    print(f"T = {steps}: gradients of the states {s.grad.ravel()}, right {right}")
    s = gru(x, zero, zero, b, zero, zero, b, zero, zero, b)
    try:
        (3 * s[1:][-1]).sum().backward()
        print("  of s[1:][-1]: passes")
    except IndexError as error:
        print(f"  of s[1:][-1]: IndexError: {error}")
