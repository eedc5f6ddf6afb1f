"""A recurrent net of one layer, rnn, lstm or gru, in PaddlePaddle, for the judge:

    refnet check function mine.py:gradients --cell lstm

It gets p, a dict of NumPy arrays with Whh (G H, H), Wxh (G H, D) and bh (G H,) for G gates, bhn
(H,) of a gru, Why (C, H) and by (C,); x (T, B, D); y, the classes, (B,) or, with --readout every,
(T, B); no mask; and returns what it computed by name.
"""

import numpy as np
import paddle


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    paddle.set_device("cpu")
    paddle.set_default_dtype(x.dtype.name)
    (rows, H), (C, _), D = p["Whh"].shape, p["Why"].shape, x.shape[2]
    kind = {1: paddle.nn.SimpleRNN, 3: paddle.nn.GRU, 4: paddle.nn.LSTM}[rows // H]
    rnn, head = kind(D, H, time_major=True), paddle.nn.Linear(H, C)
    second = np.zeros(rows, x.dtype)
    if "bhn" in p:
        second[2 * H :] = p["bhn"]
    rnn.weight_ih_l0.set_value(p["Wxh"])
    rnn.weight_hh_l0.set_value(p["Whh"])
    rnn.bias_ih_l0.set_value(p["bh"])
    rnn.bias_hh_l0.set_value(second)
    head.weight.set_value(p["Why"].T)
    head.bias.set_value(p["by"])

    x = paddle.to_tensor(x, stop_gradient=False)
    h, _ = rnn(x)
    outputs = head(h if y.ndim == 2 else h[-1])
    loss = paddle.nn.functional.cross_entropy(outputs, paddle.to_tensor(y))
    loss.backward()
    results = {
        "loss": loss,
        "outputs": outputs,
        "dx": x.grad,
        "dWxh": rnn.weight_ih_l0.grad,
        "dWhh": rnn.weight_hh_l0.grad,
        "dbh": rnn.bias_ih_l0.grad,
        "dWhy": head.weight.grad.T,
        "dby": head.bias.grad,
    }
    if "bhn" in p:
        results["dbhn"] = rnn.bias_hh_l0.grad[2 * H :]
    return {name: value.numpy() for name, value in results.items()}
