"""The rtol and atol of each quantity: correct programs pass at them, and the usual bugs do not."""

import numpy as np
import pytest

from refnet import RecurrentNet
from refnet.check import tolerances
from refnet.check.cases import reference_results
from refnet.check.certificates import case_of, certificate, sigma_of
from refnet.check.mistakes import mistakes
from refnet.check.noise import spread
from refnet.check.programs.passes import run
from refnet.check.tolerance import Tolerance, _tolerance
from refnet.check.verdict import NOT_ROUNDING, compare_values
from refnet.exact.functions import certify_function
from support.drawn import drawn
from support.marks import both_dtypes

pytestmark = pytest.mark.needs("flint")


def case(net, dtype, T=20, B=3):
    params, batch = drawn(net, T, B, dtype)
    named = certificate(case_of(net, (params, batch), None, None)).named()
    true = {name: enclosure.value for name, enclosure in named.items()}
    return params, batch, tolerances(net, params, batch), true


def fails(theirs, true, allowed):
    """The quantities that assert_allclose refuses at these tolerances."""
    bad = []
    for name, value in theirs.items():
        try:
            np.testing.assert_allclose(value, true[name], *allowed[name])
        except AssertionError:
            bad.append(name)
    return bad


@both_dtypes
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_correct_programs_pass(cell, dtype):
    net = RecurrentNet(3, 8, 4, cell)
    params, batch, allowed, true = case(net, dtype)
    orders = (
        np.matmul,
        lambda a, b: np.matmul(a[..., ::-1], b[..., ::-1, :]),
        lambda a, b: np.cumsum(a[..., :, None] * b[..., None, :, :], axis=-2)[..., -1, :],
    )
    for theirs in (
        reference_results(net, params, batch),
        *(run(net, params, batch, product=order) for order in orders),
    ):
        assert fails(theirs, true, allowed) == []
    for line in allowed.values():
        assert line.rtol < 1e4 * np.finfo(dtype).eps and np.isfinite(line.atol)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_the_usual_bugs_are_beyond_the_tolerance(cell):
    """Every mistake that the judge knows, and an error of a thousandth in one gradient."""
    net = RecurrentNet(3, 5, 4, cell, readout="every")
    params, batch, allowed, true = case(net, np.float64, 8)
    sigma = sigma_of(case_of(net, (params, batch), None, None), np.float64)
    count = 0
    for mistake in mistakes(net, params, batch):
        with np.errstate(all="ignore"):
            theirs = mistake.run(net, params, batch)
        if compare_values(theirs, true, sigma, np.float64, ()).verdict == NOT_ROUNDING:
            count += 1
            assert fails(theirs, true, allowed), mistake.name
    assert count > 20
    for dtype in (np.float32, np.float64):
        params, batch, allowed, true = case(net, dtype, 8)
        right = reference_results(net, params, batch)
        for name in right:
            assert fails({name: right[name] * dtype(1.001)}, true, allowed) == [name]


def test_the_line_is_over_all_points_and_touches_some():
    rng = np.random.default_rng(0)
    for _ in range(50):
        size = abs(rng.normal(size=40)) * 10.0 ** rng.integers(-30, 30)
        need = size * rng.uniform(0, 1e-7, 40) + 1e-9 * size.mean() * rng.uniform(0, 1, 40)
        rtol, atol = _tolerance(size, need)
        line = atol + rtol * size
        assert (line >= need).all() and (line <= need * (1 + 1e-6)).any()
        # no line through two points is lower on average
        slopes = (need[:, None] - need) / np.where(size[:, None] == size, 1, size[:, None] - size)
        best = min(
            max((need - r * size).max(), 0) + r * size.mean() for r in np.maximum(slopes, 0).ravel()
        )
        assert line.mean() <= best * (1 + 1e-3)


def test_tolerances_allow_what_they_state():
    """6 sigma, the unit roundoff of the result and the smallest normal number, in every entry; the
    roundoff alone is left where sigma is 0."""

    def doubled(x):
        return 2 * x

    x = np.linspace(1, 2, 7, dtype=np.float32)
    for dtype, u in ((np.float32, 2.0**-24), (np.float64, 2.0**-53)):
        line = tolerances(doubled, x, cotangent=np.ones(7), dtype=dtype)["value"]
        allowed = line.atol + line.rtol * 2 * x.astype(float)
        sigma = spread(certify_function(doubled, x, cotangent=np.ones(7)), dtype)["value"]
        assert (allowed >= 6 * sigma + u * 2 * x + np.finfo(dtype).tiny).all()


def test_edges():
    assert _tolerance(np.zeros(3), np.array([1.0, 2, 1])) == Tolerance(0, 2)
    assert _tolerance(np.zeros(0), np.zeros(0)) == (0, 0)
    assert _tolerance(np.ones(2), np.array([1, np.inf])).atol == np.inf


def test_of_a_function():
    def energy(x, w):
        return (np.tanh(x @ w) ** 2).sum()

    x, w = np.ones((3, 4), np.float32), np.full((4, 2), 0.1, np.float32)
    narrow, wide = tolerances(energy, x, w), tolerances(energy, x, w, dtype=np.float64)
    assert list(narrow) == ["value", "dx", "dw"]
    assert all(
        1e7 < (narrow[n].rtol + narrow[n].atol) / (wide[n].rtol + wide[n].atol) < 1e10
        for n in narrow
    )
