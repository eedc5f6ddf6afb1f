"""The judge in one call: what is kept and what is not, and messages that say what to mend."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
from refnet import Batch, RecurrentNet, transitions  # noqa: E402
from refnet.check import assert_gradients, judge  # noqa: E402
from refnet.check.calls import _certificate, _sigma  # noqa: E402
from refnet.check.cases import random_batch, random_params, reference_results  # noqa: E402
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING, SUSPICIOUS  # noqa: E402

NET = RecurrentNet(2, 4, 3, cell="lstm")
PARAMS = random_params(NET, np.random.default_rng(0), np.float32)
BATCH = random_batch(NET, np.random.default_rng(1), np.float32, 5, 2)
SCALE = np.float64(2)


def energy(x, w):
    return SCALE * (np.tanh(x @ w) ** 2).sum()


def theirs(x, w):
    h = np.tanh(x @ w)
    da = 2 * SCALE * h * (1 - h * h)
    return {"value": SCALE * (h * h).sum(), "dx": da @ w.T, "dw": x.T @ da}


X, W = np.random.default_rng(2).normal(size=(3, 4)), np.random.default_rng(3).normal(size=(4, 2))


def test_from_arrays_and_from_a_function():
    assert judge(energy, theirs, X, W).passed
    assert judge(energy, theirs(X, W), X, W).passed
    assert judge(NET, lambda params, batch: reference_results(NET, params, batch),
                 PARAMS, BATCH).passed


def test_what_a_function_does_to_its_copies_does_not_count():
    def spoiling(x, w):
        found = theirs(x, w)
        x[:], w[:] = 0, 0
        return found

    assert judge(energy, spoiling, X, W).passed and X.all()


def made():
    return _certificate.cache_info().misses, _sigma.cache_info().misses


def test_certificates_and_sigmas_are_made_once(monkeypatch):
    def after(*arguments, **options):
        before = made()
        judge(*arguments, **options)
        return tuple(b - a for a, b in zip(before, made()))

    fresh = RecurrentNet(2, 3, 2, transition=transitions.transition("cayley"))
    params = fresh.init(np.random.default_rng(0), dtype=np.float32)
    batch = Batch(np.ones((3, 1, 2), np.float32), np.array([1]))
    results = reference_results(fresh, params, batch)
    results = {name: value for name, value in results.items() if name != "loss"}
    assert after(fresh, results, params, batch) == (1, 1)
    assert after(replace(fresh), results, dict(params), Batch(batch.x.copy(), batch.y)) == (0, 0)
    assert after(fresh, results, params, batch, dtype=np.float64) == (0, 1)
    assert after(replace(fresh, reduction="sum"), results, params, batch) == (1, 1)
    assert after(fresh, results, params, batch._replace(x=2 * batch.x)) == (1, 1)
    assert after(energy, theirs, 3 * X, W) == (1, 1)
    assert after(energy, {}, 3 * X, W)[0] == 0
    monkeypatch.setitem(energy.__globals__, "SCALE", np.float64(3))  # its certificate is another
    assert after(energy, theirs, 3 * X, W) == (1, 1)
    assert after(energy, theirs, 3 * X.astype(np.float32), W) == (1, 1)


def test_the_message_of_a_mistake_in_a_function():
    def wrong(x, w):
        found = theirs(x, w)
        found["dw"] = found["dw"].copy()
        found["dw"][2, 1] *= 1.001
        return found

    with pytest.raises(AssertionError) as caught:
        assert_gradients(energy, wrong, X, W)
    text = str(caught.value)
    assert text.splitlines()[0] == "gradients in float64 are not rounding"
    for part in (r"dw     z = ", "worst at [2, 1]: theirs ", "certified ", "sigma ",
                 "value  z = ", "up to 6 is rounding"):
        assert part in text, text


def test_the_message_names_a_known_mistake():
    right = reference_results(NET, PARAMS, BATCH)
    with pytest.raises(AssertionError, match="the mistake that explains it: .*Whh.*transpose"):
        assert_gradients(NET, {**right, "dWhh": right["dWhh"].reshape(4, 4, 4).transpose(
            0, 2, 1).reshape(16, 4)}, PARAMS, BATCH)


def test_the_message_says_what_is_missing_or_misshapen():
    found = theirs(X, W)
    with pytest.raises(AssertionError, match="dw .*: is missing"):
        assert_gradients(energy, {"dx": found["dx"]}, X, W)
    with pytest.raises(AssertionError, match=r"dw .*: has shape \(2, 4\); need \(4, 2\)"):
        assert_gradients(energy, {**found, "dw": found["dw"].T}, X, W)


def test_suspicious_results_may_be_allowed():
    found = theirs(X, W)
    case = judge(energy, found, X, W)
    sigma = next(part.sigma for part in case.parts if part.name == "value")
    found["value"] = np.float64(found["value"] + 9 * sigma)
    assert judge(energy, found, X, W).verdict == SUSPICIOUS
    assert assert_gradients(energy, found, X, W, allow_suspicious=True).verdict == SUSPICIOUS
    with pytest.raises(AssertionError, match="suspicious"):
        assert_gradients(energy, found, X, W)
    assert assert_gradients(energy, theirs, X, W).verdict == EXPLAINED
    assert judge(energy, {**found, "dx": found["dx"] + 1}, X, W).verdict == NOT_ROUNDING


@pytest.mark.parametrize("arguments, says", [
    ((NET, {}, PARAMS), r"judge\(net, theirs, params, batch\)"),
    ((3, {}), "int is neither a net"),
    ((energy, lambda x, w: 3, X, W), "theirs is int; need a dict of arrays by name, such as value"),
])
def test_refusals(arguments, says):
    with pytest.raises(TypeError, match=says):
        judge(*arguments)
