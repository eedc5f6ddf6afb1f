"""A function's mistake has a name: axes, another argument's gradient, factors, types, cotangents;
a right result has none, and a mistake of another kind none either."""

import numpy as np
import pytest

from refnet import Batch, RecurrentNet, loss_and_gradients
from refnet.check import judge
from refnet.exact import certify_function
from support.arguments import refused

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(4)
P = {"W": RNG.normal(size=(4, 4)), "layers": [RNG.normal(size=4), RNG.normal(size=4)]}
X = RNG.normal(size=(5, 4))
Y = RNG.normal(size=(2, 3, 4))


def f(p, x, y):
    h = np.tanh(x @ p["W"] + p["layers"][0]) * p["layers"][1]
    return (h * x[:, :1]).sum() + (y**2 * np.arange(1, 4)[:, None]).sum()


RIGHT = {name: e.value for name, e in certify_function(f, P, X, Y).named().items()}


def nested(results):
    return {
        "value": results["value"],
        "dp": {"W": results["dp.W"], "layers": [results["dp.layers.0"], results["dp.layers.1"]]},
        "dx": results["dx"],
        "dy": results["dy"],
    }


EDITS = {
    "dp.W is transposed": lambda r: {"dp.W": r["dp.W"].T},
    "dy has its axes in the order (1, 0, 2)": lambda r: {"dy": r["dy"].transpose(1, 0, 2)},
    "dx is stored in the other memory order": lambda r: {"dx": r["dx"].ravel("F").reshape(5, 4)},
    "dx is reversed along axis 0": lambda r: {"dx": r["dx"][::-1]},
    "dx is shifted by one along axis 0 (later), with zeros": lambda r: {
        "dx": np.pad(r["dx"][:-1], ((1, 0), (0, 0)))
    },
    "dy lacks the last entry along axis 1": lambda r: {"dy": r["dy"] * (np.arange(3) < 2)[:, None]},
    "dp.layers.0 and dp.layers.1 stand in each other's place": lambda r: {
        "dp.layers.0": r["dp.layers.1"],
        "dp.layers.1": r["dp.layers.0"],
    },
    "dp.layers.0 holds the gradient dp.layers.1": lambda r: {"dp.layers.0": r["dp.layers.1"]},
    "dx is multiplied by x": lambda r: {"dx": r["dx"] * X},
    "dx is 1 / x.shape[0] = 0.2 times the right one": lambda r: {"dx": r["dx"] / 5},
    "dp.layers.1 has the wrong sign": lambda r: {"dp.layers.1": -r["dp.layers.1"]},
    "the gradient dy is missing (zero)": lambda r: {"dy": 0 * r["dy"]},
    "the value is 1 / 20 = 1 / x.size times": lambda r: {"value": r["value"] / 20},
    "every gradient is halved": lambda r: {n: v / 2 for n, v in r.items() if n != "value"},
    "the value and every gradient are 7 times": lambda r: {n: 7 * v for n, v in r.items()},
    "dp.W is made skew-symmetric: (G - G') / 2": lambda r: {"dp.W": (r["dp.W"] - r["dp.W"].T) / 2},
    "dp.W is transposed; dx is doubled": lambda r: {"dp.W": r["dp.W"].T, "dx": 2 * r["dx"]},
    "": lambda r: {"dx": r["dx"] + np.sin(np.arange(20)).reshape(5, 4)},
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_has_its_name(name):
    verdict = judge(f, nested({**RIGHT, **EDITS[name](RIGHT)}), P, X, Y)
    assert verdict.verdict == "not rounding"
    assert verdict.convention.startswith(name) and bool(verdict.convention) == bool(name)


def test_a_pattern_is_no_name():
    wrong = {"dp.W": RIGHT["dp.W"] * np.array([[1.1], [0.7], [1.3], [2.9]])}
    verdict = judge(f, nested({**RIGHT, **wrong}), P, X, Y)
    assert "a factor for each row" in "\n".join(verdict.where) and not verdict.convention


def test_a_right_result_has_no_name():
    verdict = judge(f, nested(RIGHT), P, X, Y)
    assert verdict.passed and not verdict.convention


def coarse(dtype):
    """Another program of f, whose products are in a coarser type."""

    def program(p, x, y):
        W, x32 = p["W"].astype(dtype), x.astype(dtype)
        a = np.tanh((x32 @ W).astype(float) + p["layers"][0])
        d = (1 - a * a) * p["layers"][1] * x[:, :1]
        dx = (d.astype(dtype) @ W.T).astype(float)
        dx[:, 0] += (a * p["layers"][1]).sum(axis=1)
        return nested(
            {
                "value": f(p, x, y),
                "dp.W": (x32.T @ d.astype(dtype)).astype(float),
                "dp.layers.0": d.sum(axis=0),
                "dp.layers.1": (a * x[:, :1]).sum(axis=0),
                "dx": dx,
                "dy": 2 * y * np.arange(1, 4)[:, None],
            }
        )

    return program


def test_a_coarser_type_inside():
    """Where all is affected it has a name; a smooth mistake of that size has none."""

    def everything(p, x):
        return (x @ p).sum()

    def in_float32(p, x):
        p, x = p.astype(np.float32), x.astype(np.float32)
        ones = np.ones((len(x), p.shape[1]), np.float32)
        results = {"value": (x @ p).sum(), "dp": x.T @ ones, "dx": ones @ p.T}
        return {name: np.asarray(value, float) for name, value in results.items()}

    assert "in float32" in judge(everything, in_float32, P["W"], X).convention
    assert judge(f, coarse(float), P, X, Y).passed
    verdict = judge(f, coarse(np.float32), P, X, Y)
    assert verdict.verdict == "not rounding" and "perhaps" not in verdict.convention

    def scaled(p, x):
        return {n: v * (1 + 3e-8) for n, v in in_float64(p, x).items()}

    def in_float64(p, x):
        ones = np.ones((len(x), p.shape[1]))
        return {"value": (x @ p).sum(), "dp": x.T @ ones, "dx": ones @ p.T}

    assert "float32" not in judge(everything, scaled, P["W"], X).convention


def test_a_cotangent_that_is_ignored():
    w = RNG.normal(size=(5, 4))
    verdict = judge(
        lambda x, W: np.tanh(x @ W),
        lambda x, W: {"dx": (1 - np.tanh(x @ W) ** 2) @ W.T, "dW": x.T @ (1 - np.tanh(x @ W) ** 2)},
        X,
        P["W"],
        cotangent=w,
    )
    assert verdict.convention.startswith("the cotangent is ignored")


def test_conjugated_gradients():
    z = X + 1j * X[::-1]
    theirs = {"dz": 2 * z.conj()}
    verdict = judge(lambda z: (abs(z) ** 2).sum(), theirs, z)
    assert verdict.convention == "dz is conjugated, which is JAX's convention"
    assert judge(lambda z: (abs(z) ** 2).sum(), {"dz": 2 * z}, z).passed


NET = RecurrentNet(2, 3, 2, backend="reference")
PARAMS = NET.init(RNG)
BATCH = Batch(RNG.normal(size=(4, 2, 2)).astype(np.float32), np.array([0, 1]))
MASKED = BATCH._replace(mask=np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool))


def of_batch(params, batch):
    return loss_and_gradients(NET, params, batch).gradients


@pytest.mark.parametrize("batch", [BATCH, MASKED], ids=["lengths alike", "mask"])
def test_both_signatures_of_a_net(batch):
    """What ``check function`` calls, ``judge`` calls, and the reverse."""

    def one_by_one(p, x, y, mask=None):
        return of_batch(p, Batch(x, y, mask))

    assert judge(NET, of_batch, PARAMS, batch).passed
    assert judge(NET, one_by_one, PARAMS, batch).passed
    assert judge(NET, lambda *given: of_batch(*given), PARAMS, batch).passed


@pytest.mark.parametrize(
    "theirs, batch, says",
    [
        (lambda p: {}, BATCH, r"takes 1 arguments; need theirs\(params, batch\) or"),
        (lambda p, x, y: {}, MASKED, r"the batch has a mask; .*theirs\(params, x, y, mask\)"),
        (lambda p, x, y, mask: {}, BATCH, r"the batch has no mask; .*theirs\(params, x, y\)"),
    ],
)
def test_other_signatures_are_refused(theirs, batch, says):
    with refused(says, TypeError):
        judge(NET, theirs, PARAMS, batch)
