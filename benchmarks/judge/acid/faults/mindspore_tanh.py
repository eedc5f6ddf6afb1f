"""MindSpore: tanh is larger than 1, and exp has four to five digits less than float32, on a CPU

package: mindspore
known: not in its tracker's issues as far as they were searched

The CPU kernels (nnacl) compute tanh by a quotient of polynomials between -5 and 5 (`TanhOpt`:
x (135135 + 17325 x^2 + 378 x^4 + x^6) / (135135 + 62370 x^2 + 3150 x^4 + 28 x^6)), and 1 and -1
beyond. That quotient is no more than an approximation of tanh: near 5 it is larger than 1, and
1 - tanh^2, the slope in a backward pass, is negative there. exp is a polynomial with errors of up
to a hundred units roundoff, which the gates, the softmax and its gradient have in turn.
"""

import mindspore as ms
import numpy as np
from mindspore import ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
x = np.array([0.5, 2, 4, 4.5, 4.9, 4.999, 5.001], "f")
for at, value in zip(x, ops.tanh(ms.Tensor(x)).asnumpy()):
    print(f"tanh({at:g}): MindSpore {value:.9g}, right {np.tanh(float(at)):.9g}")
x = np.array([-9.356575, -5, -1, -0.1, 1], "f")
for at, value in zip(x, ops.exp(ms.Tensor(x)).asnumpy()):
    right = np.exp(float(at))
    print(
        f"exp({at:g}): MindSpore {value:.9g}, right {right:.9g},"
        f" {abs(value - right) / right * 2**24:.0f} units roundoff"
    )
