"""Textbook forms that lose digits are explained and named; bugs of the same size are not."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.check import compare
from refnet.check.cases import reference_results
from refnet.check.userfunction import Described
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.exact import certify
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.byhand import lstm, softmax, usual_sigmoid
from support.judged import Judged
from support.marks import both_dtypes

pytestmark = pytest.mark.needs("flint")


def sigmoid_by_tanh(a):
    return a.dtype.type(0.5) * np.tanh(a.dtype.type(0.5) * a) + a.dtype.type(0.5)


def tanh_by_exp(a):
    up, down = np.exp(a), np.exp(-a)
    return (up - down) / (up + down)


@pytest.fixture(scope="module", params=["float32", "float64"])
def closed(request):
    """An LSTM whose input gates are nearly closed: s(a) of about 1e-5."""
    case = Judged(RecurrentNet(3, 6, 4, cell="lstm"), 8, 3, np.dtype(request.param), seed=1)
    case.params["bh"][:6] -= 12
    return case


def test_the_sigmoid_by_tanh_is_explained_and_named(closed):
    assert closed(lstm(*closed.given)).convention == ""
    theirs = lstm(*closed.given, sigmoid_by_tanh)
    verdict = closed(theirs)
    assert verdict.verdict == EXPLAINED
    assert "if the sigmoid is computed as (1 + tanh(a / 2)) / 2" in verdict.convention
    assert " ulp at " in verdict.convention and "tanh is" not in verdict.convention
    theirs |= {name: v / 2 for name, v in theirs.items() if name not in ("outputs", "h", "c")}
    divided = certify(closed.net, *closed.given, divisor=6.0)
    assert "the sigmoid is computed as" in compare(theirs, divided).convention


@pytest.mark.usefixtures("unnamed")
def test_a_bug_is_not_excused_by_a_form(closed):
    # a form may lose more than a hundredth of what passes a closed gate
    for leak, sigmoid in ((1e-2, usual_sigmoid), (-2, usual_sigmoid), (-2, sigmoid_by_tanh)):
        verdict = closed(lstm(*closed.given, sigmoid, leak=leak))
        assert verdict.verdict == NOT_ROUNDING, (leak, sigmoid, verdict.worst)


@pytest.mark.parametrize("dtype, shift", [(np.float32, 16), (np.float64, 30)])
def test_a_form_that_the_right_quantities_refute_excuses_no_bug(dtype, shift):
    """Were the sigmoid computed by tanh, h and c would have lost their digits, too."""
    case = Judged(RecurrentNet(3, 5, 5, cell="lstm"), 7, 3, dtype, seed=1)
    for gate in (0, 1, 3):
        case.params["bh"][5 * gate : 5 * gate + 5] -= dtype(shift)
    right = lstm(*case.given)
    assert case(right).passed
    for factor in (-1, 0, 1.1, 2):
        assert case({**right, "dWhh": right["dWhh"] * dtype(factor)}).verdict == NOT_ROUNDING
    assert "sigmoid" in case(lstm(*case.given, sigmoid_by_tanh)).convention


@both_dtypes
@pytest.mark.parametrize(
    "shift, form",
    [
        (8, lambda a: 1 - usual_sigmoid(-a)),
        (12, lambda a: 1 - usual_sigmoid(-a)),
        (30, sigmoid_by_tanh),
    ],
)
def test_the_sigmoid_of_nearly_closed_gates(shift, form, dtype):
    case = Judged(RecurrentNet(3, 6, 4, cell="lstm"), 30, 2, dtype)
    for gate in (0, 1, 3):
        case.params["bh"][6 * gate : 6 * gate + 6] -= dtype(shift)
    verdict = case(lstm(*case.given, form))
    assert "if the sigmoid is computed as" in verdict.convention, verdict.worst


@both_dtypes
@pytest.mark.parametrize(
    "form",
    [
        lambda a: 1 - 2 / (1 + np.exp(2 * a)),
        lambda a: 2 * usual_sigmoid(2 * a) - 1,
        tanh_by_exp,
        lambda a: np.sign(a) * (1 - np.exp(-2 * abs(a))) / (1 + np.exp(-2 * abs(a))),
    ],
)
def test_tanh_by_exp_of_tiny_numbers(form, dtype):
    """What is 1 + 1e-6 in between keeps ten bits in float32, whatever is done to it."""
    case = Judged(RecurrentNet(3, 5, 4, cell="lstm"), 6, 3, dtype)
    case.params["bh"] *= dtype(1e-6)
    case.batch.x[:] *= dtype(1e-6)
    verdict = case(lstm(*case.given, tanh=form))
    assert "if tanh is computed by exp" in verdict.convention, verdict.worst


def as_tensors(params):
    import torch

    return {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}


def cotangents(tensors):
    return {f"d{name}": value.grad.numpy() for name, value in tensors.items()}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("scale", [50, 100, 200])
def test_the_loss_by_log_sum_exp_is_explained_and_named(scale):
    """exp(v - logsumexp(v)) is off by the unit roundoff of logsumexp(v), of 100 or more."""
    import torch

    case = Judged(FeedforwardNet((4, 6, 5)), 0, 8, float)
    case.params["W2"] *= scale
    given = as_tensors(case.params)
    h = torch.tanh(torch.tensor(case.batch.x) @ given["W1"].T + given["b1"])
    v = h @ given["W2"].T + given["b2"]
    (torch.logsumexp(v, 1) - v[torch.arange(8), torch.tensor(case.batch.y)]).mean().backward()
    theirs = cotangents(given)
    assert case(theirs).passed
    theirs["db2"] = theirs["db2"] * (1 + 1e-12)
    assert case(theirs).verdict == NOT_ROUNDING


@pytest.mark.needs("torch")
@both_dtypes
@pytest.mark.usefixtures("unnamed")
def test_the_mix_of_a_gru_is_explained_and_named(dtype):
    """h + (1 - z) (n - h) passes 1 - (1 - z) of the gradient on, which keeps few digits of z."""
    import torch

    case = Judged(RecurrentNet(3, 6, 4, cell="gru"), 8, 2, dtype)
    case.params["bh"][:12] -= dtype(12)
    given = as_tensors({**case.params, "x": case.batch.x})
    h = torch.zeros(2, 6, dtype=given["bh"].dtype)
    for x in given["x"]:
        r, z, n = (x @ given["Wxh"].T + given["bh"]).chunk(3, 1)
        ur, uz, un = (h @ given["Whh"].T).chunk(3, 1)
        z = torch.sigmoid(z + uz)
        h = h + (1 - z) * (torch.tanh(n + torch.sigmoid(r + ur) * (un + given["bhn"])) - h)
    torch.nn.functional.cross_entropy(
        h @ given["Why"].T + given["by"], torch.tensor(case.batch.y)
    ).backward()
    theirs = cotangents(given)
    assert "if h is computed as h + (1 - z) (n - h)" in case(theirs).convention
    assert case({**theirs, "dWhh": -theirs["dWhh"]}).verdict == NOT_ROUNDING


@both_dtypes
@pytest.mark.parametrize(
    "form",
    [lambda a: 2 / (1 + np.exp(-2 * a)) - 1, lambda a: 1 - 2 / (np.exp(2 * a) + 1), tanh_by_exp],
)
def test_tanh_by_exp_of_either_sign(form, dtype):
    """One form keeps more digits on the left, another on the right of 0."""
    for seed in range(3):
        case = Judged(RecurrentNet(3, 20, 3), 2, 100, dtype, seed=seed)
        act = replace(case.net.activation, value=lambda a, p, alpha: form(a))
        verdict = case(reference_results(replace(case.net, activation=act), *case.given))
        assert verdict.verdict == EXPLAINED
        assert not verdict.convention or "if tanh is computed by exp" in verdict.convention


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize("dtype, seed", [(np.float32, 0), (np.float64, 2), (np.float64, 4)])
def test_the_coupled_gate_as_a_difference_is_explained_and_named(dtype, seed):
    """As the cell is defined; in float32 the noise of the gates covers it without a name. A tenth
    of a thousandth too much in one gate is no rounding."""
    described = Described(cell="cifg")
    net = described.net(16)
    params, batch = described.arrays(net, dtype, 20, 4, seed, at="large")
    certified = certify(net, params, batch)
    verdict = compare(lstm(params, batch, coupled=True), certified)
    assert verdict.verdict == EXPLAINED
    assert ("computed as 1 - i" in verdict.convention) == (dtype == np.float64)
    leaky = lstm(params, batch, leak=1e-4, coupled=True)
    assert compare(leaky, certified).verdict == NOT_ROUNDING


def autograd_of_softsign(a, h, dh, p, alpha, factor=1.0):
    size = 1 + abs(a)
    return dh / size - dh * a * np.sign(a) / size**2 * a.dtype.type(factor), {}


@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize("dtype, seed", [(np.float32, 3), (np.float64, 0)])
def test_the_slope_of_softsign_by_autograd_is_explained_and_named(dtype, seed):
    """PyTorch and JAX take the difference of two numbers that are nearly equal where |a| is large.
    A slope of which the second one is a thousandth too small is no rounding."""
    described = Described(activation="softsign")
    net = described.net(16)
    params, batch = described.arrays(net, dtype, 20, 4, seed, at="large")
    certified = certify(net, params, batch)

    def theirs(factor):
        other = replace(
            ACTIVATIONS["softsign"], pull=lambda *given: autograd_of_softsign(*given, factor=factor)
        )
        return reference_results(replace(net, activation=other), params, batch)

    verdict = compare(theirs(1), certified)
    assert verdict.verdict == EXPLAINED and "the slope of softsign" in verdict.convention
    assert compare(theirs(0.999), certified).verdict == NOT_ROUNDING


def test_softmax_without_the_shift_overflows_by_name():
    case = Judged(FeedforwardNet((3, 4)), 0, 3)
    case.params["b1"] += np.float32(95)
    x, y = case.batch[:2]
    with np.errstate(all="ignore"):
        e = np.exp(x @ case.params["W1"].T + case.params["b1"])
        dv = (e / e.sum(axis=1, keepdims=True) - np.eye(4, dtype=np.float32)[y]) / 3
    verdict = case({"dW1": (dv.T @ x).astype(np.float32), "db1": dv.sum(axis=0)})
    assert verdict.verdict == NOT_ROUNDING
    assert "without taking off the largest logit, which overflows here" in verdict.convention


def test_the_loss_by_log_softmax_is_explained_and_named():
    """A class that is nearly certain: log p of p near 1 is accurate only absolutely."""
    net = FeedforwardNet((2, 3))
    params = {"W1": np.zeros((3, 2), np.float32), "b1": np.float32([0, 12.3, 1.1])}
    batch = Batch(np.ones((2, 2), np.float32), np.array([1, 1]))
    certified = certify(net, params, batch)
    p = softmax(params["b1"][None])
    verdict = compare({"loss": np.float32(-np.log(p[0, 1]))}, certified, required=())
    assert verdict.passed


@pytest.fixture(scope="module")
def linear():
    return Judged(FeedforwardNet((3, 4)), 0, 3)


@pytest.mark.parametrize(
    "given, judged, assumed",
    [
        ({}, "float64", "float64"),
        ({"dW1": np.float16}, "float16, float64", "float16: dW1"),
        ({"loss": float}, "float64", "of no type of their own"),
    ],
)
def test_each_array_is_judged_by_its_own_type(linear, given, judged, assumed):
    params = {name: value.astype(float) for name, value in linear.params.items()}
    batch = linear.batch._replace(x=linear.batch.x.astype(float))
    theirs = reference_results(linear.net, params, batch)
    theirs = {name: theirs[name] for name in ("loss", "dx", "db1", "dW1")}
    theirs |= {name: kind(theirs[name]) for name, kind in given.items()}
    verdict = linear(theirs)
    assert verdict.passed and verdict.dtype == judged and assumed in verdict.assumed
    assert {part.name: part.dtype for part in verdict.parts}["db1"] == "float64"
    theirs["db1"] = theirs["db1"] * (1 + 5e-4)  # once explained by another array's float16
    assert linear(theirs).verdict == NOT_ROUNDING


@pytest.mark.parametrize("number", [float, lambda v: np.array(float(v)), np.float64])
def test_a_number_without_a_type_is_judged_as_the_arrays_are(linear, number):
    verdict = linear.changed(loss=number(linear.right["loss"]))
    assert verdict.passed and verdict.dtype == "float32"


@pytest.mark.parametrize("held", [list, memoryview, np.ctypeslib.as_ctypes])
def test_numbers_in_other_containers_have_a_type_too(linear, held):
    """Lists of rows, and buffers of C: their numbers are float32, and so is their rounding."""
    right = linear.right
    theirs = {name: held(np.ascontiguousarray(right[name])) for name in ("dW1", "db1")}
    verdict = linear(theirs)
    assert verdict.passed and verdict.dtype == "float32"
    theirs["dW1"] = held(right["dW1"] * np.float32(1 + 1e-4))
    assert linear(theirs).verdict == NOT_ROUNDING


@pytest.mark.parametrize("name, entry", [("dWhh", 1e-3), ("dWhh", 1e-200), ("dx", 1e-3)])
def test_gradients_that_are_exactly_zero_or_vanish_are_judged(name, entry):
    """One step from h0 = 0: dWhh is exactly 0, which no norm may divide by."""
    case = Judged(RecurrentNet(2, 4, 3), 1, 1, np.float64)
    if name == "dx":  # a gradient whose squares underflow
        case.params["Why"] *= 1e-200
    assert case.changed().passed
    assert case.changed(**{name: case.right[name] + entry}).verdict == NOT_ROUNDING
