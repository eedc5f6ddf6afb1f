"""PaddlePaddle: the GRU's gradient is NaN where the reset gate is 0, on a CPU

package: paddlepaddle
known: not in its tracker's issues as far as they were searched

With n = tanh(a + r u), u = Whn h + bhn, the gradient of r is dn (1 - n^2) u. `gru_backward` in
paddle/phi/kernels/funcs/detail/gru_cpu_kernel.h has r u and not u, and divides:

    value_reset_output / value_reset_gate * grad_frame_state

which is 0 / 0 where r underflows, at a pre-activation of -88 in float32 and -710 in float64. One
such unit at one step makes the gradients of all weights NaN. One unit, one step, x = 0, bhn = 1/2,
and a bias of the reset gate:
"""

import numpy as np
import paddle

paddle.set_device("cpu")
for dtype, biases in (("float32", (-50, -87, -89)), ("float64", (-50, -709, -710))):
    paddle.set_default_dtype(dtype)
    for bias in biases:
        rnn = paddle.nn.GRU(1, 1, time_major=True)
        rnn.weight_ih_l0.set_value(np.ones((3, 1), dtype))
        rnn.weight_hh_l0.set_value(np.zeros((3, 1), dtype))
        rnn.bias_ih_l0.set_value(np.array([bias, 0, 0], dtype))
        rnn.bias_hh_l0.set_value(np.array([0, 0, 0.5], dtype))
        x = paddle.to_tensor(np.zeros((1, 1, 1), dtype), stop_gradient=False)
        h, _ = rnn(x)
        h.sum().backward()
        theirs = rnn.bias_ih_l0.grad[0].item(), x.grad.item()
        r = np.exp(np.longdouble(bias))  # 1 / (1 + exp(-bias)), to its last digits
        right = r / 4, np.longdouble(0.5) + r / 4
        print(
            f"{dtype}, bias {bias}: d bias {theirs[0]:.6g}, right {right[0]:.6g};"
            f" dx {theirs[1]:.6g}, right {right[1]:.6g}"
        )
