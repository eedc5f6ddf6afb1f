"""Losses: closed forms, stability, reductions and masks."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from refnet.compiled import losses as compiled
from refnet.maths.losses import counted_predictions, cross_entropy, score, squared_error
from support.arguments import refused

EPS = np.finfo(float).eps


def test_cross_entropy_closed_form():
    loss, gradient = cross_entropy(np.log([[1.0, 2.0, 5.0]]), np.array([2]))
    assert abs(loss[0] - np.log(8 / 5)) <= 8 * EPS
    assert abs(gradient[0] - np.array([1 / 8, 2 / 8, 5 / 8 - 1])).max() <= 8 * EPS


@pytest.mark.parametrize("scale", [1e3, 1e30, 1e300])
def test_cross_entropy_of_huge_logits(scale):
    loss, gradient = cross_entropy(np.array([[scale, -scale], [-scale, scale]]), np.array([0, 0]))
    assert loss[0] == 0 and loss[1] == 2 * scale
    assert gradient.tolist() == [[0, 0], [-1, 1]]


def test_cross_entropy_is_blind_to_a_shift():
    """Shifts by powers of two are exact, so nothing at all may change."""
    logits = np.array([[0.5, -1.25, 3.0]])
    assert cross_entropy(logits + 64, np.array([1]))[0] == cross_entropy(logits, np.array([1]))[0]


def compare_compiled(function, logits, labels):
    """The error of a compiled cross-entropy, in units of what roundings allow: log of the sum of
    C exponentials, each within 1.2 ulp, added one by one; then one rounding each of quotient,
    difference and logarithm."""
    want = cross_entropy(logits.astype(np.longdouble), labels)
    loss, gradient = function(logits, labels)
    assert loss.dtype == gradient.dtype == logits.dtype
    unit = (logits.shape[1] + 5) * np.finfo(logits.dtype).eps
    return max(
        (abs(loss - want.loss) / (unit * np.maximum(want.loss, 1))).max(initial=0),
        (abs(gradient - want.gradient) / unit).max(initial=0),
    )


@given(st.integers(0, 40), st.integers(1, 20), st.floats(0, 100), st.booleans(), st.integers(0, 99))
def test_compiled_cross_entropy(N, C, scale, wide, seed):
    rng = np.random.default_rng(seed)
    logits = (scale * rng.standard_normal((C, N))).astype("f8" if wide else "f4").T  # not C order
    labels = rng.integers(0, C, 2 * N)[::2].astype("u1")
    assert compare_compiled(compiled.cross_entropy, logits, labels) <= 1


def test_compiled_cross_entropy_of_extremes_and_other_types():
    labels = np.array([0, 0])
    for logits in (
        np.array([[1e30, -1e30], [-1e30, 1e30]], "f4"),
        np.array([[np.nan, 1], [0, np.inf]]),
        np.array([[0, -np.inf], [-np.inf, 0]]),
        np.array([[1, 2], [3, 5]], "g"),
    ):
        with np.errstate(invalid="ignore"):
            for got, want in zip(
                compiled.cross_entropy(logits, labels), cross_entropy(logits, labels)
            ):
                assert np.array_equal(got, want, equal_nan=True)
    native = np.array([[1, 2], [3, 5]], "f4")
    for got, want in zip(
        compiled.cross_entropy(native.astype(">f4"), labels.astype(">i2")),
        compiled.cross_entropy(native, labels),
    ):
        assert got.dtype == want.dtype and np.array_equal(got, want)


def test_compiled_cross_entropy_of_many_rows():
    """In blocks and threads: the bits of every row alone, and no label past the classes."""
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((5000, 9)).astype("f4"), rng.integers(0, 9, 5000)
    whole = compiled.cross_entropy(logits, labels)
    parts = [
        compiled.cross_entropy(logits[n : n + 250], labels[n : n + 250])
        for n in range(0, 5000, 250)
    ]
    for computed, part in zip(whole, zip(*parts)):
        assert np.array_equal(computed, np.concatenate(part))
    for at in (0, 2600, 4999):
        wrong = labels.copy()
        wrong[at] = 9
        with refused("from 0 to 9"):
            compiled.cross_entropy(logits, wrong)


def test_planted_bugs_in_the_compiled_cross_entropy_are_rejected():
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((30, 5)).astype("f4"), rng.integers(0, 5, 30)

    def biased(logits, labels):
        loss, gradient = compiled.cross_entropy(logits, labels)
        return loss, gradient * np.float32(1 + 2e-6)

    def unshifted(logits, labels):
        return compiled.cross_entropy(logits, (labels + 1) % 5)

    for bug in (biased, unshifted):
        assert compare_compiled(bug, logits, labels) > 1


def test_squared_error_closed_form():
    loss, gradient = squared_error(np.array([[3.0, 1.0]]), np.array([[1.0, 2.0]]))
    assert loss.tolist() == [2.5] and gradient.tolist() == [[2, -1]]


def test_reductions():
    outputs = np.zeros((2, 3, 1))
    targets = np.array([[1.0, 2, 3], [4, 5, 6]])[..., None]
    mask = np.array([[True, True, False], [True, False, False]])
    total = 1 + 4 + 16
    for name, divisor in (("sum", 1), ("mean", 3), ("batch_mean", 3)):
        loss, gradient = score(
            "squared_error", outputs, targets, *counted_predictions(mask, (2, 3), name)
        )
        assert loss == total / divisor
        assert (gradient[~mask] == 0).all()
        assert gradient[0, 0, 0] == -2 / divisor
    assert counted_predictions(None, (4,), "mean")[1] == 4
    assert counted_predictions(np.zeros((2, 3), bool), (2, 3), "mean")[1] == 1


def test_masked_nan_does_not_leak():
    outputs = np.array([[[np.nan]], [[1.0]]])
    mask = np.array([[False], [True]])
    loss, gradient = score(
        "squared_error", outputs, np.zeros((2, 1, 1)), *counted_predictions(mask, (2, 1), "mean")
    )
    assert loss == 1 and gradient[0, 0, 0] == 0


@pytest.mark.parametrize(
    "labels, message",
    [
        (np.array([0.0, 1.0]), "need integers"),
        (np.array([0, 3]), "labels run from 0 to 3"),
        (np.array([0, -1]), "from -1"),
        (np.array([0]), "one class per row"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    for function in (cross_entropy, compiled.cross_entropy):
        with refused(message):
            function(np.zeros((2, 3)), labels)


def test_bad_targets_are_refused():
    with refused("need the same"):
        squared_error(np.zeros((2, 3)), np.zeros((2, 1)))
    with refused("reduction 'max' is unknown"):
        counted_predictions(None, (2,), "max")
