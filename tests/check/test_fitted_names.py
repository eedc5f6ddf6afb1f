"""Names with something fitted: a constant, weights of a sum's parts, steps."""

import numpy as np
import pytest

from refnet.check import judge
from refnet.check.mistakes.base import mistake
from refnet.check.mistakes.constants import of_the_constants
from refnet.check.noise import unit
from refnet.check.programs.passes import run
from refnet.check.search import Search
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.judged import Judged
from support.marks import slow

pytestmark = pytest.mark.needs("flint")

T, B = 8, 4


@pytest.fixture(scope="module", params=["last", "every"])
def judged(request):
    net = RecurrentNet(2, 4, 3, "lstm", readout=request.param)
    return Judged(net, T, B, np.float64, seed=2)


@pytest.mark.parametrize(
    "judged, number",
    [
        *(("last", n) for n in (0, 2, 3, 5, 9)),
        ("every", 0),
        *slow(("last", 6), ("last", 12), ("last", 16), ("every", 9)),
    ],
    indirect=["judged"],
)
def test_constants_are_fitted(judged, number):
    constant = list(of_the_constants(judged.net))[number]
    wrong = constant.mistake(constant.neutral + 0.03)
    assert wrong.name in judged.name(wrong.run(judged.net, *judged.given))


def of(chosen, weight):
    """Pulls to targets of such a name count otherwise."""
    pulls = f"counted(s, lambda line, pull: pull.target.{chosen}, lambda t: {weight})"
    return {"pulls": pulls}


@pytest.mark.parametrize(
    "places, says",
    [
        (of("name[:3] == 'Wxh'", "t != 3"), "dWxh is left out at step 3"),
        (of("name[:2] == 'bh'", "1 + (t % 3 == 1)"), "2 times at steps 1, 4, 7"),
        (
            of("name == 'd c' and pull.target.step", "t != 5"),
            "that the cell carries is left out at step 5",
        ),
        ({"pulls": "counted(s, carried, lambda t: t % 3 > 0)"}, "truncated"),
        (
            {"lines": "scaled(s, 'h', lambda t: t != 2)"},
            "h[t+1], in the forward pass alone, is left out at step 2",
        ),
        ({"each": "(v[0] * W, v[1] * W[:, None])"}, "example 1 counts 2 times as much"),
    ],
)
def test_parts_of_sums_and_steps_are_found(judged, places, says):
    N = B if judged.net.readout == "last" else T * B
    weights = f"(1 + (np.arange({N}) % {B} == 1))"
    places = {place: text.replace("W[", f"{weights}[").replace("W,", f"{weights},")
              for place, text in places.items()}  # fmt: skip
    wrong = mistake("", **places)
    assert says in judged.name(wrong.run(judged.net, *judged.given))


def test_what_is_right_has_no_constant(judged):
    right = run(judged.net, *judged.given)
    assert judged.name(right) == ""
    rng = np.random.default_rng(0)
    noise = {
        name: value * (1 + 0.01 * rng.normal(size=value.shape)) for name, value in right.items()
    }
    if judged.net.readout == "last":  # a search of seconds for either
        assert judged.name(noise) == ""


def differences(f, w, step, order):
    """The gradient of f at w by finite differences."""
    result = np.zeros_like(w)
    for n in np.ndindex(w.shape):
        e = np.zeros_like(w)
        e[n] = step
        below = f(w - e) if order == 2 else f(w)
        result[n] = (f(w + e) - below) / (order * step)
    return result


@pytest.mark.parametrize(
    "step, order, says",
    [
        (1e-2, 2, "2e with e = 0.01"),
        (1e-5, 2, "d + e = 2e-05 or near"),
        (1e-4, 1, "- f(w)) / e with e = 0.0001"),
        (1e-8, 1, "d + e = 1e-08 or near"),
    ],
)
def test_finite_differences_are_named(step, order, says):
    """By their truncation, or where rounding is larger by the spacing of the losses."""
    case = Judged(RecurrentNet(2, 4, 3, "gru"), T, B, np.float64)

    def theirs(p, batch, scale=1):
        def loss(W):
            return loss_and_gradients(case.net, {**p, "Whh": W}, batch).loss

        right = loss_and_gradients(case.net, p, batch).gradients
        approximate = differences(loss, p["Whh"], step, order)
        return {**right, "Whh": right["Whh"] + scale * (approximate - right["Whh"])}

    name = case.judge(theirs(*case.given)).convention
    assert name.startswith("dWhh: finite differences, (f(w + e) - f(w") and says in name
    given = {"dWhh": theirs(*case.given, np.pi)["Whh"]}
    noisy = Search(case.readings, given, {"dWhh"}, case.sigma, unit(np.float64)).differences()
    assert not noisy or step > 1e-3 or "e = 0.000314" in noisy


@pytest.mark.parametrize("judged", ["last"], indirect=True)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_numbers_of_half_precision_are_no_finite_differences(judged, kind):
    named = judged.certified.named()
    right = {name: np.array(enclosure.value) for name, enclosure in named.items()}
    bits = right["dWhh"].astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    short = {"float16": right["dWhh"].astype(np.float16), "bfloat16": bits.view(np.float32)}
    assert f"in {kind}" in judged.name(right | {"dWhh": short[kind].astype(float)})


def test_finite_differences_of_a_function_are_named():
    def f(x):
        return np.tanh(x @ x).sum()

    x = np.random.default_rng(0).normal(size=(5, 5))
    name = judge(f, lambda x: {"dx": differences(f, x, 1e-4, 1)}, x).convention
    assert name == "dx: finite differences, (f(w + e) - f(w)) / e with e = 0.0001"
