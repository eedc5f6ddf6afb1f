"""PaddlePaddle: the cross-entropy of a prediction is at most 64, on a CPU

package: paddlepaddle
known: yes, closed (https://github.com/PaddlePaddle/Paddle/issues/20994)

The softmax of the CPU kernels clips `logits - max(logits)` at -64 (`ValueClip` in
paddle/phi/kernels/funcs/softmax_impl.h), so that no probability is below exp(-64), in float64 as
in float32. `cross_entropy` and `log_softmax` have it, too: a wrong prediction that is certain
counts 64, whatever its logits are, while the gradient that goes with it is right. With the layers
it shows where relu makes large logits.
"""

import paddle

paddle.set_device("cpu")
for dtype in ("float32", "float64"):
    for logit in (-60.0, -64.0, -65.0, -100.0):
        logits = paddle.to_tensor([[0.0, logit]], dtype=dtype, stop_gradient=False)
        loss = paddle.nn.functional.cross_entropy(logits, paddle.to_tensor([1]))
        loss.backward()
        logs = paddle.nn.functional.log_softmax(logits)[0, 1].item()
        print(
            f"{dtype}, logits 0, {logit:g}: cross_entropy {loss.item():.9g}, right {-logit:.9g},"
            f" log_softmax {logs:.9g}, gradient {logits.grad[0, 0].item():.3g} for 1"
        )
