"""The SVD transition: its spectrum, its margin, its rate, and penalties on the matrix it makes."""

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.maths.activations import ACCURACY
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import defect, open_penalty
from refnet.matrices.transitions import svd, transition
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused

EPS = np.finfo(float).eps


def test_svd_spectrum():
    """Eq. 10: s within the margin, 1 at p = 0; above margin 1 it may be negative (erratum 27),
    which is reported; in exact numbers the interval is open."""
    p = np.array([-5.0, -1.0, 0.0, 1.0, 5.0])
    for m in (0.001, 0.1, 1, 10):
        chosen = transition("svd", margin=m)
        at = {"U": np.eye(5), "V": np.eye(5), "p": p}
        s = chosen.spectrum(at)
        assert s[2] == 1 and (np.diff(s) > 0).all() and (abs(s - 1) < m).all()
        assert abs(s - (2 * m * (1 / (1 + np.exp(-p)) - 0.5) + 1)).max() <= 4 * EPS * (1 + m)
        facts = chosen.report(at)
        assert facts["s_negative"] == (s < 0).sum() == (2 if m == 10 else 0)
        assert facts["s_min"] == s.min() and facts["s_max"] == s.max()
        assert facts["defect_U"] == 0
        assert facts["determinant"] == 1
    eye = np.eye(2)
    assert (transition("svd", margin=0).matrix({"U": eye, "V": eye})[0] == eye).all()


@pytest.mark.parametrize("margin, part", [("none", "s"), (10, "p")])
def test_the_prior_draws_a_negative_value_back(margin, part):
    """Of s cut to 0, as in the released code, the matrix has no gradient and the prior on s
    itself has: value and gradient are those of ``negative="keep"``."""
    at = {"U": np.eye(3), "V": np.eye(3), part: np.array([-0.5, 0.25, 2.0])}
    options = {"margin": margin, "prior": 0.1}
    unchanged, cut = (transition("svd", negative=word, **options) for word in ("keep", "relu"))
    assert unchanged.spectrum(at)[0] < 0 == cut.spectrum(at)[0]
    assert (cut.matrix(at)[0] == np.diag(np.maximum(unchanged.spectrum(at), 0))).all()
    pulled = (m.pull_back(at, m.matrix(at)[1], np.ones((3, 3)))[part] for m in (unchanged, cut))
    assert [(gradient == 0).tolist() for gradient in pulled] == [[False] * 3, [True, False, False]]
    (value, grads), (kept_value, kept_grads) = cut.penalty(at), unchanged.penalty(at)
    assert value == kept_value and (grads[part] == kept_grads[part]).all()
    assert grads[part][0] < 0  # a step against it makes s larger
    cut_value = 0.1 * ((cut.spectrum(at) - 1) ** 2).sum()
    assert value > cut_value  # a prior on the cut spectrum would be noticed


@pytest.mark.parametrize("dtype, most", [(np.float32, 80), (np.float64, 700)])
def test_spectrum_is_alive_on_both_sides(dtype, most):
    """Eq. 11: ``ds/dp = 2m e^-|p| / (1 + e^-|p|)^2``, relatively, as far as the type reaches."""
    chosen = transition("svd", margin=0.25)
    p = np.linspace(-most, most, 401, dtype=dtype)
    ds = np.linspace(1, 2, 401, dtype=dtype)
    computed = chosen._pull_spectrum({"p": p}, ds)["p"]
    assert computed.dtype == dtype
    e = np.exp(-abs(p.astype(np.float64)))
    true = 0.5 * e / (1 + e) ** 2 * ds
    sides = 2 * ACCURACY["sigmoid"].value + 2  # two sigmoids, two products that round
    assert (abs(computed - true) <= sides * np.finfo(dtype).eps * true).all()


def test_svd_keeps_given_singular_values():
    rng = np.random.default_rng(0)
    glorot = initialize("glorot_normal", (12, 12), rng)
    s = np.linalg.svd(glorot, compute_uv=False)
    for margin in ("none", 1.5, 100):
        chosen = transition("svd", margin=margin)
        at = chosen.init(glorot)
        assert abs(chosen.spectrum(at) - s).max() <= 100 * 12 * EPS * max(
            1, 1 if margin == "none" else margin
        )
        assert abs(chosen.matrix(at)[0] - glorot).max() <= 2000 * EPS * (
            1 if margin == "none" else margin
        )
    assert (transition("svd", margin=0.1).init(np.eye(3))["p"] == 0).all()
    Q = initialize("orthogonal", (9, 9), rng)
    assert (transition("svd", margin=0.1).init(Q)["p"] == 0).all()
    with refused("margin 0.1 allows those between 0.9 and 1.1. Start fr"):
        transition("svd", margin=0.1).init(glorot)
    with refused("margin 0 allows 1 alone"):
        transition("svd", margin=0).init(glorot)


def test_spectrum_rate():
    """Erratum 28: dividing the rate by 2m frees SGD's step in p, not that in s, of m; dividing
    it by (2m)^2 frees the step in s."""
    steps = {}
    for rate in svd.RATES:
        for m in (0.125, 0.5):
            chosen = transition("svd", margin=m, spectrum_rate=rate)
            at = {"U": np.eye(2), "V": np.eye(2), "p": np.array([0.0, 1.0])}
            grads = chosen.pull_back(at, chosen.matrix(at)[1], np.diag([1.0, -2.0]))
            dp = -1e-6 * chosen.rates.get("p", 1) * grads["p"]
            slope = 2 * m * np.exp(-at["p"]) / (1 + np.exp(-at["p"])) ** 2
            steps[rate, m] = dp, slope * dp
    close = 10 * EPS

    def ratio(rate, what):
        return steps[rate, 0.5][what] / steps[rate, 0.125][what]

    assert abs(ratio("plain", 0) - 4).max() <= 4 * close
    assert abs(ratio("plain", 1) - 16).max() <= 16 * close
    assert abs(ratio("printed", 0) - 1).max() <= close
    assert abs(ratio("printed", 1) - 4).max() <= 4 * close
    assert abs(ratio("margin_free", 1) - 1).max() <= close
    assert transition("svd", margin=0, spectrum_rate="printed").rates == {}
    assert transition("svd", spectrum_rate="printed").rates == {}
    assert transition("svd", margin=2, spectrum_factor=0.1).rates == {"p": 0.1}
    assert transition("svd", spectrum_factor=0.1).rates == {"s": 0.1}


def test_soft_penalty_on_the_matrix_made():
    """OPEN on W = U diag(s) V' (Vorontsov et al., 3.2) reaches the spectrum and the bases: the
    net's gradients with it against the complex step of its value."""
    rng = np.random.default_rng(12)
    net = RecurrentNet(2, 3, 2, transition=transition("svd"))
    params = net.init(rng, np.float64)
    batch = Batch(rng.normal(size=(2, 2, 2)), np.array([0, 1]))
    plain = loss_and_gradients(net, params, batch)
    soft = loss_and_gradients(
        net, params, batch, penalty=lambda p: open_penalty({"Whh": p["Whh"]}, 0.5)
    )
    assert abs(soft.loss - plain.loss - 0.5 * defect(net.matrices(params)[0]["Whh"])) < 100 * EPS
    step = 2.0**-300
    for part in ("Whh.U", "Whh.s", "Whh.V"):
        v = rng.normal(size=params[part].shape)
        shifted = {**params, part: params[part] + 1j * step * v}
        pushed = 0.5 * defect(net.matrices(shifted)[0]["Whh"]).imag / step
        pulled = ((soft.gradients[part] - plain.gradients[part]) * v).sum()
        assert abs(pushed - pulled) <= 1000 * EPS * (1 + abs(pushed))
