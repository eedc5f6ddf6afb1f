"""How a loss's gradient flows back through time: norms, singular values, exponents and bounds.

Source: Vorontsov et al., Figure 2 and eq. 5 (Pascanu et al. 2013); Manchev & Spratling, eq. 4.
Checked by: tests/analysis/test_analysis_theory.py.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.common.arguments import FLAG, Rule, admit_mask, count, optional, takes
from refnet.nets.gradients import BATCH
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import (
    FORWARD,
    RECURRENT,
    SEQUENCES,
    state_gradients,
    state_jacobians,
    step_jacobians,
)


def _one_layer(what: str, net: Any) -> None:
    FORWARD.check(what, net)
    if isinstance(net, StackedNet):
        raise ValueError(
            f"{what} has {net.layers} layers; need one, whose step is W D_t: take a "
            "layer by itself, net.every_cell['_l0'] with net.of(params, '_l0'), or "
            "jacobian_spectra of all"
        )
    if net.cell != "rnn":
        raise ValueError(
            f"{what} has the cell {net.cell}; eta_t = ||D_t|| ||W|| is for the simple "
            "cell rnn: take jacobian_spectra of any other"
        )


_ONE = Rule(_one_layer, (*FORWARD.wrong, StackedNet(1, 2, 1)))


@takes(net=RECURRENT, batch=BATCH, last=FLAG)
def gradient_norms(net: RecurrentNet, params: Params, batch: Batch, last: bool = True) -> Array:
    """``||dL/dh_t||`` for t = 0 .. T, (T + 1,): the norm over the batch of the complete gradient.

    ``last``: L is the loss of each sequence's last step alone, as in Figure 2; False takes the
    net's own loss. For an LSTM the state is (h, c), for a stack that of all its cells (those that
    run backward in time count their own steps). float64.

    >>> net = RecurrentNet(2, 4, 3, activation="identity")
    >>> params = net.init(np.random.default_rng(0), np.float64, recurrent="orthogonal")
    >>> norms = gradient_norms(net, params, Batch(np.ones((5, 2, 2)), np.array([0, 2])))
    >>> bool(np.allclose(norms, norms[-1]))
    True

    Raises ValueError as ``loss_and_gradients`` does.
    Checked by: tests/analysis/test_analysis_theory.py::test_gradient_norms.
    """
    if last and net.readout != "last":
        shape = np.shape(batch.x)[:2]
        mask = np.ones(shape, bool) if batch.mask is None else batch.mask
        admit_mask("gradient_norms", mask, shape)
        steps = np.arange(1, len(mask) + 1)[:, None]
        batch = batch._replace(mask=steps == last_steps(mask))
    flow = state_gradients(net, params, batch).astype(np.float64)
    return np.asarray(np.sqrt((flow * flow).sum(axis=tuple(range(1, flow.ndim)))))


@takes(net=FORWARD, x=SEQUENCES)
def jacobian_spectra(net: RecurrentNet, params: Params, x: Array) -> Array:
    """The singular values of ``dh_T/dh_t``, largest first: (T + 1, B, S), S the size of a state.

    S is H, or 2 H for an LSTM; of a stack the sum over its layers. At t = T all are 1. float64;
    exact only down to eps times the largest: ``lyapunov_exponents`` has the small ones of a long
    product. Raises ValueError for a net that runs in both directions.
    Checked by: tests/analysis/test_analysis_theory.py::test_exponents.

    >>> net = RecurrentNet(2, 4, 3, activation="identity")
    >>> params = net.init(np.random.default_rng(0), np.float64, recurrent="orthogonal")
    >>> jacobian_spectra(net, params, np.ones((5, 1, 2)))[0].round(9).tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    jacobians = state_jacobians(net, params, x).astype(np.float64)
    return np.asarray(np.linalg.svd(jacobians, compute_uv=False))


@takes(net=FORWARD, x=SEQUENCES)
def lyapunov_exponents(net: RecurrentNet, params: Params, x: Array) -> Array:
    """The finite-time exponents of ``dh_T/dh_0``: (B, S), largest first, in nats per step.

    The factors of the product are orthogonalised after every step and the logarithms of R's
    diagonal are summed (Benettin et al. 1980), so that exponents that differ by any amount come
    out. They equal ``log(singular value) / T`` as T grows.

    >>> net = RecurrentNet(1, 2, 1, activation="identity")
    >>> params = {**net.init(np.random.default_rng(0), np.float64), "Whh": np.diag([2.0, 0.5])}
    >>> lyapunov_exponents(net, params, np.zeros((9, 1, 1))).round(6).tolist()
    [[0.693147, -0.693147]]

    Checked by: tests/analysis/test_analysis_theory.py::test_exponents.
    """
    return -np.sort(-_growth("lyapunov_exponents", net, params, x).mean(axis=0), axis=1)


def _growth(function: str, net: RecurrentNet, params: Params, x: Array) -> Array:
    """The logarithms of R's diagonal at every step: (T, B, S)."""
    factors = step_jacobians(net, params, x)
    T, B, S, _ = factors.shape
    if not T:
        raise ValueError(f"{function}: x has no steps; need at least one")
    Q = np.broadcast_to(np.eye(S), (B, S, S))
    growth = np.empty((T, B, S))
    for t in range(T):
        Q, R = np.linalg.qr(factors[t].astype(np.float64) @ Q)
        with np.errstate(divide="ignore"):
            growth[t] = np.log(abs(np.diagonal(R, axis1=1, axis2=2)))
    return growth


class LyapunovSpectrum(NamedTuple):
    """``exponents``, largest first, their standard ``errors``, and the ``shift`` that they would
    have if the first half of the steps counted were part of the transient, too; each (B, S),
    float64, in nats per step."""

    exponents: Array
    errors: Array
    shift: Array


@takes(net=FORWARD, x=SEQUENCES, transient=optional(count(0)), blocks=count(2))
def lyapunov_spectrum(
    net: RecurrentNet, params: Params, x: Array, transient: int | None = None, blocks: int = 20
) -> LyapunovSpectrum:
    """The Lyapunov exponents of the states that x (T, B, D) drives, with their errors.

    As ``lyapunov_exponents``, but over the steps after the ``transient`` alone, in which states and
    directions settle: by default a tenth of T, or up to ``blocks`` - 1 steps more, so that the rest
    makes equal blocks. ``errors`` are those of the mean of the blocks' means, right where a block
    is much longer than the growth is correlated: they do not grow with fewer blocks then. (The
    sequences are independent, so their spread is another estimate.) After the transient ``shift``
    has the size of the errors; if it is several times as large, the transient is too short. At an
    exponent of -inf, which an uninvertible step makes, both are nan.

    Raises ValueError if the steps after the transient do not fill the blocks.
    Source: Benettin et al. (1980); Schmeiser (1982) for the blocks; Geweke (1992) for halves.

    >>> net = RecurrentNet(1, 2, 1, activation="identity")
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> params["Whh"] = np.array([[2, 1], [0, 0.5]])
    >>> spectrum = lyapunov_spectrum(net, params, np.zeros((200, 1, 1)))  # log 2 and -log 2
    >>> spectrum.exponents.round(6).tolist(), bool((spectrum.errors < 1e-6).all())
    ([[0.693147, -0.693147]], True)

    Checked by: tests/analysis/test_lyapunov.py.
    """
    T = len(x)
    transient = T // 10 if transient is None else transient
    length = (T - transient) // blocks
    if length < 1:
        raise ValueError(
            f"lyapunov_spectrum: x has {T} steps, {transient} of them transient; need at least "
            f"{blocks} more, one a block: pass a longer x, or fewer blocks"
        )
    growth = _growth("lyapunov_spectrum", net, params, x)[T - blocks * length :]
    with np.errstate(invalid="ignore"):
        means = growth.reshape(blocks, length, *growth.shape[1:]).mean(axis=1)
        exponents, errors = means.mean(axis=0), means.std(axis=0, ddof=1) / blocks**0.5
        shift = growth[len(growth) // 2 :].mean(axis=0) - exponents
    order = np.argsort(-exponents, axis=1)
    return LyapunovSpectrum(
        *(np.take_along_axis(part, order, axis=1) for part in (exponents, errors, shift))
    )


class StepBounds(NamedTuple):
    """``bound``: ||D_t|| ||W||; ``measured``: ||da_{t+1}/da_t||; both (T - 1, B), float64."""

    bound: Array
    measured: Array


@takes(net=_ONE, x=SEQUENCES)
def step_bounds(net: RecurrentNet, params: Params, x: Array) -> StepBounds:
    """The bound of Vorontsov et al., eq. 5, on one step's gain, beside the gain itself.

    ``da_{t+1}/da_t = W D_t`` with ``D_t = diag(f'(a_t))`` (erratum 21), for the simple cell.
    Raises ValueError for a gated cell or several layers, whose step has no such factors.

    >>> net = RecurrentNet(1, 2, 1, activation="identity")
    >>> params = {**net.init(np.random.default_rng(0), np.float64), "Whh": np.diag([2.0, 0.5])}
    >>> found = step_bounds(net, params, np.zeros((3, 1, 1)))
    >>> found.bound.tolist(), found.measured.tolist()
    ([[2.0], [2.0]], [[2.0], [2.0]])

    Checked by: tests/analysis/test_analysis_theory.py::test_step_bounds.
    """
    tape = replace(net, checkpoint="none", backend="reference").forward(params, x)[1]
    p = net.layer.scaled(tape.p)
    a, h = tape.cell.a, tape.cell.h[1:]
    jacobians = []
    for unit in np.eye(net.hidden, dtype=a.dtype):
        jacobians.append(net.layer.activation.backward(a, h, np.broadcast_to(unit, a.shape), p)[0])
    # row i of D: the pull-back of the i-th unit
    D, W = np.stack(jacobians, axis=-2)[:-1].astype(np.float64), p["Whh"].astype(np.float64)
    return StepBounds(
        np.linalg.norm(D, 2, (-2, -1)) * np.linalg.norm(W, 2), np.linalg.norm(W @ D, 2, (-2, -1))
    )
