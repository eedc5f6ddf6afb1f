"""Penalties of what a recurrent net does on a batch, not of its matrices alone: the norms of its
states, and how a gradient's norm changes from step to step.

Each takes a net of one layer in one direction, its parameters and a batch, and gives a value and
its gradients by the names of the parameters, for ``loss_and_gradients(penalty=...)``.
Checked by: tests/nets/test_regularizers.py.
"""

from dataclasses import replace

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.cells import CELLS
from refnet.common.arguments import takes
from refnet.maths.linalg import eye
from refnet.maths.numeric import alike, divided, matmul, nonpositive, sqrt, times
from refnet.nets.gradients import BATCH
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import RECURRENT, state_gradients


def _norms(rows: Array) -> tuple[Array, Array]:
    """The Euclidean norms of rows (..., N), as (..., 1), and the rows of length 1; of a row of
    zeros 0, its subgradient."""
    square = np.asanyarray((rows * rows).sum(axis=-1))[..., None]
    zero = nonpositive(square)
    norm = sqrt(np.where(zero, alike(np.ones(()), square), square))
    return np.where(zero, norm * 0, norm), np.where(zero, rows * 0, rows / norm)


def _admit(where: str, net: RecurrentNet, params: Params, batch: Batch) -> None:
    net.admit(where, params, batch.x, batch.mask)
    if isinstance(net, StackedNet):
        raise ValueError(f"{where}: the net has several layers or directions; need one of each")


@takes(net=RECURRENT, batch=BATCH)
def norm_stabilizer(net: RecurrentNet, params: Params, batch: Batch) -> tuple[Array, Params]:
    """The mean of ``(||h_t|| - ||h_(t-1)||)^2`` over all steps t = 1 .. T that count.

    h is the cell's state, of an LSTM the one that is read out. At a state of zeros the norm's
    gradient is taken as 0. Any numbers with roots. Raises ValueError for several layers or
    directions.
    Source: Krueger & Memisevic (2016).

    >>> net = RecurrentNet(1, 2, 1, activation="identity")
    >>> params = {**net.init(np.random.default_rng(0), np.float64), "Wxh": np.array([[3.0], [4.0]])}
    >>> value, _ = norm_stabilizer(net, params, Batch(np.ones((1, 1, 1)), np.zeros(1, int)))
    >>> float(value)
    25.0

    Checked by: tests/nets/test_regularizers.py::test_norm_stabilizer.
    """
    _admit("norm_stabilizer", net, params, batch)
    every = replace(net, readout="every", outputs=net.width, loss="none", reduction="sum")
    if net.noise is not None:
        every = replace(every, noise=replace(net.noise, outputs={}))
    dtype = params["by"].dtype
    read = {
        **params,
        "Why": eye(net.width, dtype),
        "by": np.zeros_like(params["by"], shape=net.width),
    }
    states, tape = every.forward(read, batch.x, batch.mask)
    start = net.initial_state(params, states)
    start = (start if start.ndim == 2 else start[0])[None, :, : net.width]
    norms, units = _norms(np.concatenate([start, states]))
    change = norms[1:] - norms[:-1]
    counts = np.ones(batch.x.shape[:2], bool) if batch.mask is None else batch.mask
    change, count = np.where(counts[..., None], change, change * 0), max(int(counts.sum()), 1)
    value = divided(np.asanyarray((change * change).sum(), change.dtype), count)
    slope = divided(2 * change, count)
    d = np.concatenate([-slope[:1], slope])
    d[1:-1] = d[1:-1] - slope[1:]
    d = d * units
    grads = every.backward(read, tape, d[1:], inputs=False)
    grads = {name: grads[name] for name in params if name in grads and name not in ("Why", "by")}
    if "h0" in grads:
        grads["h0"] = h0 = np.array(grads["h0"])
        part = h0[0] if h0.ndim > 1 and CELLS[net.cell].STATES == 2 else h0
        part[..., : net.width] += d[0] if part.ndim == 2 else d[0].sum(axis=0)
    return value, grads


@takes(net=RECURRENT, batch=BATCH)
def vanishing_gradients(net: RecurrentNet, params: Params, batch: Batch) -> tuple[Array, Params]:
    """``1 / B sum_t (||g_(t+1) J_t|| / ||g_(t+1)|| - 1)^2``, g_t = dL/da_t, a the pre-activations.

    ``J_t = da_(t+1)/da_t = W D_t``. The gradient, in Whh alone, is the immediate one: g and a count
    as constants. Steps without a gradient do not count. Any numbers with roots. Raises ValueError
    for another cell than rnn, whose step is no W D, for several layers or directions, and for
    noise or zoneout.
    Source: Pascanu, Mikolov & Bengio (2013), eqs. 9, 10.

    >>> net = RecurrentNet(1, 2, 1, activation="identity", loss="squared_error")
    >>> params = {**net.init(np.random.default_rng(0), np.float64), "Whh": np.diag([0.5, 0.5])}
    >>> batch = Batch(np.ones((3, 1, 1)), np.zeros((1, 1)))
    >>> value, grads = vanishing_gradients(net, params, batch)  # 2 steps, of ratio 1/2
    >>> round(float(value), 9), bool((np.diag(grads["Whh"]) < 0).all())
    (0.5, True)

    Checked by: tests/nets/test_regularizers.py::test_vanishing_gradients.
    """
    _admit("vanishing_gradients", net, params, batch)
    if net.cell != "rnn" or net.zoneout or net.noise is not None:
        raise ValueError(
            f"vanishing_gradients: the net has cell {net.cell}, zoneout {net.zoneout} and noise "
            f"{net.noise}; need cell rnn, and neither of the others"
        )
    plain = replace(net, checkpoint="none", backend="reference")
    tape = plain.forward(params, batch.x, batch.mask)[1]
    p, a, h = plain.layer.scaled(tape.p), tape.cell.a, tape.cell.h[1:]

    def through(rows: Array, steps: slice) -> Array:
        return plain.layer.activation.backward(a[steps], h[steps], rows, p)[0]

    g = through(state_gradients(plain, params, batch)[1:], slice(None))[1:]
    if g.dtype.kind == "f":  # the squares of vanishing ones underflow; their ratio stays
        largest = abs(g).max(axis=-1, keepdims=True, initial=0)
        g = g / np.where(largest == 0, 1, largest)
    before, flat = slice(len(a) - 1), g.reshape(-1, net.hidden)
    back = through(matmul(flat, p["Whh"]).reshape(g.shape), before)
    (length, _), (carried, unit) = _norms(g), _norms(back)
    none = nonpositive(length)
    length, B = np.where(none, length + 1, length), max(a.shape[1], 1)
    off = np.where(none, length * 0, carried / length - 1)
    value = divided(np.asanyarray((off * off).sum(), off.dtype), B)
    d = through(divided(2 * off * unit, B * length), before)  # D is symmetric
    return value, {"Whh": times(net.gain, matmul(flat.T, d.reshape(flat.shape)))}
