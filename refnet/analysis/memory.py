"""Fisher memory of a linear recurrent net: how much of a past input the noisy state tells.

``h[t] = W h[t-1] + v s[t] + noise`` of variance ``noise`` in every unit. The state's
covariance given the inputs is ``C = noise sum_k W^k W^k'``, and J(k) is the Fisher
information of h[t] about s[t-k]. Source: Ganguli, Huh & Sompolinsky (2008).
"""

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from refnet.analysis.spectra import spectral_radius
from refnet.batch import Array

__all__ = ["fisher_memory", "noise_covariance", "total_memory"]


def noise_covariance(W: Array, noise: float = 1) -> Array:
    """``C = noise sum_k W^k W^k'`` (H, H), the solution of ``C = W C W' + noise I``, float64.

    Raises ValueError for a spectral radius of 1 or more, where the sum diverges.
    Checked by: tests/test_analysis.py::test_noise_covariance.
    """
    radius = spectral_radius(W)
    if not radius < 1:
        raise ValueError(f"fisher_memory: W has the spectral radius {radius:.6g}, so the noise "
                         "piles up for ever; need one below 1: scale W, such as .99 W")
    return np.asarray(solve_discrete_lyapunov(W.astype(np.float64), noise * np.eye(len(W))))


def _fit(W: Array, v: Array) -> None:
    if v.shape != (len(W),):
        raise ValueError(f"fisher_memory: v has shape {v.shape}; need ({len(W)},), because W is "
                         f"{W.shape}")


def fisher_memory(W: Array, v: Array, delays: int, noise: float = 1) -> Array:
    """``J(k) = v' W^k' C^-1 W^k v`` for k = 0 .. delays - 1, (delays,), float64.

    W (H, H) acts on columns, as in ``a = Whh h``; v (H,), the input's weights, of norm 1 by
    convention. For a normal W, J sums to 1 over all delays; it can reach H otherwise.
    Raises ValueError for a spectral radius of 1 or more, or shapes that do not fit.
    Checked by: tests/test_analysis.py::test_closed_forms.
    """
    _fit(W, v)
    C = noise_covariance(W, noise)
    signals = np.empty((len(W), delays))
    signal = v.astype(np.float64)
    for k in range(delays):
        signals[:, k] = signal
        signal = W @ signal
    return np.asarray((signals * np.linalg.solve(C, signals)).sum(axis=0))


def total_memory(W: Array, v: Array, noise: float = 1) -> float:
    """``J_tot = sum_k J(k)`` over all delays.

    ``sum_k W^k' C^-1 W^k`` solves a Lyapunov equation itself, so no delay is cut off.
    Raises ValueError as ``fisher_memory`` does.
    Checked by: tests/test_analysis.py::test_chain_orientation.
    """
    _fit(W, v)
    precision = np.linalg.inv(noise_covariance(W, noise))
    summed = solve_discrete_lyapunov(W.T.astype(np.float64), precision)
    return float(v @ summed @ v)
