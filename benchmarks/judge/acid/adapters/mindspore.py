"""MindSpore's RNN, LSTM and GRU, on a CPU."""

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    (rows, H), (C, _), D = p["Whh"].shape, p["Why"].shape, x.shape[2]
    rnn = {1: nn.RNN, 3: nn.GRU, 4: nn.LSTM}[rows // H](D, H)
    second = np.zeros(rows, x.dtype)
    if "bhn" in p:
        second[2 * H :] = p["bhn"]
    weights = [
        ms.Parameter(ms.Tensor(value), name=name)
        for name, value in {**p, "second": second}.items()
        if name != "bhn"
    ]
    named = {weight.name: weight for weight in weights}
    for place, name in (("w_ih", "Wxh"), ("w_hh", "Whh"), ("b_ih", "bh"), ("b_hh", "second")):
        setattr(rnn, f"{place}_list", ms.ParameterTuple((named[name],)))
    start = ms.Tensor(np.zeros((1, x.shape[1], H), x.dtype))
    labels = ms.Tensor(y.reshape(-1).astype(np.int32))

    def run(x):
        h, _ = rnn(x, (start, start) if rows == 4 * H else start)
        outputs = ops.matmul(h if y.ndim == 2 else h[-1], named["Why"].T) + named["by"]
        return ops.cross_entropy(outputs.reshape(-1, C), labels), outputs

    derive = ms.value_and_grad(run, 0, ms.ParameterTuple(weights), has_aux=True)
    (loss, outputs), (dx, dp) = derive(ms.Tensor(x))
    d = {f"d{weight.name}": value.asnumpy() for weight, value in zip(weights, dp)}
    dsecond = d.pop("dsecond")
    if "bhn" in p:
        d["dbhn"] = dsecond[2 * H :]
    return {"loss": loss.asnumpy(), "outputs": outputs.asnumpy(), "dx": dx.asnumpy(), **d}
