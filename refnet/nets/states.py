"""Gradients and Jacobians between the states of a recurrent net, one step at a time.

A state is h, or (h, c) for an LSTM, whose projected h has zeros up to the width of c; that of a
stack has those of all layers, the lowest first.
Every step is pulled back by the cell's own backward pass.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.cells.common import CellTape
from refnet.common.arguments import Rule, admit, instance, takes
from refnet.maths.numeric import matmul
from refnet.nets.base import NetTape
from refnet.nets.gradients import BATCH, scored
from refnet.nets.padding import emptied, ends
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, masked, turned


def _forward(what: str, net: Any) -> None:
    RECURRENT.check(what, net)
    if isinstance(net, StackedNet) and net.bidirectional:
        raise ValueError(
            f"{what} is bidirectional; need one direction, because its cells run "
            "against each other and no state at t leads to the one at t + 1: take a "
            "cell by itself, net.every_cell['_l0'] with net.of(params, '_l0')"
        )


def _sequences(what: str, x: Any) -> None:
    admit(
        what.partition(":")[0],
        {"x": x},
        {"x": (("T", "B", "D"),)},
        {},
        "the inputs of a recurrent net, T steps of B sequences",
    )
    if x.dtype.kind in "fc" and not np.isfinite(x).all():
        raise ValueError(
            f"{what} has entries that are not finite; need finite numbers: see "
            "np.argwhere(~np.isfinite(x))"
        )


RECURRENT = instance(RecurrentNet, "a RecurrentNet or a StackedNet")
FORWARD = Rule(_forward, (*RECURRENT.wrong, StackedNet(1, 2, 1, bidirectional=True)))
SEQUENCES = Rule(
    _sequences, (None, [1.0], np.ones((2, 3)), np.full((2, 1, 3), np.nan), np.ones((2, 1, 3), str))
)


def _states(tape: CellTape) -> Array:
    """All states of a cell's tape: (T + 1, P, B, H), P the parts of a state, h or h and c."""
    if getattr(tape, "c", None) is None:
        return tape.h[:, None]
    states = np.zeros_like(tape.c, shape=(len(tape.c), 2, *tape.c.shape[1:]))
    states[:, 0, :, : tape.h.shape[2]], states[:, 1] = tape.h, tape.c
    return states


def _by_sequence(tape: NetTape) -> NetTape:
    """The tape, its states and steps in the batch's order of the sequences."""
    if tape.place is None:
        return tape
    cells: dict[str, Any] = {**tape.cells}
    for suffix, cell in cells.items():
        cells[suffix] = cell._make([None if part is None else part[:, tape.place] for part in cell])
    steps = tape.steps[tape.place] if isinstance(tape.steps, np.ndarray) else tape.steps
    return tape._replace(cell=cells, steps=steps)


def _pull(
    cell: RecurrentNet, p: Params, x: Array, state: Array, e: Array, inputs: bool
) -> tuple[Array, Array | None]:
    """The pull-back of ``e`` at the state after one step, x (1, B, D), to ``state`` before it, both
    (P, B, H), and if wanted to x."""
    tape = cell.layer.run(p, x, state if len(state) > 1 else state[0])
    dh = e[:1, :, : cell.width]
    grads = cell.layer.pull(p, tape, (dh, e[1]) if len(state) > 1 else dh, inputs)
    return grads["h0"].reshape(state.shape), grads.get("x")


@takes(net=RECURRENT, batch=BATCH)
def state_gradients(net: RecurrentNet, params: Params, batch: Batch) -> Array:
    """``dL/dh_t``, complete, for t = 0 .. T: (T + 1, B, H), or (T + 1, P, B, H) where the net has
    P > 1 states of H numbers: h and c of an LSTM, those of every cell of a stack in the order of
    ``net.every_cell``.

    Every later step and every layer above is counted in. A cell that runs backward in time has its
    states in its own order, the one that it starts from first. Raises ValueError as
    ``loss_and_gradients`` does.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> state_gradients(net, params, Batch(np.ones((5, 2, 2)), np.array([0, 2]))).shape
    (6, 2, 4)

    Checked by: tests/nets/test_dropout.py::test_gradients_at_the_states,
    tests/nets/test_stacked.py::test_state_gradients.
    """
    if net.noise is not None or batch.final:
        raise ValueError(
            "state_gradients: need a net without noise, and a batch without cotangents of the "
            "final states"
        )
    net = replace(net, checkpoint="none")
    outputs, tape = net.forward(params, batch.x, batch.mask)
    doutputs, tape = scored(net, outputs, batch)[1], _by_sequence(tape)
    T, B = batch.x.shape[:2]
    ended = ends(doutputs, tape.steps)
    steps = np.full(B, T if tape.steps is None else tape.steps)
    d = (
        doutputs
        if net.readout == "none"
        else matmul(doutputs.reshape(-1, net.outputs), tape.p["Why"])
    )
    last = net.readout == "last"
    if not last:
        d = masked(d.reshape(T, B, d.shape[-1]), steps)
    flows: dict[str, Array] = {}
    for number, layer in reversed(list(enumerate(net.cells))):
        below: list[Array] = []
        for n, (suffix, cell) in enumerate(layer.items()):
            part = tape.cells[suffix]
            part = part if ended is None else emptied(part, ended)
            p = cell.layer.scaled(net.of(tape.p, suffix))
            states = _states(part)
            flow = np.zeros_like(states)
            direct = d[..., n * cell.width : (n + 1) * cell.width]
            if last:
                flow[steps, 0, np.arange(B), : cell.width] = direct
            else:
                flow[1:, 0, :, : cell.width] = turned(direct, steps, suffix)
            dx = np.zeros_like(part.x)
            for t in reversed(range(T)):
                x, e = part.x[t : t + 1], flow[t + 1]
                back, through = _pull(cell, p, x, states[t], e, number > 0)
                flow[t] = flow[t] + back
                dx[t : t + 1] = 0 if through is None else through
            flows[suffix] = flow
            below.append(turned(dx, steps, suffix))
        last, d = False, np.asanyarray(sum(below[1:], below[0]))
    whole = np.concatenate([flows[suffix] for suffix in net.every_cell], axis=1)
    return whole if whole.shape[1] > 1 else whole[:, 0]


def _steps_back(
    net: RecurrentNet, params: Params, x: Array
) -> tuple[Array, Callable[[int, Array], Array]]:
    """An identity matrix (S, S) for each sequence, S the size of a state; and a function: t and
    rows (B, R, S) at the state t + 1 give these pulled back to the state t."""
    net = replace(net, checkpoint="none")
    tape = net.forward(params, x)[1]
    cells, tapes = net.every_cell, tape.cells
    p = {suffix: cell.layer.scaled(net.of(tape.p, suffix)) for suffix, cell in cells.items()}
    states = {suffix: _states(tapes[suffix]) for suffix in cells}
    B, H = x.shape[1], net.hidden
    parts = next(iter(states.values())).shape[1]
    P = parts * len(cells)

    def back(t: int, rows: Array) -> Array:
        R = rows.shape[1]  # one example a row: (B, R) pairs as a batch of B R
        e = np.moveaxis(rows.reshape(B * R, P, H), 1, 0).copy()
        for number, suffix in reversed(list(enumerate(cells))):
            rank = slice(number * parts, (number + 1) * parts)
            e[rank], dx = _pull(
                cells[suffix],
                p[suffix],
                np.repeat(tapes[suffix].x[t : t + 1], R, axis=1),
                np.repeat(states[suffix][t], R, axis=1),
                e[rank],
                number > 0,
            )
            if dx is not None:
                below = e[rank.start - parts, :, : dx.shape[2]]
                below[...] = below + dx[0]
        return np.moveaxis(e, 0, 1).reshape(B, R, P * H)

    start = np.zeros((B, P * H, P * H), states[next(iter(cells))].dtype)
    start[:] = np.eye(P * H, dtype=int)
    return start, back


@takes(net=FORWARD, x=SEQUENCES)
def step_jacobians(net: RecurrentNet, params: Params, x: Array) -> Array:
    """``dh_{t+1}/dh_t`` for t = 0 .. T - 1: (T, B, S, S), the factors of ``state_jacobians``.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3, activation="identity")
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> factors = step_jacobians(net, params, np.zeros((3, 1, 2)))
    >>> bool((factors == params["Whh"]).all())
    True

    Checked by: tests/analysis/test_analysis_theory.py::test_exponents.
    """
    start, back = _steps_back(net, params, x)
    return (
        np.stack([back(t, start) for t in range(len(x))])
        if len(x)
        else np.empty((0, *start.shape), start.dtype)
    )


@takes(net=FORWARD)
def state_jacobians(net: RecurrentNet, params: Params, x: Array) -> Array:
    """``J[t] = dh_T / dh_t``, (T + 1, B, S, S): the products that vanish or explode.

    S is H; 2 H for an LSTM, whose state is (h, c); and the sum over the layers of a stack. Each
    row of J is pulled back through one step at a time, so J[T] = I and
    ``J[t] = J[t + 1] diag(f'(a[t])) Whh`` for the simple net. Raises ValueError for a net that runs
    in both directions.
    Source: Manchev & Spratling, the formula after eq. 4, as corrected (erratum 2).

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3, activation="identity")
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> J = state_jacobians(net, params, np.zeros((3, 1, 2)))
    >>> bool(np.allclose(J[1, 0], params["Whh"] @ params["Whh"]))
    True

    Checked by: tests/nets/test_gradients.py::test_state_jacobians,
    tests/nets/test_stacked.py::test_state_jacobians.
    """
    net.admit("state_jacobians", params, x)
    start, back = _steps_back(net, params, x)
    products = [start]
    for t in reversed(range(len(x))):
        products.append(back(t, products[-1]))
    return np.stack(products[::-1])
