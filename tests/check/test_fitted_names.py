"""Names with something fitted: a constant, weights of a sum's parts, steps."""

import numpy as np
import pytest

from refnet.check import compare
from refnet.check.cases import random_batch, random_params
from refnet.check.conventions import Readings
from refnet.check.mistakes.base import mistake
from refnet.check.mistakes.constants import of_the_constants
from refnet.check.naive import run
from refnet.check.noise import spread
from refnet.exact import certify
from refnet.nets.recurrent import RecurrentNet

pytestmark = pytest.mark.needs("flint")

T, B = 8, 4


@pytest.fixture(scope="module", params=["last", "every"])
def judged(request):
    net = RecurrentNet(2, 4, 3, "lstm", readout=request.param)
    rng = np.random.default_rng(2)
    params, batch = random_params(net, rng, np.float64), random_batch(net, rng, np.float64, T, B)
    certified = certify(net, params, batch)
    how = {"sigma": spread(certified, np.float64), "readings": Readings(certified, pairs=False)}
    return certified, lambda theirs: compare(theirs, certified, required=(), **how).convention


@pytest.mark.parametrize("number", [0, 2, 3, 5, 6, 9, 12, 16])
def test_constants_are_fitted(judged, number):
    certified, name_of = judged
    constant = list(of_the_constants(certified.net))[number]
    wrong = constant.mistake(constant.neutral + 0.03)
    theirs = wrong.run(certified.net, certified.params, certified.batch)
    assert wrong.name in name_of(theirs)


@pytest.mark.parametrize(
    "places, says",
    [
        ({"parts": "{**v, 'Wxh': v['Wxh'] * (s.t != 3)}"}, "step 3 is left out of dWxh"),
        ({"parts": "{**v, 'bh': v['bh'] * (1 + (s.t % 3 == 1))}"}, "every 3th step, from step 1"),
        ({"carry": "(v[0], v[1] * (s.t != 5))"}, "carried by the cell c at step 5"),
        ({"carry": "(v[0] * (s.t % 3 > 0), v[1] * (s.t % 3 > 0))"}, "truncated"),
        ({"h": "v * (s.t != 2)"}, "the state is set to zero"),
        ({"into_x": "np.where(np.arange(16) // 4 == 3, 0, v)"}, "gate o is left out of dx"),
        ({"each": "(v[0] * W, v[1] * W[:, None])"}, "example 1 counts 2 times as much"),
    ],
)
def test_parts_of_sums_and_steps_are_found(judged, places, says):
    certified, name_of = judged
    N = B if certified.net.readout == "last" else T * B
    weights = f"(1 + (np.arange({N}) % {B} == 1))"
    places = {place: text.replace("W[", f"{weights}[").replace("W,", f"{weights},")
              for place, text in places.items()}  # fmt: skip
    wrong = mistake("", **places)
    assert says in name_of(wrong.run(certified.net, certified.params, certified.batch))


def test_what_is_right_has_no_constant(judged):
    certified, name_of = judged
    right = run(certified.net, certified.params, certified.batch)
    assert name_of(right) == ""
    rng = np.random.default_rng(0)
    noise = {
        name: value * (1 + 0.01 * rng.normal(size=value.shape)) for name, value in right.items()
    }
    assert name_of(noise) == ""
