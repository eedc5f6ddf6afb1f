"""Lyapunov spectra whose exponents, and the spread of whose estimates, are known."""

import numpy as np
import pytest
from numpy.random import default_rng

from refnet.analysis import flow
from refnet.analysis.flow import lyapunov_exponents, lyapunov_spectrum
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.oracles import planted

EPS = np.finfo(float).eps


def linear(W):
    net = RecurrentNet(1, len(W), 1, activation="identity")
    return net, {**net.init(default_rng(0), np.float64), "Whh": W}


def test_a_linear_net_has_the_logarithms_of_its_eigenvalues():
    """Of a matrix that is not normal, past the transient; of an orthogonal one without an error."""
    eigenvalues = np.array([2.0, -1.0, 0.5, 0.1])
    V = default_rng(1).normal(size=(4, 4))
    net, params = linear(V @ np.diag(eigenvalues) @ np.linalg.inv(V))
    spectrum = lyapunov_spectrum(net, params, np.zeros((160, 1, 1)), transient=60)
    assert abs(spectrum.exponents - np.log(abs(eigenvalues))).max() < 1e-12
    assert max(abs(spectrum.errors).max(), abs(spectrum.shift).max()) < 1e-12
    early = lyapunov_spectrum(net, params, np.zeros((160, 1, 1)), transient=0)
    assert abs(early.exponents - np.log(abs(eigenvalues))).max() > 1e-4
    assert abs(early.shift).max() > 1e-4
    Q = np.linalg.qr(V)[0]
    spectrum = lyapunov_spectrum(*linear(Q / 2), np.zeros((40, 1, 1)))
    assert abs(spectrum.exponents + np.log(2)).max() < 100 * EPS
    assert spectrum.errors.max() < 100 * EPS


def driven(stay, B=150, T=600):
    """A unit whose slope is 1 or .01 by the sign of its input, which stays with that probability:
    the growth of a step is known, and its correlation."""
    net = RecurrentNet(1, 1, 1, activation="leaky_relu")
    params = net.init(default_rng(0), np.float64)
    params |= {"Whh": np.full((1, 1), 0.5), "Wxh": np.full((1, 1), 10.0)}
    flips = np.where(default_rng(5).random((T, B)) < stay, 1, -1)
    return net, params, np.cumprod(flips, axis=0)[:, :, None].astype(float)


TRUE = np.log(0.5) + np.log(0.01) / 2


def known_growth(function, net, params, x):
    return np.log(0.5) + np.where(x > 0, 0, np.log(0.01))


def test_the_growth_of_a_step():
    case = driven(0.5, 3, 40)
    assert abs(flow._growth("", *case) - known_growth("", *case)).max() < 10 * EPS


def miscalibrated(net, params, x):
    """Whether errors and shifts are not what exponents differ by, in the mean over sequences; chi
    squared of 150 of Student's numbers with 19 degrees of freedom has the sd .13."""
    spectrum = flow.lyapunov_spectrum(net, params, x)
    off = ((spectrum.exponents - TRUE) / spectrum.errors) ** 2
    shifted = (spectrum.shift / spectrum.errors) ** 2
    return not all(0.7 < ratio.mean() < 1.7 for ratio in (off, shifted))


WRONG = (
    ("means.std(axis=0, ddof=1) / blocks**0.5", "growth.std(axis=0) / len(growth) ** 0.5"),
    ("/ blocks**0.5", "/ blocks"),
    ("len(growth) // 2 :", "9 * len(growth) // 10 :"),
)


@pytest.mark.parametrize("stay", [0.5, 0.8])
def test_errors_are_what_exponents_differ_by(stay, monkeypatch):
    """Where the growth is independent from step to step, and where it is correlated, where the
    errors of independent steps are not."""
    case = driven(stay)
    monkeypatch.setattr(flow, "_growth", known_growth)
    assert not miscalibrated(*case)
    for bug in WRONG[stay == 0.5 :]:
        with monkeypatch.context() as patch:
            patch.setattr(flow, "lyapunov_spectrum", planted(lyapunov_spectrum, *bug))
            assert miscalibrated(*case), bug


def test_a_short_transient_shows_in_the_shift(monkeypatch):
    """The input's sign is fixed for the first half of the steps."""
    monkeypatch.setattr(flow, "_growth", known_growth)
    net, params, x = driven(0.5, B=20)
    x[: len(x) // 2] = 1
    early, late = (lyapunov_spectrum(net, params, x, transient) for transient in (0, 300))
    assert (abs(early.shift) > 3 * early.errors).all()
    assert (abs(late.shift) < 4 * late.errors).all()
    assert (abs(late.exponents - TRUE) < 5 * late.errors).all()


def test_of_one_sequence_and_of_all_steps():
    net = RecurrentNet(2, 3, 1, cell="lstm")
    params, x = net.init(default_rng(0), np.float64), default_rng(1).normal(size=(60, 2, 2))
    spectrum = lyapunov_spectrum(net, params, x, transient=0, blocks=2)
    finite = lyapunov_exponents(net, params, x)
    assert abs(spectrum.exponents - finite).max() < 1000 * EPS
    alone = lyapunov_spectrum(net, params, x[:, 1:], transient=0, blocks=2)
    assert abs(alone.errors - spectrum.errors[1:]).max() < 1e-12
    with refused("lyapunov_spectrum: x has 60 steps, 50 of them transient; need at least 20 more"):
        lyapunov_spectrum(net, params, x, transient=50)
    with refused("x has 0 steps"):
        lyapunov_spectrum(net, params, x[:0])
    dead = linear(np.diag([1.0, 0.0]))
    with np.errstate(all="raise"):
        spectrum = lyapunov_spectrum(*dead, np.zeros((40, 1, 1)))
    assert spectrum.exponents.tolist() == [[0.0, -np.inf]] and np.isnan(spectrum.errors[0, 1])
