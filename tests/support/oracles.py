"""What a correct backward pass must satisfy; each takes the pass to judge as an argument. And
``planted``, which makes a wrong one of it."""

import inspect
import re
from dataclasses import replace
from textwrap import dedent

import numpy as np

from refnet.maths.activations import ACTIVATIONS
from refnet.maths.dual import dual_array, parts
from refnet.maths.losses import counted_predictions
from refnet.nets.gradients import jvp, loss_and_gradients


def planted(function, old, new):
    """The function with a bug: with one piece of its source, however it is laid out, replaced."""
    function = inspect.unwrap(function)
    words = re.findall(r"\w+|[^\w\s]", old)
    pattern = r"\s*".join(rf",?\s*\{word}" if word in ")]}" else re.escape(word) for word in words)
    lead, trail = (re.match(r"\s*", side)[0] for side in (old, old[::-1]))
    text, count = re.subn(
        lead + pattern + trail, lambda _: new, dedent(inspect.getsource(function))
    )
    assert count == 1, old
    scope = dict(function.__globals__)
    exec(text, scope)
    return scope[function.__name__]


def dot(a, b):
    """<a, b> over the names that b has."""
    return sum((np.asarray(a[name] * b[name]).sum() for name in b), start=0)


def gap(forward, at, direction, cotangent, pulled):
    """``<w, J v> - <J' w, v>`` of a function of named arrays: exactly zero on rationals. The push
    is ``forward`` on dual numbers; ``pulled`` is what the pass to judge gives for w."""
    lifted = {name: dual_array(value, direction[name]) for name, value in at.items()}
    return (parts(forward(lifted))[1] * cotangent).sum() - dot(pulled, direction)


def push_minus_pull(case, backward=None):
    """The same for the outputs of a net."""
    net, params, batch, direction, cotangent = case
    outputs, tape = net.forward(params, batch.x, batch.mask)
    pulled = (backward or type(net).backward)(net, params, tape, cotangent)
    pushed, _ = jvp(net, params, batch, direction)
    return (pushed * cotangent).sum() - dot(pulled, direction)


def loss_push_minus_pull(case, gradients=loss_and_gradients):
    """The same for the loss itself: its tangent against <gradient, direction>."""
    net, params, batch, direction, _ = case
    _, pushed = jvp(net, params, batch, direction)
    return pushed - dot(gradients(net, params, batch).gradients, direction)


def rounding_bound(case):
    """A first-order bound on the rounding error of ``<gradient, direction>`` in floats.

    Every entry of a state, tangent or gradient is a sum of products along paths through the
    net. Replace every weight, input and cotangent by its magnitude and every f' by 1 (its
    bound, as that of |f(a)| / |a| up to 1/2): the *majorant* net, an identity net run on
    magnitudes, bounds each path sum, and an operation's rounding changes it by at most eps
    of itself. The longest path has at most n = 4 (T or depth) (H + D + C + 8) + B T
    operations. f' itself is computed at a rounded state: |f''| <= 2 for tanh, sigmoid and
    softsign, so that adds the majorant state's own error once more, whence the factor
    1 + 2 max h. |d loss / d outputs| <= 1 / divisor for the cross-entropy.
    """
    net, params, batch, direction, _ = case
    eps = float(np.finfo(np.result_type(*params.values())).eps)
    plain = replace(net, activation=ACTIVATIONS["identity"])
    majorant = {name: abs(value) for name, value in params.items() if name in plain.shapes}
    outputs, tape = plain.forward(majorant, abs(batch.x) + 0.5, batch.mask)
    _, divisor = counted_predictions(batch.mask, outputs.shape[:-1], net.reduction)
    pulled = plain.backward(majorant, tape, np.full(outputs.shape, 2 / divisor))
    size = 1 + 2 * max(abs(value).max(initial=0) for value in (outputs, tape.rows))
    if batch.y.dtype.kind == "f":
        size *= 1 + abs(outputs).max() + abs(batch.y).max()
    steps = len(batch.x) if batch.x.ndim == 3 else net.depth + 1
    widths = sum(outputs.shape) + sum(max(value.shape, default=0) for value in params.values())
    n = 4 * steps * (widths + 8) + batch.x.size
    sizes = {name: abs(value) for name, value in direction.items() if name in pulled}
    return n * eps * size * dot(pulled, sizes)
