"""A recurrent layer with its read-out, forward and, directly beneath, backward."""

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import CellTape
from refnet.nets.base import NetTape
from refnet.nets.settings import Settings


def forward(
    net: Settings, tape: NetTape, x: Array, lengths: Array | None = None
) -> tuple[Array, NetTape]:
    """The outputs, and the complete tape; ``lengths`` of the sequences, if not all of them
    have T steps.

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> outputs, _ = forward(net, net.forward(params, np.ones((3, 1, 1)))[1], np.ones((3, 1, 1)))
    >>> outputs.shape
    (1, 3)
    """
    p = tape.p
    x = net.embedded(p, x) if x.ndim == 2 else x
    h0, (T, B), H = net.initial_state(p, x), x.shape[:2], net.width
    steps: Array | int | None = None
    if net.readout == "last":
        steps = lengths if lengths is not None else T or np.zeros(B, int)
    outputs: list[Array] = []
    rows = np.empty((0, H))

    def read(first: int, part: CellTape) -> None:
        nonlocal rows
        if steps is None:
            states = part.h[1:].reshape(-1, H)
            outputs.append(read_out(net, p, states))
            rows = states if net.checkpoint != "sqrt" else rows
        elif isinstance(steps, int):
            rows = part.h[-1].copy()  # a view would hold the whole tape
        else:
            here = steps  # of one segment, which has every end
            if len(part.h) <= T:
                here = np.minimum(np.maximum(steps, first) - first, len(part.h) - 1)
            last = part.h[here, np.arange(B)]
            rows = np.where((steps > first)[:, None], last, rows) if first else last

    cell = net.layer.forward(p, x, h0, read, isinstance(steps, int), tape.lengths)
    result = (
        np.concatenate(outputs).reshape(T, B, net.outputs)
        if steps is None
        else read_out(net, p, rows)
    )
    return result, NetTape(*tape[:4], cell, rows, steps, result.shape, *tape[8:])


def backward(
    net: Settings,
    tape: NetTape,
    doutputs: Array,
    inputs: bool,
    ended: Array | None = None,
    final: Params | None = None,
) -> Params:
    """What the layer's backward pass gives, and the gradients of Why and by; ``ended`` as
    for ``Layer.backward``, ``final`` as for ``backward``.

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> outputs, tape = net.forward(params, np.ones((3, 1, 1)))
    >>> backward(net, tape, outputs, inputs=False)["Why"].shape
    (3, 2)
    """
    p, steps, H = tape.p, tape.steps, net.width
    T, B = tape.cell.x.shape[:2]
    flat = doutputs.reshape(T * B if steps is None else B, net.outputs)
    sums: list[Array] = []
    drows = flat if steps is None else net.thinned(net.product(flat, p["Why"]), 0)

    def pull(first: int, part: CellTape) -> Array:
        end = first + len(part.h) - 1
        if steps is None:
            dpart = flat[first * B : end * B]
            if net.checkpoint != "none" or ended is not None:
                states = net.thinned(part.h[1:].reshape(-1, H), 0)
                sums.append(net.product(dpart.T, states))
            dh = net.thinned(net.product(dpart, p["Why"]), 0)
            return dh.reshape(end - first, B, H)
        if isinstance(steps, int) or tape.lengths is not None:  # kernels take it at each end
            if end < T:
                done = np.reshape(steps <= end, (-1, 1))
                return np.where(done, drows, np.zeros_like(drows))[None]
            return drows[None]
        here = np.flatnonzero((first < steps) & (steps <= end))
        earliest = steps[here].min(initial=end)
        dh = np.zeros_like(drows, shape=(end - earliest + 1, B, H))
        dh[steps[here] - earliest, here] = drows[here]
        return dh

    symbols = tape.symbols
    wanted = inputs or symbols is not None
    grads = net.layer.backward(
        p, tape.cell, pull, wanted, ended, tape.lengths, (final or {}).get("h0")
    )
    if symbols is not None:
        grads["Wxh.E"] = columns(symbols, grads.pop("x"), net.inputs)
    rows = net.thinned(tape.rows, 0)
    grads["Why"] = sum(sums[1:], sums[0]) if sums else net.product(flat.T, rows)
    by_sequence = np.add.reduce(doutputs) if steps is None else doutputs
    grads["by"] = np.asanyarray(np.add.reduce(by_sequence))
    if steps is not None and not isinstance(steps, int) and not steps.all():
        h0 = grads["h0"].copy()
        h0[(0,) * (h0.ndim - 2)][:, :H] += np.where((steps == 0)[:, None], drows, 0)
        grads["h0"] = h0
    return grads


def read_out(net: Settings, p: Params, rows: Array, layer: int = 0) -> Array:
    """The outputs (N, C) from the last layer's states, ``rows`` (N, H).

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> read_out(net, params, np.ones((5, 2))).shape
    (5, 3)
    """
    return net.product(net.thinned(rows, layer), p["Why"].T) + p["by"]


def columns(symbols: Array, dx: Array, inputs: int) -> Array:
    """The gradient of an embedding (W, D) from those of its columns, dx (T, B, W), by symbol: the
    pullback of ``embedded``.

    >>> columns(np.array([[1], [1]]), np.array([[[2.0]], [[3.0]]]), 2).tolist()
    [[0.0, 5.0]]

    Checked by: tests/nets/test_symbols.py.
    """
    flat, dx = symbols.ravel(), dx.reshape(symbols.size, dx.shape[-1])
    if dx.dtype.char in "fd":  # the same sums, in the same order, as below, but faster
        from scipy.sparse import csr_array  # slow to import

        ones = np.ones(len(flat), dx.dtype)
        return np.asarray(
            (csr_array((ones, flat, np.arange(len(flat) + 1)), (len(flat), inputs)).T @ dx).T
        )
    total = np.zeros_like(dx, shape=(inputs, dx.shape[1]))
    np.add.at(total, flat, dx)
    return total.T
