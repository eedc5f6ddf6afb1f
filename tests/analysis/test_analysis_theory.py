"""Flow, variances, powers, orthogonalisation and geometry: functions against what is known."""

import itertools
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from numpy.random import default_rng

from refnet.analysis import variance
from refnet.analysis.flow import gradient_norms, jacobian_spectra, lyapunov_exponents, step_bounds
from refnet.analysis.geometry import defect_over_steps, descents, margin_steps, retraction_errors
from refnet.analysis.orthogonalization import (
    basin,
    defect_moments,
    gaussian_moments,
    singular_value_map,
    uniform_moments,
)
from refnet.analysis.powers import fibonacci, power_norms, power_radii
from refnet.analysis.variance import predicted_variances, simulated_variances
from refnet.batch import Batch
from refnet.cells import CELLS
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices import stiefel
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import defect
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients, step_jacobians
from support.arguments import refused

EPS = np.finfo(float).eps
RNG = default_rng(0)


def small_net(cell, readout="last", **options):
    rng = default_rng([3, sum(map(ord, cell))])
    net = RecurrentNet(2, 4, 3, cell=cell, readout=readout, **options)
    params = {
        name: value + rng.uniform(-0.3, 0.3, value.shape)
        for name, value in net.init(rng, np.float64).items()
    }
    T, B = 7, 2
    mask = np.arange(T)[:, None] < np.array([7, 4])
    y = rng.integers(0, 3, (T, B) if readout == "every" else B)
    return net, params, Batch(rng.normal(size=(T, B, 2)), y, mask)


def test_gradient_norms():
    net, params, batch = small_net("rnn", "every")
    norms = gradient_norms(net, params, batch, last=False)
    assert norms[0] == pytest.approx(np.linalg.norm(state_gradients(net, params, batch)[0]))
    last = gradient_norms(net, params, batch._replace(mask=None))
    only = RecurrentNet(2, 4, 3, readout="last")
    assert (last == gradient_norms(only, params, Batch(batch.x, batch.y[-1]))).all()
    # of a masked batch each sequence counts at its own last step, and y is not looked at elsewhere
    masked = gradient_norms(net, params, batch._replace(y=np.where(batch.mask, batch.y, -1)))
    last_steps = Batch(batch.x, batch.y[[6, 3], [0, 1]], batch.mask)
    assert masked == pytest.approx(gradient_norms(only, params, last_steps))
    with refused(r"gradient_norms: mask has shape \(6, 2\)"):
        gradient_norms(net, params, batch._replace(mask=batch.mask[:6]))
    # an orthogonal linear net keeps the norm at all times (the figure's margin 0)
    linear = RecurrentNet(2, 4, 3, activation=ACTIVATIONS["identity"])
    W = initialize("orthogonal", (4, 4), default_rng(0))
    norms = gradient_norms(linear, {**params, "Whh": W}, Batch(batch.x, batch.y[-1]))
    assert abs(norms / norms[-1] - 1).max() < 100 * EPS


@pytest.mark.parametrize("readout", ["every", "none"])
def test_gradient_norms_are_of_the_last_step_in_both_directions(readout):
    """The reverse cell has seen all steps where it is read at the last one: a read-out of the last
    states reads it elsewhere. Against differences from every start state."""
    net = StackedNet(
        2, 3, 6, bidirectional=True, readout=readout, loss="squared_error", reduction="sum"
    )
    rng = default_rng(5)
    params = net.init(rng, np.float64)
    batch = Batch(rng.normal(size=(4, 2, 2)), rng.normal(size=(4, 2, 6)))
    whole = batch._replace(mask=np.ones((4, 2), bool))
    norms = gradient_norms(net, params, batch)
    assert (norms == gradient_norms(net, params, whole)).all()
    last = Batch(batch.x, batch.y, np.arange(4)[:, None] == np.array([3, 3]))
    assert (norms == gradient_norms(net, params, last, last=False)).all()
    assert (norms != gradient_norms(net, params, batch, last=False)).all()

    def loss(h0):
        outputs = net.forward(params | h0, batch.x)[0]
        return ((outputs[-1] - batch.y[-1]) ** 2).mean(axis=-1).sum()

    starts = {f"h0{end}": np.zeros((2, 3)) for end in ("_l0", "_l0_reverse")}
    slopes = [
        (loss(starts | {name: start + step}) - loss(starts | {name: start - step}))
        for name, start in starts.items()
        for step in 1e-6 * np.eye(6).reshape(6, 2, 3)
    ]
    assert norms[0] == pytest.approx(np.linalg.norm(slopes) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("shape", [(3, 0), (0, 2)], ids=["no sequence", "no step"])
def test_gradient_norms_of_nothing_are_zero(shape):
    net = RecurrentNet(2, 3, 2, readout="every")
    params = net.init(default_rng(0), np.float64)
    batch = Batch(np.zeros((*shape, 2)), np.zeros(shape, int))
    for last in (True, False):
        assert gradient_norms(net, params, batch, last).tolist() == [0.0] * (shape[0] + 1)


def test_exponents():
    """Of a constant product diag(2, 1, 1/4)^T they are the logarithms; and their sum is that of
    log |det| for any net, whatever the directions do."""
    net = RecurrentNet(1, 3, 1, activation=ACTIVATIONS["identity"])
    params = net.init(default_rng(0), np.float64) | {"Whh": np.diag([2, 0.25, 1.0])}
    x = np.zeros((600, 1, 1))
    assert abs(lyapunov_exponents(net, params, x)[0] - np.log([2, 1, 0.25])).max() < 1e-12
    assert abs(jacobian_spectra(net, params, x)[590, 0] - [1024, 1, 2.0**-20]).max() == 0
    for cell in CELLS:
        net, params, batch = small_net(cell)
        factors = step_jacobians(net, params, batch.x)
        sums = np.log(abs(np.linalg.det(factors))).mean(axis=0)
        assert lyapunov_exponents(net, params, batch.x).sum(axis=1) == pytest.approx(sums)
    with refused("no steps"):
        lyapunov_exponents(net, params, batch.x[:0])


@pytest.mark.parametrize("name", ["tanh", "relu", "oplu", "prelu"])
def test_step_bounds(name):
    """The gain of a step, against the Jacobian by the chain rule; never above the bound."""
    net = RecurrentNet(2, 6, 2, activation=ACTIVATIONS[name], gain=2)
    rng = default_rng(1)
    params, x = net.init(rng, np.float64), rng.normal(size=(9, 2, 2))
    bounds = step_bounds(net, params, x)
    assert bounds.bound.shape == bounds.measured.shape == (8, 2)
    assert (bounds.measured <= bounds.bound * (1 + 10 * EPS)).all()
    if name == "tanh":
        h = net.forward(params, x)[1].cell.h
        exact = np.linalg.norm(2 * params["Whh"] * (1 - h[3, 1] ** 2), 2)
        assert bounds.measured[2, 1] == pytest.approx(exact)
    with refused("simple cell"):
        step_bounds(RecurrentNet(2, 6, 2, cell="gru"), params, x)


def test_step_bounds_of_clipped_states():
    """A unit beyond the bound passes no gradient on."""
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS["identity"], clip_forward=0.5)
    params = net.init(default_rng(0), np.float64) | {
        "Whh": np.diag([2.0, 0.5]),
        "Wxh": np.zeros((2, 1)),
        "bh": np.array([1.0, 0.1]),
    }
    bounds = step_bounds(net, params, np.zeros((3, 1, 1)))
    assert bounds.bound.tolist() == [[2.0], [2.0]] and bounds.measured.tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, object])
def test_spectra_and_bounds_of_every_type_are_in_float64(dtype):
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS["relu"])
    rng = default_rng(0)
    params = {name: value.astype(np.float16) for name, value in net.init(rng, np.float64).items()}
    x = rng.normal(size=(3, 1, 1)).astype(np.float16)
    lift = np.vectorize(F) if dtype is object else lambda value: value.astype(dtype)
    lifted = (
        {name: np.asarray(lift(value.astype(float)), dtype) for name, value in params.items()},
        np.asarray(lift(x.astype(float)), dtype),
    )
    exact = {name: value.astype(float) for name, value in params.items()}, x.astype(float)
    room = 50 * EPS if dtype in (np.longdouble, object) else 50 * np.finfo(dtype).eps
    for measured, true in (
        (jacobian_spectra(net, *lifted), jacobian_spectra(net, *exact)),
        *zip(step_bounds(net, *lifted), step_bounds(net, *exact)),
    ):
        assert measured.dtype == np.float64 and abs(measured - true).max() <= room * abs(true).max()


def test_moments_by_enumeration():
    """Mean and variance of the defect, exact, over all matrices with entries from a list."""
    for m, n, entries in (
        (2, 2, (-3, 0, 1, 2)),
        (1, 2, (-2, -1, 3)),
        (3, 2, (-1, 1)),
        (2, 1, (F(-1, 2), F(1, 2), 0)),
    ):
        values = [
            defect(np.array([F(e) for e in chosen]).reshape(m, n), side="rows").item()
            for chosen in itertools.product(entries, repeat=m * n)
        ]
        mean = sum(values) / F(len(values))
        variance = sum((value - mean) ** 2 for value in values) / F(len(values))
        moments = tuple(sum(F(e) ** k for e in entries) / F(len(entries)) for k in (2, 4, 6, 8))
        assert sum(entries) == 0
        assert defect_moments(m, n, moments) == (mean, variance)


def test_moments_of_entries():
    rng = default_rng(0)
    for moments, sample in (
        (gaussian_moments(0.5), rng.normal(0, 0.5, 10**6)),
        (uniform_moments(0.5), rng.uniform(-0.5, 0.5, 10**6)),
    ):
        for k, moment in zip((2, 4, 6, 8), moments):
            error = (sample**k).std() / 1000
            assert abs((sample**k).mean() - moment) < 5 * error


def test_basin():
    rate = 0.1
    limit, contraction = basin(rate)
    for s, reaches in ((0.01, True), (limit * 0.999, True), (limit * 1.001, False)):
        value = np.array(s)
        for _ in range(4000):
            value = np.where(abs(value) < 1e6, singular_value_map(value, rate), value)
        assert (abs(abs(value) - 1) < 1e-9) == reaches
    near = singular_value_map(np.array(1 + 1e-6), rate)
    assert abs((near - 1) / 1e-6) == pytest.approx(contraction, rel=1e-4)


@pytest.mark.parametrize("name", ["identity", "tanh", "relu", "elu", "sigmoid"])
@pytest.mark.parametrize("weights", ["glorot_uniform", "he"])
def test_variances(name, weights):
    """Predicted mean squares against 150 random nets of wide layers: within five standard errors
    and the 1 / width by which wide layers differ from infinitely wide ones."""
    widths = (60, 80, 100, 80, 20)

    def draw(shape, rng):
        return initialize(weights, shape, rng)

    measured, errors, variances = simulated_variances(
        widths, draw, default_rng(2), 150, ACTIVATIONS[name]
    )
    predicted = predicted_variances(widths, variances, activation=ACTIVATIONS[name])
    if name != "identity":
        assert (predicted.dv[:-1] < predicted_variances(widths, variances).dv[:-1]).all()
    for value, error, guess in zip(measured, errors, predicted):
        assert (abs(value - guess) <= 5 * error + 10 / 60 * guess).all(), (value / guess, error)


EXACT = {
    "identity": (lambda a: a, lambda a: 1),
    "tanh": (mp.tanh, lambda a: mp.sech(a) ** 2),
    "sigmoid": (lambda a: 1 / (1 + mp.exp(-a)), lambda a: 1 / (2 + mp.exp(a) + mp.exp(-a))),
    "softsign": (lambda a: a / (1 + abs(a)), lambda a: (1 + abs(a)) ** -2),
    "relu": (lambda a: max(a, 0), lambda a: a > 0),
    "leaky_relu": (lambda a: a if a > 0 else mp.mpf(0.01) * a, lambda a: 1 if a > 0 else 0.01),
    "prelu": (lambda a: a if a > 0 else a / 4, lambda a: 1 if a > 0 else 0.25),
    "elu": (lambda a: a if a > 0 else mp.expm1(a), lambda a: 1 if a > 0 else mp.exp(a)),
    "elu:alpha=.5": (
        lambda a: a if a > 0 else mp.expm1(a) / 2,
        lambda a: 1 if a > 0 else mp.exp(a) / 2,
    ),
    "modrelu": (lambda a: a, lambda a: 1),
    "modrelu:start=-.5": (lambda a: mp.sign(a) * max(abs(a) - 0.5, 0), lambda a: abs(a) > 0.5),
    "modrelu:start=.5": (lambda a: mp.sign(a) * (abs(a) + 0.5), lambda a: 1),
}
"""Value and slope of every activation that acts on each unit by itself, for mpmath."""
CUTS = 0.125, 0.5, 1, 2, 4, 8, 20, 40


def exact_mean(f, sd):
    """E f(a)^2 over N(0, sd^2), from 0 up and from 0 down, between cuts at several scales."""
    with mp.workdps(25):
        sd = mp.mpf(sd)
        cuts = sorted({0, 14 * sd, *(cut for c in CUTS for cut in (c, c * sd) if cut < 14 * sd)})
        return mp.quad(lambda a: (mp.mpf(f(a)) ** 2 + mp.mpf(f(-a)) ** 2) * mp.npdf(a, 0, sd), cuts)


@pytest.mark.parametrize("sd", [2.0**-20, 0.125, 1, 32, 1024])
@pytest.mark.parametrize("name", EXACT)
def test_gaussian_means(name, sd):
    """Against mpmath, also for slopes much narrower than the Gaussian."""
    predicted = predicted_variances((1, 1, 1), np.array([sd**2, 1]), activation=name)
    for measured, f in zip((predicted.v[1], predicted.dv[0]), EXACT[name]):
        exact = exact_mean(f, sd)
        assert abs(measured - exact) <= 1e-13 * exact


def test_every_activation_has_exact_means():
    """A new activation goes into EXACT."""
    assert {name.split(":")[0] for name in EXACT} == {
        name for name, act in ACTIVATIONS.items() if not act.pairs
    }


def test_a_kink_inside_a_panel_is_seen(monkeypatch):
    monkeypatch.setattr(
        variance, "_gaussian", lambda sd, kinks, rule=variance._gaussian: rule(sd, [])
    )
    with pytest.raises(AssertionError):
        test_gaussian_means("modrelu:start=-.5", 1)


def test_weights_of_zero_have_the_variance_zero():
    assert predicted_variances((1, 1, 1), np.zeros(2), activation="sigmoid").v.tolist() == [0, 0]
    assert predicted_variances((1, 1, 1), np.array([0, 4]), activation="sigmoid").v.tolist() == [
        0,
        1,
    ]


def test_power_norms():
    rng = default_rng(0)
    for W in (
        rng.normal(0, 0.3, (7, 7)),
        initialize("chain", (7, 7), rng),
        np.eye(3),
        initialize("orthogonal", (7, 7), rng),
    ):
        exact = [np.linalg.norm(np.linalg.matrix_power(W, n), 2) for n in range(13)]
        assert power_norms(W, 12) == pytest.approx(exact, rel=1e-12, abs=1e-300)
    large = power_norms(np.diag([2.0, 0.5]), 1100)
    assert large[1000] == 2.0**1000 and large[1100] == np.inf
    assert power_norms(np.diag([0.5, 0.25]), 1000)[1000] == 2.0**-1000
    assert power_norms(np.full((2, 2), 1e308), 2).tolist() == [1, np.inf, np.inf]
    assert power_norms(np.diag([2.0**1023, 2.0**-1074]), 2).tolist() == [1, 2.0**1023, np.inf]
    assert power_norms(np.diag([2.0**-1074, 0]), 2).tolist() == [1, 2.0**-1074, 0]


def test_fibonacci():
    a, b = 0, 1
    for n in range(120):
        number = fibonacci(n)
        assert number.exact == a
        assert (number.squared == a) or n > 78
        assert (round(number.eigen) == a) or n > 70
        a, b = b, a + b
    assert round(fibonacci(71).eigen) != fibonacci(71).exact
    assert fibonacci(79).squared != fibonacci(79).exact


def test_power_radii():
    """Of scalars the powers are on average as large as the products; of matrices they are larger,
    and the less so the larger the matrices."""
    gaps = {
        N: power_radii(N, runs, 5, default_rng(0)) for N, runs in ((1, 3000), (4, 2000), (64, 200))
    }
    mean, error = gaps.pop(1)
    assert error > 0 and abs(mean) <= 5 * error
    for (mean, error), (less, other) in ((gaps[4], gaps[64]), (gaps[64], (0, 0))):
        assert mean - less > 5 * np.hypot(error, other)


@pytest.mark.parametrize("metric", stiefel.METRICS)
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (6, 6), (2, 1), (7, 1), (3, 2), (7, 3), (7, 6)])
@pytest.mark.parametrize("retraction", ["cayley", "polar", "qr"])
def test_orders(retraction, shape, metric):
    """The slope of the distance, 3 or 2, is what the docstring of retraction_errors says."""
    square, circle = shape[0] == shape[1], shape == (2, 2) or shape[1] == 1
    third = {
        "cayley": square or metric == "canonical",
        "polar": square or metric == "euclidean",
        "qr": False,
    }[retraction] or circle
    rates = np.geomspace(0.003, 0.1, 4)
    errors = retraction_errors(shape, rates, default_rng(0), retraction, metric)
    slopes = np.diff(np.log(errors)) / np.diff(np.log(rates))
    assert abs(slopes - (3 if third else 2)).max() < 0.05


def test_a_step_has_the_gradients_length():
    """The gradient has the norm 1 in its own metric, so that distances compare."""
    for metric in stiefel.METRICS:
        for shape in ((4, 4), (5, 2)):
            (distance,) = retraction_errors(shape, np.array([1e-3]), default_rng(0), "qr", metric)
            assert 1e-8 < distance < 1e-6


def test_descents_drift_and_margin():
    slopes = descents(5, 60, default_rng(0))
    assert (slopes.correct < 0).all() and (slopes.printed > 0).any() and (slopes.printed < 0).any()
    at, drift = defect_over_steps(5, 300, 4, default_rng(0), "float32", guarded=True)
    assert at[-1] == 300 and (drift <= 5 * 5**0.5 * np.finfo(np.float32).eps).all()
    free = margin_steps(np.array([0.01, 1, 10]), np.array([-1.0, 0, 2]), "margin_free")
    printed = margin_steps(np.array([0.01, 1, 10]), np.array([-1.0, 0, 2]))
    assert abs(free / free[0] - 1).max() < 1e-12
    assert abs(printed[2] / printed[0] / 1000 - 1).max() < 1e-12


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        *((basin, (rate,), "between 0 and 1/4") for rate in (0, 0.25, -1)),
        (predicted_variances, ((2, 3, 4), np.ones(3)), r"need \(2,\), one a matrix"),
        (predicted_variances, ((2, 4, 4), np.ones(2), 1, 1, "oplu"), "oplu"),
        (retraction_errors, ((2, 3), np.ones(1), RNG), r"shape is \(2, 3\); need .* transpose"),
        (defect_over_steps, (5, 3, 4, RNG, "float32"), "points <= steps"),
    ],
)
def test_errors(function, arguments, message):
    with refused(message):
        function(*arguments)
