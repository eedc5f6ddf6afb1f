"""Mistakes in feedforward nets, layer by layer.

They have no program (``refnet.check.programs``): of what is not here, only mistakes in the loss are
named.

Checked by: tests/check/test_mistake_names.py.
"""

from refnet.batch import Params
from refnet.check.mistakes.base import Mistakes, mistake, of_the_memory, reading
from refnet.nets.feedforward import FeedforwardNet

__all__ = ["of_the_layers"]


def of_the_layers(net: FeedforwardNet, params: Params) -> Mistakes:
    """Mistakes in the matrices, biases and activations, layer by layer."""
    L, widths, act = net.depth, net.widths, net.activation.name
    biases = [f"b{layer}" for layer in range(1, L + 2)]
    yield reading("all biases are left out", " ".join(biases), "0 * w")
    for layer, b in enumerate(biases, 1):
        W, here, size, below = f"W{layer}", f"s.t == {layer}", widths[layer], widths[layer - 1]
        yield reading(f"the bias {b} is left out", b, "0 * w")
        if size == below > 1:
            yield reading(f"{W} is transposed in the forward and backward pass", W, "w.T", "w.T")
            yield mistake(
                f"{W} is transposed in the backward pass only"
                if layer > 1
                else "the gradient in x takes W1 transposed",
                W=f"v.T if {here} else v",
            )
        elif min(size, below) > 1:
            yield of_the_memory(W, size, below)
        if layer > L:
            continue
        if act != "identity":
            slope = f"dh if {here} else f(a, h, dh)"
            yield mistake(
                f"{act} is left out in layer {layer}", act=f"a if {here} else f(a)", act_pull=slope
            )
            yield mistake(f"{act}' is left out in layer {layer}", act_pull=slope)
        yield mistake(
            f"no gradient flows below layer {layer + 1}", e=f"0 * v if s.t == {layer + 1} else v"
        )
        if L > 1 and size == below:
            yield mistake(
                f"the gradient of {W} takes h{layer} for h{layer - 1}",
                past=f"s.h[{layer}] if {here} else v",
            )
    if not net.activation.start and not net.activation.pairs and act != "identity":
        yield mistake(
            f"{act} is applied to the outputs, too",
            rows="s.act(v)",
            each="(v[0], s.act_pull(s.a[-1], s.outputs, v[1]))",
        )
