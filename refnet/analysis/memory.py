"""Memory of a linear recurrent net in the presence of noise.

``h[t] = W h[t-1] + v s[t] + noise`` of variance ``noise`` in every unit. The state's
covariance given the inputs is ``C = noise sum_k W^k W^k'``, and J(k) is the Fisher
information of h[t] about s[t-k]. Source: Ganguli, Huh & Sompolinsky (2008).
"""

import warnings
from functools import partial

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from refnet.analysis.spectra import spectral_radius, square
from refnet.batch import Array
from refnet.common.arguments import (
    SQUARE,
    VECTOR,
    Rule,
    array,
    count,
    finite,
    optional,
    real,
    takes,
)

_STATES = finite(
    Rule(
        partial(array, kinds="fiu"),
        (None, [1.0], np.ones((2, 3)), np.ones((2, 3, 1), complex), np.full((2, 1, 3), np.nan)),
    )
)
_EACH = finite(
    Rule(
        lambda what, value: array(what, value, ("H",), kinds="fiuc"),
        (None, [0.5], np.eye(2), np.ones(1, str), np.full(3, np.nan)),
    )
)
_INPUT = finite(Rule(VECTOR.check, (*VECTOR.wrong, np.full(3, np.inf))))
_POSITIVE = real("(0, 1e150)")


@takes(W=SQUARE, noise=_POSITIVE, horizon=optional(count()))
def noise_covariance(W: Array, noise: float = 1, horizon: int | None = None) -> Array:
    """``C = noise sum_k W^k W^k'`` (H, H), the solution of ``C = W C W' + noise I``, float64.

    ``horizon``: only the noise of that many steps, k < horizon, which is finite for every W: the
    state's covariance at that time if it was known exactly at time 0.
    Raises ValueError without a horizon for a spectral radius of 1 or more, where the sum diverges,
    and where W amplifies some directions so far that float64 does not hold C.

    >>> noise_covariance(np.array([[0.5]])).round(6).tolist()
    [[1.333333]]

    Source: Ganguli, Huh & Sompolinsky (2008).
    Checked by: tests/analysis/test_analysis.py::test_noise_covariance.
    """
    noise = float(noise)
    if horizon is not None:
        W = square("noise_covariance", W)
        total, power = np.zeros_like(W), np.eye(len(W))
        for _ in range(horizon):
            total, power = total + noise * power @ power.T, W @ power
        return np.asarray(total)
    if not below_one(W):
        raise ValueError(
            f"noise_covariance: W has the spectral radius {spectral_radius(W):.6g}, so the noise "
            "grows without end and no stationary state exists; need one below 1: scale W, such as "
            ".99 W, or give a horizon, a number of steps"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an equation that float64 does not hold
        C = np.asarray(solve_discrete_lyapunov(W.astype(np.float64), noise * np.eye(len(W))))
    C = np.where(np.isfinite(C), C, 0)
    scale = np.sqrt(np.diagonal(C).clip(noise))  # C >= noise I
    least = np.linalg.eigvalsh(C / np.outer(scale, scale)).min(initial=1)
    if least < 1e4 * len(W) * np.finfo(float).eps:  # J would have fewer than four digits
        raise ValueError(
            f"noise_covariance: W amplifies noise to {abs(C).max():.3g}, beside which float64 has "
            "lost the directions that it does not amplify; need a smaller gain between units, or "
            "a horizon, a number of steps"
        )
    return np.asarray(C)


@takes(W=SQUARE)
def below_one(W: Array) -> bool:
    """Whether the spectral radius of W (H, H) is below 1 by more than the rounding of eigenvalues,
    which for a normal matrix is some H eps (an orthogonal one's comes out on either side of 1).

    >>> below_one(np.eye(2)), below_one(0.5 * np.eye(2))
    (False, True)
    """
    return bool(spectral_radius(W) < 1 - 8 * len(W) * np.finfo(float).eps)


def _fit(function: str, W: Array, v: Array) -> None:
    if v.shape != (len(W),):
        raise ValueError(
            f"{function}: v has shape {v.shape}; need ({len(W)},), because W is {W.shape}"
        )


@takes(W=SQUARE, v=_INPUT, delays=count(0), noise=_POSITIVE, horizon=optional(count()))
def fisher_memory(
    W: Array, v: Array, delays: int, noise: float = 1, horizon: int | None = None
) -> Array:
    """``J(k) = v' W^k' C^-1 W^k v`` for k = 0 .. delays - 1, (delays,), float64.

    W (H, H) acts on columns, as in ``a = Whh h``; v (H,), the input's weights, of norm 1 by
    convention. For a normal W, J sums to 1 / noise over all delays; it can reach
    H / noise otherwise.
    ``horizon``: the state was known exactly that many steps ago, so that C sums the noise since
    then; J(k) for k < horizon is then defined for any W, falls with the horizon, and tends to
    the stationary J where that exists.
    Raises ValueError for a spectral radius of 1 or more without a horizon, for delays beyond the
    horizon, entries so large that float64 does not hold C, or shapes that do not fit.

    >>> fisher_memory(np.array([[0.5]]), np.array([1.0]), delays=3).round(6).tolist()
    [0.75, 0.1875, 0.046875]

    Source: Ganguli, Huh & Sompolinsky (2008).
    Checked by: tests/analysis/test_analysis.py::test_closed_forms,
    tests/analysis/test_analysis.py::test_finite_horizon.
    """
    _fit("fisher_memory", W, v)
    if horizon is not None and delays > horizon:
        raise ValueError(
            f"fisher_memory: delays is {delays} but the horizon {horizon}; need "
            "delays up to the horizon"
        )
    W, v = W.astype(np.float64), v.astype(np.float64)
    if horizon is not None:
        try:
            return _fisher_memory_of(W, v, delays, float(noise), horizon)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"fisher_memory: W has entries up to {abs(W).max():.3g}, with which "
                f"the noise of {horizon} steps is beyond float64; need smaller ones: "
                "a matrix whose training diverged keeps no memory"
            ) from None
    C = noise_covariance(W, noise)
    signals = np.empty((len(W), delays))
    signal = v
    for k in range(delays):
        signals[:, k] = signal
        signal = W @ signal
    return np.asarray((signals * np.linalg.solve(C, signals)).sum(axis=0))


def _fisher_memory_of(W: Array, v: Array, delays: int, noise: float, horizon: int) -> Array:
    """J(k) over ``horizon`` steps of noise, by precisions alone: where W grows, the covariance has
    lost its small directions to rounding.

    With ``A : B = (A^-1 + B^-1)^-1``, P_n the precision of a state known exactly n steps ago, and
    N_k the information of h[t] about h[t-k] from the noise after it::

        P_1 = I / noise,       P_(n+1) = (noise I + W P_n^-1 W')^-1
        N_1 = W'W / noise,     N_(k+1) = W' (N_k : I / noise) W
        J(0) = v' P_n v,       J(k) = v' (N_k : P_(n-k)) v
    """
    identity = np.eye(len(W))
    precisions = [identity / noise]
    for _ in range(horizon - 1):
        P = noise * precisions[-1]
        back = np.linalg.solve(P + W.T @ W, W.T)
        rest = identity - W @ back  # P_(n+1) = rest / noise, as a sum of squares
        precisions = [*precisions[-delays:], (rest.T @ rest + back.T @ P @ back) / noise]
    J, N = np.empty(delays), W.T @ W / noise
    for k in range(delays):
        P = precisions[-1 - k]
        J[k] = v @ (_parallel(N, P) if k else P) @ v
        if k:
            N = W.T @ _parallel(N, identity / noise) @ W
    return J


def _parallel(A: Array, B: Array) -> Array:
    """``A : B = (A^-1 + B^-1)^-1`` of positive semi-definite matrices, itself one: with
    ``X = (A + B)^-1 A``, ``(I - X)' A (I - X) + X' B X``."""
    X = np.linalg.solve(A + B, A)
    rest = np.eye(len(A)) - X
    return np.asarray(rest.T @ A @ rest + X.T @ B @ X)


@takes(W=SQUARE, v=_INPUT, noise=_POSITIVE)
def total_memory(W: Array, v: Array, noise: float = 1) -> float:
    """``J_tot = sum_k J(k)`` over all delays.

    ``sum_k W^k' C^-1 W^k`` solves a Lyapunov equation itself, so no delay is cut off.
    Raises ValueError as ``fisher_memory`` does.

    >>> round(total_memory(np.array([[0.5]]), np.array([1.0])), 6)
    1.0

    Source: Ganguli, Huh & Sompolinsky (2008).
    Checked by: tests/analysis/test_analysis.py::test_closed_forms.
    """
    _fit("total_memory", W, v)
    precision = np.linalg.inv(noise_covariance(W, noise))
    summed = solve_discrete_lyapunov(W.T.astype(np.float64), precision)
    return float(v @ summed @ v)


@takes(gain=real("(-1e150, 1e150)"), delays=count(0))
def chain_memory(gain: float, delays: int) -> Array:
    """J(k) at the head of a chain ``W = gain`` on the subdiagonal, k = 0 .. delays - 1, as long as
    the chain is: with g = gain^2, ``g^k (g - 1) / (g^(k + 1) - 1)``, and 1 / (k + 1) at g = 1.

    Source: Ganguli, Huh & Sompolinsky (2008).
    Checked by: tests/analysis/test_analysis.py::test_closed_forms.

    >>> chain_memory(1, 3).round(4).tolist()
    [1.0, 0.5, 0.3333]
    """
    k, g = np.arange(delays), float(gain) ** 2
    if g > 1:  # the same, without powers that grow
        return np.asarray((1 - 1 / g) / (1 - (1 / g) ** (k + 1)))
    return np.asarray(1 / (k + 1) if g == 1 else g**k * (g - 1) / (g ** (k + 1) - 1))


@takes(eigenvalues=_EACH, weights=_EACH, delays=count(0))
def normal_memory(eigenvalues: Array, weights: Array, delays: int) -> Array:
    """J(k) of a normal W: ``sum_i |v_i|^2 |l_i|^2k (1 - |l_i|^2)``, k = 0 .. delays - 1.

    ``eigenvalues`` l (H,), of modulus below 1; ``weights`` |v_i|^2 (H,), the squared components
    of v along the eigenvectors. They sum to |v|^2 over all delays, whatever the eigenvalues are.
    Raises ValueError for a modulus of 1 or more.
    Source: Ganguli, Huh & Sompolinsky (2008).
    Checked by: tests/analysis/test_analysis.py::test_normal_matrices.

    >>> normal_memory(np.array([0.5]), np.ones(1), 2).tolist()
    [0.75, 0.1875]
    """
    squares = abs(eigenvalues) ** 2
    if not (squares < 1).all():
        raise ValueError(
            f"normal_memory: the largest |eigenvalue| is {squares.max() ** 0.5:.6g}; "
            "need all below 1: scale W, such as .99 W"
        )
    if len(weights) != len(squares):
        raise ValueError(
            f"normal_memory: weights has shape {weights.shape}; need "
            f"{squares.shape}, as eigenvalues has"
        )
    k = np.arange(delays)[:, None]
    return np.asarray((weights * squares**k * (1 - squares)).sum(axis=1))


@takes(W=SQUARE, v=_INPUT, steps=count(0), noise=_POSITIVE)
def signal_to_noise(W: Array, v: Array, steps: int, noise: float = 1) -> Array:
    """``||W^k v||^2 / tr C_k`` for k = 0 .. steps - 1: the power of an input k steps after it
    against that of the noise of k + 1 steps, ``C_k = noise sum_(j <= k) W^j W^j'``.

    Defined for any W; an orthogonal one has ``|v|^2 / (noise H (k + 1))``, and a matrix that
    amplifies the input's direction more than the mean direction does better (Orhan's argument).
    Raises ValueError for shapes that do not fit.
    Checked by: tests/analysis/test_analysis.py::test_signal_to_noise.

    >>> signal_to_noise(np.eye(2), np.array([1.0, 0.0]), 3).round(4).tolist()
    [0.5, 0.25, 0.1667]
    """
    _fit("signal_to_noise", W, v)
    W = square("signal_to_noise", W)
    signal, power, total = v.astype(np.float64), np.eye(len(W)), 0.0
    out = np.empty(steps)
    for k in range(steps):
        total += noise * float((power * power).sum())
        out[k] = float(signal @ signal) / total
        signal, power = W @ signal, W @ power
    return out


@takes(h=_STATES, W=SQUARE, widest=optional(count(0)))
def peak_order(h: Array, W: Array, widest: int | None = None) -> tuple[Array, Array]:
    """The mean weight between units by the distance of their peaks: what a trained net's hidden
    chain looks like.

    ``h`` (T, B, H): states of the net on a batch, the first one h[1]. Units are ordered by the
    time at which their mean activity over the batch, |h|, is largest; the second result is that
    order, (H,). The first is the mean of ``W[i, j]`` over all pairs with ``rank i - rank j = d``
    for d = -widest .. widest (H - 1 if None), (2 widest + 1,). In a chain that passes activity
    on, the weights at d = 1, from a unit to the next one, stand out; symmetric ones look alike
    on both sides.
    Raises ValueError for shapes that do not fit.
    Source: Orhan & Ma (2019), Figure 4.
    Checked by: tests/analysis/test_analysis.py::test_peak_order.

    >>> chain, start = np.array([[0, 0.9], [0, 0]]), np.array([0.0, 1.0])  # unit 1 feeds unit 0
    >>> profile, order = peak_order(np.array([start, chain @ start])[:, None], chain)
    >>> profile.tolist(), order.tolist()
    ([0.0, 0.0, 0.9], [1, 0])
    """
    W = square("peak_order", W)
    if h.ndim != 3 or h.shape[2] != len(W) or 0 in h.shape:
        raise ValueError(
            f"peak_order: h has shape {h.shape}; need (T, B, H) with H = {len(W)}, "
            f"because W is {W.shape}"
        )
    H = len(W)
    widest = H - 1 if widest is None else min(widest, H - 1)
    order = np.argsort(abs(h).mean(axis=1).argmax(axis=0), kind="stable")
    ordered = W[np.ix_(order, order)]
    return np.array([np.diagonal(ordered, -d).mean() for d in range(-widest, widest + 1)]), order
