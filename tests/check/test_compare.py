"""The verdict: correct results pass, planted bugs do not, and the usual ones are named."""

from dataclasses import replace
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest

from refnet.batch import Batch
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
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.byhand import read
from support.drawn import drawn

pytestmark = pytest.mark.needs("flint")


SMALL = RecurrentNet(2, 5, 3, learn_h0=True)


@pytest.fixture(scope="module")
def small():
    params, batch = drawn(SMALL)
    certified = certify(SMALL, params, batch)
    return params, batch, certified, spread(certified, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "net",
    [
        SMALL,
        *(
            RecurrentNet(2, 4, 3, cell=cell, readout="every")
            for cell in ("rnn", "lstm", "gru", "gru_before")
        ),
        *(
            RecurrentNet(2, 4, 3, activation=act, loss="squared_error")
            for act in ACTIVATIONS.values()
        ),
        FeedforwardNet((4, 6, 6, 3)),
    ],
)
def test_correct_results_are_explained(net, dtype):
    params, batch = drawn(net, dtype=dtype, mask=getattr(net, "readout", "") == "every")
    verdict = compare(results(net, params, batch), certify(net, params, batch))
    assert verdict.passed, verdict
    assert verdict.dtype == np.dtype(dtype).name
    assert verdict.convention == ""


def test_verdict_states_the_rule_and_both_numbers(small):
    params, batch, certified, sigma = small
    theirs = results(SMALL, params, batch)
    theirs["dWhh"] = theirs["dWhh"].copy()
    theirs["dWhh"][1, 2] *= np.float32(1.001)
    verdict = compare(theirs, certified, sigma=sigma)
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
    for off, verdict in (
        (6.0, EXPLAINED),
        (6.01, SUSPICIOUS),
        (12.0, SUSPICIOUS),
        (12.01, NOT_ROUNDING),
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
    params, batch, certified, sigma = small
    theirs = results(SMALL, params, batch)
    verdict = compare({**theirs, name: change(theirs["dWhh"])}, certified, sigma=sigma)
    assert verdict.verdict == NOT_ROUNDING
    assert any(note in part.note for part in verdict.parts)


@pytest.mark.parametrize("missing", [("dWhh",), None])
def test_what_is_missing_never_passes(small, missing):
    params, batch, certified, sigma = small
    theirs = results(SMALL, params, batch)
    for name in missing or tuple(theirs):
        theirs.pop(name)
    verdict = compare(theirs, certified, sigma=sigma)
    assert verdict.verdict == NOT_ROUNDING
    assert {part.name for part in verdict.parts if part.note == "is missing"} >= {"dWhh"}


def test_what_is_wider_than_float64_is_judged_as_float64():
    params, batch = drawn(SMALL, dtype=np.float64)
    theirs = {
        name: np.asarray(value).astype(np.longdouble)
        for name, value in results(SMALL, params, batch).items()
    }
    verdict = compare(theirs, certify(SMALL, params, batch))
    assert verdict.passed and verdict.dtype == "float64"


def test_what_numpy_cannot_read_is_said(small):
    class Tensor:
        def __array__(self, *_, **__):
            raise RuntimeError("requires grad")

    for dtype in (None, np.float32):
        with pytest.raises(
            TypeError,
            match=r"theirs\['dWhh'\] is Tensor, .* \(requires grad\); "
            r"need an array of NumPy's: of a PyTorch tensor pass t.detach\(\)",
        ):
            compare({"dWhh": Tensor()}, small[2], dtype=dtype)
        with pytest.raises(TypeError, match="theirs has the name 3, which is int; need names of"):
            compare({3: np.ones(2)}, small[2], dtype=dtype)


def test_what_is_no_number_has_no_name(small):
    """A name that explains dbh says nothing about a loss that is NaN."""
    params, batch, certified, sigma = small
    theirs = results(SMALL, params, batch)
    theirs["dbh"] = -theirs["dbh"]
    assert "wrong sign" in compare(theirs, certified, sigma=sigma).convention
    theirs["loss"] = np.full_like(theirs["loss"], np.nan)
    assert compare(theirs, certified, sigma=sigma).convention == ""


@pytest.mark.parametrize("name", ["loss", "dWhh"])
@pytest.mark.parametrize("value", [np.float64(1e308), np.float64(1e-320), np.longdouble("1e4000")])
def test_numbers_of_any_size_are_judged_without_a_warning(small, name, value):
    """Where a test's warnings are errors, the verdict comes, too."""
    params, batch, certified, _ = small
    theirs = results(SMALL, params, batch)
    theirs[name] = theirs[name] * value
    with catch_warnings(), np.errstate(all="warn"):
        simplefilter("error")
        assert compare(theirs, certified).verdict == NOT_ROUNDING


def test_nothing_asked_and_nothing_given_is_no_pass(small):
    assert not compare({}, small[2], required=(), sigma=small[3]).passed


def test_exact_zeros_must_be_zero():
    """A dead ReLU's gradient is exactly zero: no rounding makes it anything else."""
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS["relu"], loss="squared_error")
    params, batch = drawn(net)
    params["bh"][:] = [1, -1000]
    certified = certify(net, params, batch)
    theirs = results(net, params, batch)
    assert compare(theirs, certified).passed
    theirs["dbh"] = theirs["dbh"] + np.float32(1e-30)
    assert compare(theirs, certified).worst.z == np.inf


def test_vanishing_gradients_keep_their_own_sigma():
    """Entries near 1e-200, whose squares are below any float64, are judged like others."""
    net = RecurrentNet(1, 3, 2)
    params, batch = drawn(net, T=150, dtype=np.float64)
    params["Whh"] = params["Whh"] / 16
    certified = certify(net, params, batch)
    theirs = results(net, params, batch)
    assert 1e-290 < abs(certified.gradients["x"].value[0]).max() < 1e-170
    assert compare(theirs, certified).passed
    theirs["dx"] = theirs["dx"] * (1 + 1e-11)
    assert compare(theirs, certified).worst.name == "dx"
    assert not compare(theirs, certified).passed


def test_runs_that_part_at_a_kink_go_on_alone():
    """A pre-activation of 1e-9 is positive or negative in float32: both gradients are right."""
    net = RecurrentNet(1, 1, 1, activation=ACTIVATIONS["relu"], loss="squared_error")
    params = dict.fromkeys(("Whh", "Wxh", "Why"), np.ones((1, 1), np.float32))
    params |= {"bh": np.array([-1 + 2.0**-30]), "by": np.ones(1, np.float32)}
    certified = certify(net, params, Batch(np.ones((1, 1, 1)), np.zeros((1, 1))))
    sigma = spread(certified, np.float32)
    assert 0.3 < sigma["dWxh"].item() < 3  # the slope is 1 or 0, the loss gradient near 2
    assert spread(certified, np.float64)["dWxh"].item() < 1e-14


def broken(net, params, batch, how):
    """The quantities of a misread net, by the reference on altered inputs; float32."""
    T, B, D = batch.x.shape
    other_x = {
        "time is reversed": (lambda x: x[::-1], lambda dx: dx[::-1]),
        "x is read with batch and time swapped": (
            lambda x: x.reshape(B, T, D).swapaxes(0, 1),
            lambda dx: dx.swapaxes(0, 1).reshape(T, B, D),
        ),
        "the first step of the sequence is dropped": (
            lambda x: x[1:],
            lambda dx: np.concatenate([np.zeros_like(dx[:1]), dx]),
        ),
    }
    if how in other_x:
        there, back = other_x[how]
        wrong = results(net, params, batch._replace(x=there(batch.x)))
        return {**wrong, "dx": back(wrong["dx"])}
    if how == "the reduction is sum instead of mean":
        return results(replace(net, reduction="sum"), params, batch)
    if how == "the bias bh is left out (one of two biases only)":
        return results(net, {**params, "bh": 0 * params["bh"]}, batch)
    if how == "h0 is ignored":
        return {**results(net, {**params, "h0": 0 * params["h0"]}, batch), "dh0": 0 * params["h0"]}
    right = results(net, params, batch)
    edits = {
        "dWhh is transposed": {"dWhh": right["dWhh"].T},
        "dbh is doubled: the gradients of two biases are added": {"dbh": 2 * right["dbh"]},
        "the gradient dh0 is missing (zero)": {"dh0": 0 * right["dh0"]},
    }
    return {**right, **edits[how]} if how in edits else naive(params, batch, how)


def naive(p, batch, how):
    """Backpropagation through time by hand, wrong in one place."""
    x, y, *_ = batch
    T, B, D = x.shape
    a, h = [], [np.broadcast_to(p["h0"], (B, len(p["h0"])))]
    W = p["Whh"].T if how == "Whh is transposed in the forward and backward pass" else p["Whh"]
    for t in range(T):
        a.append(x[t] @ p["Wxh"].T + h[t] @ W.T + p["bh"])
        h.append(np.tanh(a[t]))
    loss, v, dv = read(p, h[T], y)
    g = {name: 0 * p[name] for name in ("Whh", "Wxh", "bh")}
    dh, dx = dv @ p["Why"], np.zeros_like(x)
    back = W.T if how == "Whh is transposed in the backward recursion only" else W
    for t in reversed(range(T)):
        slope_of = {
            "tanh' is taken of a where h belongs": a[t],
            "tanh' is taken of h where a belongs": np.tanh(h[t + 1]),
            "tanh' is taken of the state one step earlier": h[t],
        }.get(how, h[t + 1])
        da = (1 - slope_of * slope_of) * dh
        dx[t] = da @ p["Wxh"]
        dh = 0 * dh if how == "the gradient is not carried from step to step" else da @ back
        if (how, t) in (
            ("the first step is dropped from the weight gradients", 0),
            ("the last step is dropped from the weight gradients", T - 1),
        ):
            continue
        later = how == "the gradient of Whh takes h[t] for h[t-1]"
        g["Whh"] += da.T @ h[t + 1 if later else t]
        g["Wxh"] += da.T @ x[t]
        g["bh"] += da.sum(axis=0)
    return {
        "loss": loss,
        "outputs": v,
        **{f"d{name}": value for name, value in g.items()},
        "dx": dx,
        "dh0": dh.sum(axis=0),
        "dWhy": dv.T @ h[T],
        "dby": dv.sum(axis=0),
    }


def test_naive_backpropagation_is_right(small):
    params, batch, certified, sigma = small
    assert compare(naive(params, batch, "nothing"), certified, sigma=sigma).passed


@pytest.mark.parametrize(
    "how",
    [
        "time is reversed",
        "the reduction is sum instead of mean",
        "h0 is ignored",
        "the bias bh is left out (one of two biases only)",
        "dWhh is transposed",
        "x is read with batch and time swapped",
        "the first step of the sequence is dropped",
        "dbh is doubled: the gradients of two biases are added",
        "the gradient dh0 is missing (zero)",
        "Whh is transposed in the forward and backward pass",
        "Whh is transposed in the backward recursion only",
        "tanh' is taken of a where h belongs",
        "tanh' is taken of h where a belongs",
        "tanh' is taken of the state one step earlier",
        "the gradient is not carried from step to step",
        "the first step is dropped from the weight gradients",
        "the last step is dropped from the weight gradients",
        "the gradient of Whh takes h[t] for h[t-1]",
    ],
)
def test_convention_is_named(small, how):
    params, batch, certified, sigma = small
    verdict = compare(broken(SMALL, params, batch, how), certified, sigma=sigma)
    assert verdict.verdict == NOT_ROUNDING
    assert verdict.convention == how


def test_conventions_know_the_gain():
    net = RecurrentNet(2, 3, 3, gain=1.5)
    params, batch = drawn(net)
    theirs = results(net, params, batch)
    theirs["dbh"] = theirs["dbh"] / np.float32(1.5)
    certified = certify(net, params, batch)
    name = "dbh is 1 / gain = 0.666667 times the right one"
    assert compare(theirs, certified).convention == name
    turned = broken(net, params, batch, "time is reversed")
    assert compare(turned, certified).convention == "time is reversed"


def test_variants_of_the_callers_are_named(small):
    params, batch, certified, sigma = small
    half = {"bh": (params["bh"] / 2).astype(np.float32)}
    theirs = results(SMALL, {**params, **half}, batch)
    readings = Readings(certified, {"bias_hh_l0 is left out": half})
    verdict = compare(theirs, certified, sigma=sigma, readings=readings)
    assert verdict.convention == "bias_hh_l0 is left out"


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
    net, rng = RecurrentNet(inputs=2, hidden=8, outputs=3), np.random.default_rng(0)
    params = net.init(rng) | {"Whh": (1.8 * rng.standard_normal((8, 8))).astype(np.float32)}
    batch = Batch(rng.standard_normal((60, 1, 2)).astype(np.float32), np.array([1]))
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
    params, batch, certified, sigma = small
    assert not compare(results(SMALL, params, batch), certified, sigma=sigma).note


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
