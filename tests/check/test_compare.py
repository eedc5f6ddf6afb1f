"""The verdict: correct results pass, planted bugs do not, and the usual ones are named."""

from dataclasses import replace
from functools import partial
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.cells import rnn
from refnet.check import compare, noise
from refnet.check.cases import reference_results as results
from refnet.check.conventions import Readings
from refnet.check.noise import spread
from refnet.check.verdict import (
    EXPLAINED,
    NOT_ROUNDING,
    SHOWS_NOTHING,
    SUSPICIOUS,
    UNJUDGED,
    compare_values,
    judgement,
)
from refnet.exact import certify
from refnet.exact.parts import Clock
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.drawn import chaotic
from support.judged import Judged
from support.oracles import planted

pytestmark = pytest.mark.needs("flint")


SMALL = RecurrentNet(2, 5, 3, learn_h0=True, backend="reference")


@pytest.fixture(scope="module")
def small():
    case = Judged(SMALL)
    assert case(case.right, sigma=case.sigma).passed
    return case


def test_verdict_states_the_rule_and_both_numbers(small):
    theirs, certified = dict(small.right), small.certified
    theirs["dWhh"] = theirs["dWhh"].copy()
    theirs["dWhh"][1, 2] *= np.float32(1.001)
    verdict = small(theirs)
    worst = verdict.worst
    assert verdict.verdict == NOT_ROUNDING and not verdict.passed
    assert (worst.name, worst.index) == ("dWhh", (1, 2))
    assert worst.theirs == theirs["dWhh"][1, 2]
    assert worst.certified == certified.gradients["Whh"].value[1, 2]
    assert worst.z == abs(worst.theirs - worst.certified) / worst.sigma > 12
    assert worst.z > worst.rms > worst.z / 6  # one of 25 entries
    assert "sigma" in verdict.rule and "statistics" in verdict.rule


def test_limits():
    true = np.full(1, 100.0)
    for off, verdict in zip(
        (6, 6.01, 12, 12.01), (EXPLAINED, SUSPICIOUS, SUSPICIOUS, NOT_ROUNDING)
    ):
        assert judgement("loss", true + off, true, np.ones(1)).verdict == verdict


@pytest.mark.parametrize(
    "name, change, note",
    [
        ("dWhh", lambda g: g * np.nan, "25 entries that are not finite"),
        ("dWhh", lambda g: g * np.inf, "not finite, the first at [0, 0]"),
        ("dWhh", lambda g: g[:2], "has shape (2, 5); need (5, 5)"),
        ("dWhh", lambda g: "oops", "holds no array of real numbers"),
        ("dWhh", lambda g: [[1, 2], [3]], "holds no array of real numbers"),
        ("dWhh", lambda g: np.ma.array(g, mask=np.eye(5)), "holds no array of real"),
        ("dWhh", lambda g: None, "None; need an array of floats"),
        ("dWhh", lambda g: g + 0j, "complex64; pass its .real"),
        ("dWhh", lambda g: g.astype(object), "object; pass np.asarray"),
        ("dWhh", lambda g: g > 0, "bool; need numbers"),
        ("dWhh", np.ndarray.byteswap, "bytes of each number in reverse"),
        ("dwhh", np.copy, "is not the name of a result"),
        ("out.loss", np.sum, "did you mean loss?"),
    ],
)
def test_bad_input_never_passes(small, name, change, note):
    verdict = small.changed(**{name: change(small.right["dWhh"])})
    assert verdict.verdict == NOT_ROUNDING
    assert any(note in part.note for part in verdict.parts)


@pytest.mark.parametrize("missing", [("dWhh",), None])
def test_what_is_missing_never_passes(small, missing):
    theirs = dict(small.right)
    for name in missing or tuple(theirs):
        theirs.pop(name)
    verdict = small(theirs)
    assert verdict.verdict == NOT_ROUNDING
    assert {part.name for part in verdict.parts if part.note == "is missing"} >= {"dWhh"}


def test_what_is_wider_than_float64_is_judged_as_float64():
    case = Judged(SMALL, dtype=np.float64)
    verdict = case({name: np.asarray(value, np.longdouble) for name, value in case.right.items()})
    assert verdict.passed and verdict.dtype == "float64"


def test_what_numpy_cannot_read_is_said(small):
    class Tensor:
        def __array__(self, *_, **__):
            raise RuntimeError("requires grad")

    for dtype in (None, np.float32):
        with refused(
            r"theirs\['dWhh'\] is Tensor, .* \(requires grad\); "
            r"need an array of NumPy's: of a PyTorch tensor pass t.detach\(\)",
            TypeError,
        ):
            small({"dWhh": Tensor()}, dtype=dtype)
        with refused("theirs has the name 3, which is int; need names of", TypeError):
            small({3: np.ones(2)}, dtype=dtype)


def test_what_is_no_number_has_no_name(small):
    """A name that explains dbh says nothing about a loss that is NaN."""
    wrong = -small.right["dbh"]
    assert "wrong sign" in small.changed(dbh=wrong).convention
    assert small.changed(dbh=wrong, loss=np.float32(np.nan)).convention == ""


@pytest.mark.parametrize("name", ["loss", "dWhh"])
@pytest.mark.parametrize("value", [np.float64(1e308), np.float64(1e-320), np.longdouble("1e4000")])
def test_numbers_of_any_size_are_judged_without_a_warning(small, name, value):
    """Where a test's warnings are errors, the verdict comes, too."""
    wrong = {name: small.right[name] * value}
    with catch_warnings(), np.errstate(all="warn"):
        simplefilter("error")
        assert small.changed(**wrong).verdict == NOT_ROUNDING


def test_nothing_asked_and_nothing_given_is_no_pass(small):
    assert not small({}, required=()).passed


def test_exact_zeros_must_be_zero():
    """A dead ReLU's gradient is exactly zero: no rounding makes it anything else."""
    case = Judged(RecurrentNet(1, 2, 1, activation="relu", loss="squared_error"))
    case.params["bh"][:] = [1, -1000]
    assert case.changed().passed
    assert case.changed(dbh=case.right["dbh"] + np.float32(1e-30)).worst.z == np.inf


def test_vanishing_gradients_keep_their_own_sigma():
    """Entries near 1e-200, whose squares are below any float64, are judged like others."""
    case = Judged(RecurrentNet(1, 3, 2), 150, dtype=np.float64)
    case.params["Whh"] /= 16
    assert 1e-290 < abs(case.certified.gradients["x"].value[0]).max() < 1e-170
    assert case.changed().passed
    verdict = case.changed(dx=case.right["dx"] * (1 + 1e-11))
    assert verdict.worst.name == "dx" and not verdict.passed


def test_runs_that_part_at_a_kink_go_on_alone():
    """A pre-activation of 1e-9 is positive or negative in float32: both gradients are right."""
    net = RecurrentNet(1, 1, 1, activation=ACTIVATIONS["relu"], loss="squared_error")
    params = dict.fromkeys(("Whh", "Wxh", "Why"), np.ones((1, 1), np.float32))
    params |= {"bh": np.array([-1 + 2.0**-30]), "by": np.ones(1, np.float32)}
    certified = certify(net, params, Batch(np.ones((1, 1, 1)), np.zeros((1, 1))))
    sigma = spread(certified, np.float32)
    assert 0.3 < sigma["dWxh"].item() < 3  # the slope is 1 or 0, the loss gradient near 2
    assert spread(certified, np.float64)["dWxh"].item() < 1e-14


def turned(net, params, batch, there, back):
    """The results for another x, with dx as ``back`` makes it."""
    wrong = results(net, params, batch._replace(x=there(batch.x)))
    return {**wrong, "dx": back(wrong["dx"])}


def swapped(x):
    return x.reshape(*x.shape[1::-1], -1).swapaxes(0, 1)


def edited(name, change):
    return lambda p, b: {**(right := results(SMALL, p, b)), name: change(right[name])}


def with_parameter(name, change):
    return lambda p, b: results(SMALL, {**p, name: change(p[name])}, b)


CONVENTIONS = {
    "time is reversed": lambda p, b: turned(SMALL, p, b, np.flipud, np.flipud),
    "x is read with batch and time swapped": lambda p, b: turned(
        SMALL, p, b, swapped, lambda dx: dx.swapaxes(0, 1).reshape(b.x.shape)
    ),
    "the first step of the sequence is dropped": lambda p, b: turned(
        SMALL, p, b, lambda x: x[1:], lambda dx: np.pad(dx, ((1, 0), (0, 0), (0, 0)))
    ),
    "the reduction is sum instead of mean": partial(results, replace(SMALL, reduction="sum")),
    "h0 is ignored": lambda p, b: {
        **results(SMALL, {**p, "h0": 0 * p["h0"]}, b),
        "dh0": 0 * p["h0"],
    },
    "the bias bh is left out (one of two biases only)": with_parameter("bh", lambda bh: 0 * bh),
    "Whh is transposed in the forward and backward pass": with_parameter("Whh", np.transpose),
    "dWhh is transposed": edited("dWhh", np.transpose),
    "dbh is doubled: the gradients of two biases are added": edited("dbh", lambda g: 2 * g),
    "the gradient dh0 is missing (zero)": edited("dh0", np.zeros_like),
}
SLOPE = "act.backward(a[t], h[t + 1], g, p)"
PLANTED = {
    "the gradient that is carried through Whh takes Whh transposed": (
        'matmul(da[t], p["Whh"])',
        'matmul(da[t], p["Whh"].T)',
    ),
    "the gradient is not carried from step to step": ('matmul(da[t], p["Whh"])', "0 * carry"),
    "tanh' is taken of a where h belongs": (SLOPE, "act.backward(a[t], a[t], g, p)"),
    "tanh' is taken of h where a belongs": (SLOPE, "act.backward(a[t], np.tanh(h[t + 1]), g, p)"),
    "the slope of h is (1 - h[t]^2), not (1 - h[t+1]^2)": (SLOPE, "act.backward(a[t], h[t], g, p)"),
    "the gradient of Whh takes h[t+1] for h[t]": ("h[:-1].reshape", "h[1:].reshape"),
}
"""Mistakes that the reference's backward pass makes with another text."""


@pytest.mark.parametrize("how", [*CONVENTIONS, *PLANTED])
def test_convention_is_named(small, how, monkeypatch):
    if how in PLANTED:
        monkeypatch.setattr(rnn, "backward", planted(rnn.backward, *PLANTED[how]))
    theirs = CONVENTIONS.get(how, partial(results, SMALL))(*small.given)
    verdict = small(theirs, sigma=small.sigma)
    assert verdict.verdict == NOT_ROUNDING
    assert verdict.convention == how


def test_conventions_know_the_gain():
    case = Judged(RecurrentNet(2, 3, 3, gain=1.5))
    name = "dbh is 1 / gain = 0.666667 times the right one"
    assert case.changed(dbh=case.right["dbh"] / np.float32(1.5)).convention == name
    wrong = turned(case.net, *case.given, np.flipud, np.flipud)
    assert case(wrong).convention == "time is reversed"


def test_variants_of_the_callers_are_named(small):
    half = {"bh": (small.params["bh"] / 2).astype(np.float32)}
    theirs = results(SMALL, {**small.params, **half}, small.batch)
    readings = Readings(small.certified, {"bias_hh_l0 is left out": half})
    assert small(theirs, readings=readings).convention == "bias_hh_l0 is left out"


def test_a_correct_program_is_not_rejected_for_the_long_tails_of_chaos(monkeypatch):
    """Every run of the noise is a correct program: by the sigma of the others, the limits of
    ordinary quantities reject some. A gradient a thousand times too large is rejected."""
    rng, kind = np.random.default_rng(12), np.dtype(np.float32)
    net = RecurrentNet(inputs=1, hidden=24, outputs=3)
    params = net.init(rng) | {"Whh": (0.45 * rng.standard_normal((24, 24))).astype(np.float32)}
    batch = Batch(rng.standard_normal((150, 2, 1)).astype(np.float32), np.array([1, 2]))
    certified = certify(net, params, batch)
    true = {name: certified.named()[name].value for name in ("dWhh", "dWxh", "dbh", "dh0")}
    runs = noise._all_passes(certified, kind, noise.RUNS, 0, Clock(24, None))
    off = {name: (runs[name] - value) ** 2 for name, value in true.items()}

    def rejected():
        count = 0
        for n in range(noise.RUNS):
            theirs = {name: runs[name][n] for name in true}
            sigma = {
                name: np.sqrt(np.delete(square, n, axis=0).mean(axis=0))
                for name, square in off.items()
            }
            verdict = compare_values(theirs, true, sigma, kind, ())
            assert all(part.uninformative for part in verdict.parts) and not verdict.passed
            count += verdict.verdict == NOT_ROUNDING
        return count

    assert rejected() == 0
    sigma = spread(certified, kind)
    huge = {name: value + 1000 * sigma[name].max() for name, value in true.items()}
    assert compare_values(huge, true, sigma, kind, ()).verdict == NOT_ROUNDING
    monkeypatch.setattr("refnet.check.judgement.TAILS", 1)
    assert rejected() > 0


def test_what_rounding_leaves_no_digit_of_is_said(small):
    """A chaotic net: float32 keeps no digit of dWhh over 60 steps, so that a wrong sign passes; the
    verdict says that it shows nothing. In float64 the wrong sign does not pass."""
    net, params, batch = chaotic()
    certified = certify(net, params, batch)
    theirs = results(net, params, batch)
    theirs["dWhh"] = -certified.gradients["Whh"].value.astype(np.float32)
    verdict = compare(theirs, certified)
    uninformative = {part.name for part in verdict.parts if part.uninformative}
    assert verdict.passed and "dWhh" in uninformative and "dby" not in uninformative
    assert {part.name: part.verdict for part in verdict.parts}["dWhh"] == SHOWS_NOTHING
    alone = {name: theirs[name] for name in uninformative if name.startswith("d")}
    nothing = compare({**alone, "loss": theirs["loss"]}, certified, required=())
    assert nothing.verdict == UNJUDGED and not nothing.passed and "dWhh" in nothing.note
    assert "dWhh" in verdict.note and "shows nothing" in verdict.note
    wide = {name: value.value for name, value in certified.named().items()}
    assert not compare(wide, certified).note
    assert not compare({**wide, "dWhh": -wide["dWhh"]}, certified).passed
    assert not small.changed().note


def test_a_part_that_rounding_leaves_no_digit_of_is_said():
    """Float32 keeps no digit of the derivative of a saturated gate: a wrong sign of its quarter of
    dbh passes, and the note says so. Entries that can only be zero count for nothing."""
    net = RecurrentNet(inputs=2, hidden=4, outputs=3, cell="lstm")
    params = net.init(np.random.default_rng(0))
    params["bh"][:4] = 30
    batch = Batch(np.ones((5, 1, 2), np.float32), np.array([1]))
    certified, theirs = certify(net, params, batch), results(net, params, batch)
    theirs["dbh"][:4] *= -1
    verdict = compare(theirs, certified)
    assert verdict.passed and "25% of dbh" in verdict.note
    wide = {name: value.value for name, value in certified.named().items()}
    assert not compare(wide, certified).note
    true, sigma = np.array([0, 0, 1.0, 2.0]), np.array([0, 0, 1.0, 1e-9])
    assert judgement("dbh", true, true, sigma).hidden == 0.5
    assert judgement("dbh", true, true, sigma.clip(1)).uninformative


def test_a_verdict_is_short_in_print_and_a_table_in_a_notebook():
    case = Judged(RecurrentNet(2, 3, 2))
    verdict = case.changed(dWhh=case.right["dWhh"].T)
    assert len(repr(case.certified)) < 200 and "dWhh" in repr(case.certified)
    assert len(repr(verdict)) < 200 and "dWhh is transposed" in repr(verdict)
    html = verdict._repr_html_()
    assert html.count("<tr>") == 1 + len(verdict.parts) and "not rounding" in html
