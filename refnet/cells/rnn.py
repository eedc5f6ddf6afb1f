"""The simple recurrent net: ``h[t+1] = f(Wxh x[t] + Whh h[t] + bh)``.

Source: Elman (1990); Manchev & Spratling, eq. 1, and after eq. 4 as corrected (the Jacobian is
``dh_t/dh_{t-1} = diag(f'(a_t)) Whh``: derivative of f, at the pre-activation, on the left).
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import clip_into, dropped
from refnet.maths.activations import Activation
from refnet.maths.numeric import Number, matmul

__all__ = ["CANDIDATE", "GATES", "OPTIONAL", "STATES", "Tape", "backward", "forward", "init"]

GATES = ("h",)
CANDIDATE = "h"
STATES = 1
OPTIONAL: tuple[str, ...] = ()


def init(hidden: int) -> Params:
    """Start values of the parameters other than Wxh and Whh: bh is zero.

    >>> init(2)["bh"].tolist()
    [0.0, 0.0]
    """
    return {"bh": np.zeros(hidden)}


class Tape(NamedTuple):
    """What the backward pass needs: x (T, B, D), a (T, B, H), h (T + 1, B, H), h[0] = h0."""

    x: Array
    a: Array
    h: Array


def forward(p: Params, x: Array, h0: Array, act: Activation, drop: Array | None = None) -> Tape:
    """Run the net over time: ``a[t] = x[t] Wxh' + bh + h[t] Whh'``, ``h[t+1] = f(a[t])``.

    Shapes: p holds Whh (H, H), Wxh (H, D), bh (H,) and the activation's own parameters;
    x (T, B, D); h0 (B, H). Any dtype; the net checks the shapes. ``drop``: factors (B, H) of the
    state in its products with Whh, or None.
    Source: Manchev & Spratling, eq. 1.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> p = {"Whh": np.array([[2.0]]), "Wxh": np.array([[1.0]]), **init(1)}
    >>> tape = forward(p, np.ones((3, 1, 1)), np.zeros((1, 1)), ACTIVATIONS["identity"])
    >>> tape.h.ravel().tolist()  # h = 2 h + 1
    [0.0, 1.0, 3.0, 7.0]

    Checked by: tests/cells/test_exact_transpose.py::test_push_equals_pull.
    """
    T, B, D = x.shape
    H = len(p["bh"])
    z = matmul(x.reshape(T * B, D), p["Wxh"].T).reshape(T, B, H) + p["bh"]
    dtype = np.result_type(z, p["Whh"], h0)
    a = np.empty_like(z, dtype)
    h = np.empty_like(z, dtype, shape=(T + 1, B, H))
    h[0] = h0
    for t in range(T):
        a[t] = z[t] + matmul(dropped(h[t], drop), p["Whh"].T)
        h[t + 1] = act.forward(a[t], p)
    return Tape(x, a, h)


def backward(
    p: Params,
    tape: Tape,
    dh: Array,
    act: Activation,
    inputs: bool = True,
    clip: Number | None = None,
    drop: Array | None = None,
) -> Params:
    """Pull state gradients back through time.

    With ``c = 0`` after the last step, for t from the last to the first::

        da[t] = f'(a[t]) (dh[t] + c);   c = da[t] Whh

    then ``dWhh = sum_t da[t]' h[t]``, ``dWxh = sum_t da[t]' x[t]``, ``dbh = sum da``,
    ``dx[t] = da[t] Wxh`` and ``dh0 = c``.

    Shapes: dh (K, B, H) is the direct gradient at the last K states, h[T-K+1] .. h[T], not
    the accumulated one. Returns the gradients of Whh, Wxh, bh, h0 (B, H), the activation's
    own parameters and, if ``inputs``, x (T, B, D). Any dtype. At a kink the derivative is
    the left-hand one. ``clip``: each entry of da[t] is brought into [-clip, clip] before it
    is used and carried, as in Vorontsov et al.'s code (the result is then not a gradient);
    "clipped" is the number of entries that this changed, ().
    Source: Werbos (1990); Manchev & Spratling, eq. 4, and after it as corrected.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> act = ACTIVATIONS["identity"]
    >>> p = {"Whh": np.array([[2.0]]), "Wxh": np.array([[1.0]]), **init(1)}
    >>> tape = forward(p, np.ones((3, 1, 1)), np.zeros((1, 1)), act)
    >>> backward(p, tape, np.ones((1, 1, 1)), act)["x"].ravel().tolist()  # dh[3]/dx[t] = 2^(2 - t)
    [4.0, 2.0, 1.0]

    Checked by: tests/cells/test_exact_transpose.py::test_push_equals_pull,
    tests/cells/test_cells.py::test_clip_inside_the_recursion.
    """
    x, a, h = tape
    T, B, H = a.shape
    first = T - len(dh)
    da = np.empty_like(a)
    carry = np.zeros_like(a, shape=(B, H))
    clipped = 0
    dact: Params = {name: np.zeros_like(p[name]) for name, *_ in act.start}
    for t in reversed(range(T)):
        g = carry + dh[t - first] if t >= first else carry
        da[t], slopes = act.backward(a[t], h[t + 1], g, p)
        dact = {name: np.asanyarray(dact[name] + slopes[name]) for name in dact}
        clipped += clip_into(da[t], clip)
        carry = matmul(da[t], p["Whh"])
        carry = dropped(carry, drop)
    rows = da.reshape(T * B, H)
    h = dropped(h, drop)
    grads = {
        "Whh": matmul(rows.T, h[:-1].reshape(T * B, H)),
        "Wxh": matmul(rows.T, x.reshape(T * B, x.shape[2])),
        "bh": rows.sum(axis=0),
        "h0": carry,
        **dact,
    }
    if clip is not None:
        grads["clipped"] = np.asarray(clipped)
    if inputs:
        grads["x"] = matmul(rows, p["Wxh"]).reshape(x.shape)
    return grads
