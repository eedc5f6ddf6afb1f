"""Mistakes in feedforward nets."""

from typing import Any

import numpy as np

from refnet.batch import Params
from refnet.check.mistakes.base import Mistakes, changed, mistake, of_the_memory, reading
from refnet.nets.feedforward import FeedforwardNet

__all__ = ["of_the_layers"]


def of_the_layers(net: FeedforwardNet, params: Params) -> Mistakes:
    """Other matrices, biases and activations, layer by layer."""
    L, widths = net.depth, net.widths
    biases = tuple(f"b{layer}" for layer in range(1, L + 2))
    yield mistake("all biases are left out", p=changed(lambda b: 0 * b, *biases))
    square = [layer for layer in range(1, L + 2) if widths[layer] == widths[layer - 1] > 1]
    for layer in range(1, L + 2):
        W, b = f"W{layer}", f"b{layer}"
        yield mistake(f"the bias {b} is left out", p=changed(lambda v: 0 * v, b))
        if layer in square:
            label = f"{W} is transposed in the forward and backward pass"
            yield reading(label, np.transpose, np.transpose, W)
            if layer > 1:
                yield mistake(
                    f"{W} is transposed in the backward pass only", W=_at(layer, np.transpose)
                )
            else:
                yield mistake("the gradient in x takes W1 transposed", W=_at(1, np.transpose))
        elif min(widths[layer], widths[layer - 1]) > 1:
            yield of_the_memory(W, widths[layer], widths[layer - 1])
        if layer <= L:
            name = net.activation.name
            if name != "identity":
                yield mistake(
                    f"{name} is left out in layer {layer}",
                    act=_in(layer, lambda a: a),
                    act_pull=_back_in(layer),
                )
                yield mistake(f"{name}' is left out in layer {layer}", act_pull=_back_in(layer))
            yield mistake(
                f"no gradient flows below layer {layer + 1}",
                e=lambda v, s, n=layer: 0 * v if s.t == n + 1 else v,
            )
            if L > 1 and widths[layer] == widths[layer - 1]:
                yield mistake(
                    f"the gradient of {W} takes h{layer} for h{layer - 1}",
                    past=lambda v, s, n=layer: s.h[n] if s.t == n else v,
                )
    if not net.activation.start and net.activation.name not in ("identity", "oplu"):
        yield mistake(
            f"{net.activation.name} is applied to the outputs, too",
            rows=lambda v, s: s.act(v),
            each=lambda v, s: (v[0], s.act_pull(s.a[-1], s.outputs, v[1])),
        )


def _at(layer: int, change: Any) -> Any:
    return lambda v, s: change(v) if s.t == layer else v


def _in(layer: int, other: Any) -> Any:
    return lambda f, s: lambda a: other(a) if s.t == layer else f(a)


def _back_in(layer: int) -> Any:
    return lambda f, s: lambda a, h, dh: dh if s.t == layer else f(a, h, dh)
