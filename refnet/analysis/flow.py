"""How a loss's gradient flows back through time: norms, singular values, exponents and bounds.

Source: Vorontsov et al., Figure 2 and eq. 5 (Pascanu et al. 2013); Manchev & Spratling, eq. 4.
Checked by: tests/test_analysis_flow.py.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.nets.gradients import state_gradients, state_jacobians
from refnet.nets.recurrent import RecurrentNet

__all__ = ["StepBounds", "gradient_norms", "jacobian_spectra", "lyapunov_exponents",
           "step_bounds"]


def gradient_norms(net: RecurrentNet, params: Params, batch: Batch, last: bool = True) -> Array:
    """``||dL/dh_t||`` for t = 0 .. T, (T + 1,): the norm over the batch of the complete gradient.

    ``last``: L is the loss of the last step alone, as in Figure 2; False takes the net's own
    loss. For an LSTM the state is (h, c). float64.
    Raises ValueError if a read-out of the last step is asked of targets for every step that are
    missing. Checked by: tests/test_analysis_flow.py::test_gradient_norms.
    """
    if last and net.readout == "every":
        net, batch = replace(net, readout="last"), batch._replace(y=batch.y[-1])
    flow = state_gradients(net, params, batch).astype(np.float64)
    return np.asarray(np.sqrt((flow * flow).sum(axis=tuple(range(1, flow.ndim)))))


def jacobian_spectra(net: RecurrentNet, params: Params, x: Array) -> Array:
    """The singular values of ``dh_T/dh_t``, largest first: (T + 1, B, S), S the size of a state.

    S is H, or 2 H for an LSTM. At t = T all are 1. They are exact only down to eps times the
    largest; ``lyapunov_exponents`` has the small ones of a long product.
    """
    return np.asarray(np.linalg.svd(state_jacobians(net, params, x), compute_uv=False))


def lyapunov_exponents(net: RecurrentNet, params: Params, x: Array) -> Array:
    """The finite-time exponents of ``dh_T/dh_0``: (B, S), largest first, in nats per step.

    The factors of the product are orthogonalised after every step and the logarithms of R's
    diagonal are summed (Benettin et al. 1980), so that exponents that differ by any amount come
    out. They equal ``log(singular value) / T`` as T grows.
    Checked by: tests/test_analysis_flow.py::test_exponents.
    """
    factors = step_jacobians(net, params, x)
    T, B, S, _ = factors.shape
    if not T:
        raise ValueError("lyapunov_exponents: x has no steps; need at least one")
    Q = np.broadcast_to(np.eye(S), (B, S, S))
    total = np.zeros((B, S))
    for t in range(T):
        Q, R = np.linalg.qr(factors[t].astype(np.float64) @ Q)
        with np.errstate(divide="ignore"):
            total += np.log(abs(np.diagonal(R, axis1=1, axis2=2)))
    return -np.sort(-total / T, axis=1)


def step_jacobians(net: RecurrentNet, params: Params, x: Array) -> Array:
    """``dh_{t+1}/dh_t`` for t = 0 .. T - 1: (T, B, S, S)."""
    T, B = x.shape[:2]
    p = {**params, "h0": net.initial_state(params, x)}
    tape = net.forward(p, x)[1]
    factors = []
    for t in range(T):
        state = tape.cell.h[t] if p["h0"].ndim == 2 else np.stack([tape.cell.h[t], tape.cell.c[t]])
        factors.append(state_jacobians(net, {**p, "h0": state}, x[t:t + 1])[0])
    size = net.hidden * (p["h0"].ndim - 1)
    return np.stack(factors) if T else np.empty((0, B, size, size))


class StepBounds(NamedTuple):
    """``bound``: eta_t = ||D_t|| ||W||; ``measured``: ||da_{t+1}/da_t||; both (T - 1, B)."""

    bound: Array
    measured: Array


def step_bounds(net: RecurrentNet, params: Params, x: Array) -> StepBounds:
    """The bound of Vorontsov et al., eq. 5, on one step's gain, beside the gain itself.

    ``da_{t+1}/da_t = W D_t`` with ``D_t = diag(f'(a_t))`` (erratum 21), for the simple cell.
    Raises ValueError for a gated cell, whose step has no such factors.
    Checked by: tests/test_analysis_flow.py::test_step_bounds.
    """
    if net.cell != "rnn":
        raise ValueError(f"step_bounds: the cell is {net.cell}; eta_t = ||D_t|| ||W|| is for the "
                         "simple cell rnn: take jacobian_spectra of any other")
    tape = net.forward(params, x)[1]
    p = net.layer.scaled(tape.p)
    a, h = tape.cell.a, tape.cell.h[1:]
    jacobians = []
    for unit in np.eye(net.hidden, dtype=a.dtype):
        jacobians.append(net.activation.backward(a, h, np.broadcast_to(unit, a.shape), p)[0])
    D = np.stack(jacobians, axis=-2)[:-1]  # row i: the pull-back of the i-th unit
    gains = np.linalg.norm(p["Whh"] @ D, 2, (-2, -1))
    return StepBounds(np.linalg.norm(D, 2, (-2, -1)) * np.linalg.norm(p["Whh"], 2), gains)
