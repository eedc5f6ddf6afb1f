"""The model of rounding: it is what it says, and no order of summation leaves it."""

import shutil
from functools import partial
from itertools import permutations, product
from operator import itemgetter
from platform import machine

import numpy as np
import pytest
import scipy.linalg

from benchmarks.judge.implementations import FREE, FUSED, IMPLEMENTATIONS, STRICT, in_c
from refnet.batch import Batch
from refnet.check.cases import random_batch, random_mask, random_params
from refnet.check.noise import RUNS, spread
from refnet.check.noisy import Source, Split, noisy, running
from refnet.check.programs.passes import run
from refnet.check.verdict import EXPLAINED, LIMITS, NOT_ROUNDING, compare_values
from refnet.exact.enclose import Certified, run_on
from refnet.exact.functions import certify_function
from refnet.exact.parts import Clock
from refnet.exact.precision import Enclosure
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused

U = 2.0**-24


def perturbed(columns=range(RUNS)):
    return running(Source(np.float32, 0, np.array(columns), RUNS, Clock(24, None).tick))


def test_noise_is_what_it_says():
    with perturbed():
        numbers = noisy(np.ones(500)) * 3
        draws = np.asarray(numbers)["v"] / 3 - 1
        assert abs(draws.std() / U - 3**-0.5) < 0.03 and abs(draws.mean()) < U * 0.03
        mixed = numbers.copy()
        mixed[0] = numbers[0] - 3
        with pytest.raises(Split):
            mixed <= 0
        assert (numbers > 0).all() and not (numbers == -numbers).any()
        with refused("arctanh", TypeError):
            np.arctanh(numbers)
    with perturbed((3, 4)):
        again = noisy(np.ones(500)) * 3  # a run's draws do not depend on those beside it
    assert (np.asarray(again)["v"] == np.asarray(numbers)["v"][:, 3:5]).all()


def certified_in_float64(net, params, batch):
    """The reference in float64, which is exact as far as float32 goes."""
    wide = {name: np.asarray(value, float) for name, value in params.items()}
    batch_in_float64 = batch._replace(x=np.asarray(batch.x, float))
    results = run_on(net, wide, batch_in_float64, lambda array, name: np.asarray(array, float))
    named = {
        name: Enclosure(value, np.asarray(value), np.zeros(value.shape))
        for name, value in results.items()
    }
    gradients = {name[1:]: named.pop(name) for name in list(named) if name.startswith("d")}
    loss, outputs = named.pop("loss"), named.pop("outputs")
    return Certified(net, params, batch, loss, outputs, named, gradients, "ball", 0, 0.0)


def judged(net, params, batch, runs=RUNS):
    """``verdict(theirs)``, by the reference in float64 and its spread in float32."""
    case = certified_in_float64(net, params, batch)
    sigma = spread(case, np.float32, runs=runs)
    true = {name: value.value for name, value in case.named().items()}
    return lambda theirs: compare_values(theirs, true, sigma, np.float32, ())


def deviation(noisy_array, exact):
    """The spread of an array's runs around ``exact``."""
    return np.sqrt(((np.asarray(noisy_array)["v"] - exact[..., None]) ** 2).mean(axis=-1))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_single_numbers_are_perturbed_as_arrays_are(scale):
    """By a rounding of their own size, whatever it is."""
    x = scale * np.array([1.0, 2.0])
    functions = [
        (lambda x: x[0] + x[1], lambda x: (x[:1] + x[1:])[0]),
        (lambda x: x.sum(), lambda x: x[None].sum(axis=1)[0]),
        (lambda x: (x / scale) @ x, lambda x: ((x[None] / scale) @ x)[0]),
    ]
    for alone, in_an_array in functions:
        a, b = (spread(certify_function(f, x), np.float64)["value"] for f in (alone, in_an_array))
        assert 0.7 < a / b < 1.4 and a < 8 * scale * 2.0**-53


def test_sums_are_perturbed_in_every_order():
    """V of the model, from its definition; a bias that is exactly zero is added last."""
    net = FeedforwardNet((8, 1), loss="squared_error")
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(1, 8)), rng.normal(size=(1, 8))
    case = certified_in_float64(net, {"W1": w, "b1": np.zeros(1)}, Batch(x, np.zeros((1, 1))))
    sigma = spread(case, np.float32, runs=3000)["outputs"].item()
    terms = (w * x)[0]
    S, Q, partial = terms.sum(), (terms**2).sum(), np.cumsum(terms)
    largest = np.maximum(partial**2, (S - partial + terms) ** 2)
    V = Q + np.maximum(largest, S**2 / 3 + Q / 6).sum() + S**2
    assert abs(sigma / (U * np.sqrt(V / 3)) - 1) < 0.05  # 3,000 runs: 1.3% is one sigma


def plain_sums(values):
    """Column sums of (K, M) float32 from the first on, from the last on, and pairwise."""
    first, last = values[0].copy(), values[-1].copy()
    for row in values[1:]:
        first += row
    for row in values[-2::-1]:
        last += row
    return first, last, values.sum(axis=0), np.cumsum(values, axis=0)[-1]


@pytest.mark.parametrize("K", [30, 3000, 100000])
def test_sums_of_equal_terms(K):
    """Terms that are alike are rounded alike: errors add up instead of cancelling."""
    values = np.tile(np.float32([0.1, 1 / 3, 0.7, 1e-3, 7.7e-5]), (K, 1))
    values[::5, 1] -= 1  # two values, as the gradient of a softmax at rest has
    exact = values.astype(float).sum(axis=0)
    with perturbed():
        sigma = deviation(noisy(values).sum(axis=0), exact)
    for theirs in plain_sums(values):
        assert (abs(theirs - exact) <= LIMITS[0] * sigma).all(), abs(theirs - exact) / sigma


def test_single_terms_are_rounded_in_every_order():
    """Two of four all but cancel, as two biases may, and their order with the others is a
    program's own; no more is allowed than the largest partial sums explain."""
    rng = np.random.default_rng(0)
    terms = rng.normal(size=(4, 2000)).astype(np.float32)
    terms[1] = -terms[0] * (1 + np.float32(0.01) * terms[1])
    exact = terms.astype(float).sum(axis=0)

    def sums(add, given):
        for a, b, c, d in permutations(range(4)):
            yield add(add(add(given[a], given[b]), given[c]), given[d])
            yield add(add(given[a], given[b]), add(given[c], given[d]))

    with perturbed():
        for total in sums(np.add, [noisy(term) for term in terms]):
            sigma = deviation(total, exact)
            for theirs in sums(np.add, terms):
                assert (abs(theirs - exact) <= LIMITS[0] * sigma).all()
            assert (sigma <= 4 * U * np.sqrt((terms.astype(float) ** 2).sum(axis=0))).all()


def test_terms_that_differ_are_not_taken_for_equal():
    """The spread of a sum of 10,000 different terms stays that of independent errors."""
    K = 10000
    values = np.random.default_rng(0).normal(size=(K, 20)).astype(np.float32)
    with perturbed():
        sigma = deviation(noisy(values).sum(axis=0), values.astype(float).sum(axis=0))
    assert (sigma < 4 * U * np.sqrt(K) * abs(np.cumsum(values, axis=0)).max(axis=0)).all()


def recurrent(rng, gates, H, gain):
    """Each gate's matrix: ``gain`` times an orthogonal one or, for a gain below 0, times one with
    entries from N(0, 1 / H)."""
    blocks = rng.normal(size=(gates, H, H)) / np.sqrt(H)
    scaled = [np.linalg.qr(W)[0] * gain if gain > 0 else W * -gain for W in blocks]
    return np.concatenate(scaled).astype(np.float32)


def family(members, case, runs=RUNS, names=()):
    """The largest z of any member, with the member; bugs planted in ``names`` are found."""
    verdict_of, worst = judged(*case, runs=runs), (0.0, ())
    for member, program in members:
        results = program(*case)
        verdict = verdict_of(results)
        worst = max(worst, (verdict.worst.z, (member, verdict.worst.name)), key=itemgetter(0))
        assert verdict.verdict == EXPLAINED, (member, verdict.worst)
    for name in names:
        verdict = verdict_of({name: results[name] + np.float32(1e-3) * abs(results[name]).max()})
        assert verdict.verdict == NOT_ROUNDING, (name, verdict.worst)
    return worst


def slow(*sizes):
    return pytest.param(sizes, marks=pytest.mark.slow)


def case_of(cell, T, H, B, gain, readout="last", mask=False):
    """A net, its parameters and batch."""
    cell, _, peepholes = cell.partition(" ")
    net = RecurrentNet(3, H, 5, cell=cell, readout=readout)
    rng = np.random.default_rng([T, H, B])
    params = random_params(net, rng, np.float32, bool(peepholes))
    params["Whh"] = recurrent(rng, len(net.gates), H, gain)
    params["Wxh"] = rng.normal(size=params["Wxh"].shape).astype(np.float32)
    batch = random_batch(net, rng, np.float32, T, B)
    return net, params, batch._replace(mask=random_mask(rng, T, B)) if mask else batch


def members(orders=range(10), ways=range(3)):
    """Orders of summation, in C and NumPy, each with some ways to join the parts of a
    pre-activation, to add up over time and to write the formulas; and the compiled core."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    for order, way in product(orders, ways):
        n = order + way
        how = {"order": order, "join": n % 6, "steps": n % 4, "form": way % 2}
        for flags in (STRICT,) if order else (STRICT, FREE, FUSED):
            yield (*how.values(), flags[0]), partial(in_c, **how, flags=flags)
    for name in ("compiled", "loops BLAS", "permuted"):
        yield name, IMPLEMENTATIONS[name]


SIZES = [
    ("rnn", 1, 5, 1, 1),
    ("rnn", 6, 20, 3, -1.5),
    ("rnn", 40, 32, 2, 1),
    ("rnn", 3, 200, 2, -0.5),
    slow("rnn", 1000, 100, 2, 1),
    slow("rnn", 200, 400, 2, 1),
    slow("rnn", 3, 2000, 2, 1),
    slow("rnn", 3, 2000, 2, -0.5),
    slow("rnn", 200, 2000, 1, 1),
]
for gated in ("lstm", "lstm peepholes", "gru", "gru_before"):
    SIZES += [
        (gated, 5, 20, 3, -1.5, "every"),
        (gated, 30, 16, 2, 1),
        (gated, 6, 24, 3, -1, "last", True),
        slow(gated, 50, 128, 4, 1, "every"),
        slow(gated, 10, 512, 2, 1, "every"),
        slow(gated, 3, 512, 4, -0.5, "every"),
        slow(gated, 200, 64, 2, -1, "every"),
    ]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_order_of_summation_is_rounding(sizes):
    """And bugs in the same cases are not."""
    cell, T, H, *_ = sizes
    large = T * H > 5000
    orders = range(5 if "rnn" not in cell or T * H > 10**5 else 10)
    case = case_of(*sizes)
    names = ("dWhh", "dbh", "dx", "dh0")[: 4 if cell != "rnn" else 3 * (H > 5)]
    worst = family(members(orders, range(1 if large else 2)), case, 20 if large else RUNS, names)
    print(f"{sizes}: the largest z is {worst[0]:.2f}, of {worst[1]}")


@pytest.mark.skipif(machine() not in ("x86_64", "AMD64"), reason="only SSE has this switch")
def test_flushed_subnormal_numbers_are_rounding():
    """Gradients near 1e-37, whose products underflow, where subnormal numbers are zero."""
    net, params, batch = case_of("rnn", 8, 40, 3, 1)
    params["Why"] = params["Why"] * np.float32(1e-37)
    verdict_of, lost = judged(net, params, batch), 0
    for order in range(10):
        how = {"order": order, "join": order % 6, "steps": order % 4}
        flushed, full = (in_c(net, params, batch, flush=flush, **how) for flush in (1, 0))
        lost += (flushed["dWhh"] != full["dWhh"]).any()
        for theirs in (flushed, full):
            verdict = verdict_of(theirs)
            assert verdict.verdict == EXPLAINED, (order, verdict.worst)
    assert lost > 0
    wrong = {**flushed, "dWhh": flushed["dWhh"] * np.float32(2), "dWhy": flushed["dWhy"] * 1.0001}
    assert verdict_of(wrong).verdict == NOT_ROUNDING


def functions(ulps, towards):
    """The sigmoid and tanh in long double, rounded to their type and off by so many ulp, in a
    direction that depends on the value's bits, upwards, or away from zero."""

    def off(value, dtype):
        value = np.asarray(value, dtype)
        by = {
            "any": (value.view(np.int32) * np.int32(-1640531527) >> 8) % (2 * ulps + 1) - ulps,
            "up": ulps,
            "away": ulps * np.sign(value),
        }[towards]
        return np.clip(value + by * np.spacing(abs(value)), -1, 1).astype(dtype)

    def sigmoid(a):
        return off(1 / (1 + np.exp(-a.astype(np.longdouble))), a.dtype)

    def tanh(a):
        return off(np.tanh(a.astype(np.longdouble)), a.dtype)

    return {"sigmoid": lambda *_: sigmoid, "act": lambda *_: tanh}


@pytest.mark.parametrize("T, B", [(16, 128), (64, 64), (128, 16)])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "gru_before"])
def test_elementary_functions_of_usual_accuracy_are_rounding(cell, T, B):
    """One unit, of which the same is added up over all steps and sequences; in several orders."""
    net = RecurrentNet(1, 1, 3, cell=cell, readout="every")
    rng = np.random.default_rng([0, T, B])
    params = random_params(net, rng, np.float32)
    batch = random_batch(net, rng, np.float32, T, B)
    verdict_of = judged(net, params, batch)
    backwards = Batch(batch.x[:, ::-1], batch.y[:, ::-1])
    weights = [f"d{name}" for name in params]
    for ulps, towards in [(0, "up"), *product((1, 2), ("any", "up", "away"))]:
        changed = functions(ulps, towards)
        verdict = verdict_of(run(net, params, batch, changed))
        assert verdict.verdict == EXPLAINED, (ulps, towards, verdict.worst)
        theirs = run(net, params, backwards, changed)
        verdict = verdict_of({name: theirs[name] for name in weights})
        assert verdict.verdict == EXPLAINED, (ulps, towards, verdict.worst)
    assert verdict_of({"dWhh": theirs["dWhh"] * np.float32(1.01)}).verdict == NOT_ROUNDING


def test_a_sum_of_sums_is_a_sum_of_all_terms():
    """Summed over one axis and then over the other by the reference, in any order by a program."""
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=(64, 64, 5)), np.full((64, 64, 5), 0.1)):
        terms = np.float32(values)
        exact = terms.astype(float).sum(axis=(0, 1))
        with perturbed():
            twice = deviation(noisy(terms).sum(axis=0).sum(axis=0), exact)
            once = deviation(noisy(terms).sum(axis=(0, 1)), exact)
        assert (twice > once / 2).all() and (twice < 3 * once).all()
        for theirs in plain_sums(terms.reshape(-1, 5)):
            assert (abs(theirs - exact) <= LIMITS[0] * twice).all()


def test_products_and_sums_of_angles_are_perturbed():
    """An angle is a noisy number like any other: others may be added to it."""

    def f(a, b):
        return (np.arctan2(a, b) * np.arctan2(b, a)).sum()

    a, b = np.float32([1, 2]), np.float32([3, 0.5])
    y, x = np.arctan2(a, b), np.arctan2(b, a)
    slope = (x - y) / (a * a + b * b)
    theirs = {"value": (y * x).sum(), "da": slope * b, "db": -slope * a}
    certified = certify_function(f, a, b)
    sigma = spread(certified, np.float32)
    for name, enclosure in certified.named().items():
        room = LIMITS[0] * sigma[name]
        assert (abs(theirs[name] - enclosure.value) <= room).all()
        assert not (abs(1.0001 * theirs[name] - enclosure.value) <= room).any()


@pytest.mark.parametrize("seed", [4, 9])
def test_eigenvalues_of_every_driver_are_right(seed, monkeypatch):
    """LAPACK's ?syevr is several times as far off as the others, and no less right: with a spread
    for them alone it would be condemned."""

    def f(A):
        return np.linalg.eigh(A + A.T)[0]

    rng = np.random.default_rng(seed)
    U, _, V = np.linalg.svd(rng.normal(size=(6, 6)))
    A = (U @ np.diag(np.logspace(0, -3, 6)) @ V).astype(np.float32)
    certified = certify_function(f, A, cotangent=np.ones(6), check=False)
    true = certified.named()["value"].value

    def largest(driver):
        theirs = scipy.linalg.eigh(A + A.T, driver=driver)[0]
        return (abs(theirs - true) / spread(certified, np.float32)["value"]).max()

    assert max(map(largest, ("ev", "evd", "evr", "evx"))) < LIMITS[0]
    monkeypatch.setattr("refnet.check.noisy.STABLE", 1)
    assert largest("evr") > LIMITS[0]
