"""One number kind a computation: lifted where that is exact, refused where it is not."""

from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.maths.activations import ACTIVATIONS, activation
from refnet.maths.dual import Dual, dual_array
from refnet.maths.kinds import _fixed, fix, join, kind, same_kind
from refnet.maths.linalg import expm, qr, solve
from refnet.maths.numeric import clamp, constant, divided, matmul, nonpositive, tanh, times
from refnet.matrices import stiefel
from refnet.matrices.orthogonality import defect, defect_and_gradient, open_penalty, open_update
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import hvp, jvp, loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.states import state_jacobians
from refnet.training.clipping import clip_by_norm, clip_by_value
from refnet.training.optimizers import SGD, Adam, Momentum, RMSprop
from refnet.training.penalties import weight_decay
from support.arguments import refused
from support.drawn import drawn
from support.strategies import SMALL


def test_types_of_a_fixed_array_are_known_as_long_as_it_is_there():
    """Of any other one they are read again, though it could not be written to for a while."""
    a = objects([F(1, 2), F(1, 3)])
    assert kind(fix(a)) is kind(a[1:]) is F
    with refused("read-only"):
        a[0] = F(1)
    before = len(_fixed)
    del a
    assert len(_fixed) == before - 1
    b = objects([F(1, 2)])
    for value, number in ((F(1), F), (1.0, float)):
        b.flags.writeable = True
        b[0] = value
        b.flags.writeable = False
        assert kind(b) is number


def objects(values):
    return np.array(values, object)


def exact(array):
    """Fractions near the floats, so that nothing cancels."""
    return np.vectorize(lambda v: F(round(float(v) * 97), 97), otypes=[object])(array)


def case(net, dtype=np.float64):
    return drawn(net, 3, 2, dtype)


def lifted(net):
    params, batch = case(net)
    return (
        {name: exact(value) for name, value in params.items()},
        batch._replace(x=exact(batch.x), y=exact(batch.y)),
    )


RELU = RecurrentNet(2, 3, 2, activation="relu", loss="squared_error")


def entries_are(number, *arrays):
    return all(type(value) is number for array in arrays for value in np.ravel(array))


# the kind of an array


def test_kind_reads_every_entry():
    assert kind(objects([0, F(1, 2)])) is F
    assert kind(objects([0, 1])) is int and kind(np.zeros(0, object)) is int
    assert kind(objects([0.5, np.float32(1), 1j, 0])) is float
    assert kind(objects([0, Dual(F(1), F(0)), F(1, 2)])) is Dual
    for mixed in (
        [F(1), 0.5],
        [0, F(1), 0.5],
        [Dual(F(1), F(0)), 0.5],
        [Dual(F(1), 0.5)],
        [Dual(F(1), F(0)), Dual(0.5, 0.0)],
    ):
        with refused("different types.*Fraction"):
            kind(objects(mixed))


def test_products_refuse_a_mixture():
    a = objects([[0, F(1, 2)]])
    assert entries_are(F, matmul(a, a.T))
    with refused("Fraction and float"):
        matmul(a, np.ones((2, 1)))
    with refused("Fraction and float"):
        solve(objects([[F(1), 0.5], [0, F(1)]]), a.T)
    with refused("Fraction and float"):
        dual_array(objects([F(1)]), np.array([0.5]))


def test_ints_are_exact_in_every_kind():
    ints = objects([[2, 1], [1, 3]])
    assert (divided(ints, 2) == objects([[1, F(1, 2)], [F(1, 2), F(3, 2)]])).all()
    assert (times(0.5, ints) == divided(ints, 2)).all()
    assert (matmul(ints, solve(ints, ints)) == ints).all()
    assert kind(solve(ints, objects([[1], [1]]))) is F
    assert entries_are(Dual, divided(objects([Dual(1, 0), 1]), 3))
    assert Dual(1, 2) / 3 == Dual(F(1, 3)) and type((Dual(1, 2) / 3).d) is F
    clamped, changed = clamp(objects([F(-2), 0, F(1, 3)]), 0.25)
    assert changed == 2 and clamped.tolist() == [F(-1, 4), 0, F(1, 4)]
    assert kind(clamped) is F and entries_are(F, constant(0.01, objects([F(1)])))
    value, gradient = defect_and_gradient(ints, "mean_square")
    assert value == F(147, 4) and kind(gradient) in (int, F)


def test_integer_arrays_become_floats():
    W = np.array([[2, 1], [1, 3]], np.int8) * np.int8(40)
    plain = W.astype(float)
    assert solve(W, W).dtype == float and abs(solve(W, W) - np.eye(2)).max() < 1e-15
    assert (qr(W)[1] == qr(plain)[1]).all()
    assert (expm(W // 40).value == expm(plain / 40).value).all()
    assert defect(W) == defect(plain)  # int8 would wrap around
    step = stiefel.step(np.eye(2, dtype=int), plain / 100, 0.1)
    assert (step == stiefel.step(np.eye(2), plain / 100, 0.1)).all()


# the door of a net


@pytest.mark.parametrize(
    "net",
    [
        RELU,
        replace(RELU, cell="lstm", activation="tanh"),
        FeedforwardNet((2, 3, 2), loss="squared_error"),
        replace(RELU, transition=transition("cayley"), gain=1.05),
    ],
    ids=["rnn", "lstm", "layers", "cayley"],
)
@pytest.mark.parametrize("integer", [np.int64, np.int8, np.int16])
def test_integers_are_lifted(net, integer):
    """Parameters, inputs and targets of integers: what float64 gives, not truncated."""
    params, batch = case(net)
    params = {name: (9 * value).astype(integer) for name, value in params.items()}
    x, y = (2 * batch.x).astype(integer), batch.y.astype(integer)
    plain = {name: value.astype(float) for name, value in params.items()}
    want = loss_and_gradients(net, plain, Batch(x.astype(float), y.astype(float)))
    computed = loss_and_gradients(net, params, Batch(x, y))
    assert computed.loss == want.loss and computed.loss.dtype == float
    for name, value in want.gradients.items():
        assert (computed.gradients[name] == value).all()
        assert computed.gradients[name].dtype == float
    single = {name: value.astype(np.float32) for name, value in params.items()}
    assert {g.dtype for g in loss_and_gradients(net, single, Batch(x, y)).gradients.values()} == {
        np.dtype(np.float32)
    }


def test_one_dtype_comes_out():
    params, batch = case(RELU, dtype=np.float32)
    halves = np.array([[0.5, 1], [2, 0]])
    result = loss_and_gradients(RELU, params, batch._replace(y=halves))  # exact in float32
    assert {g.dtype for g in (*result.gradients.values(), result.loss)} == {np.dtype(np.float32)}
    after, _ = SGD(0.1).step(params, result.gradients, SGD(0.1).init(params))
    assert all(value.dtype == np.float32 for value in after.values())
    with refused(r"targets y is float64.*float32.*\(0, 1\), 0.1"):
        loss_and_gradients(RELU, params, batch._replace(y=np.array([[0, 0.1], [0, 0]])))
    with refused(r"x is float64.*float32.*entry"):
        loss_and_gradients(RELU, params, batch._replace(x=batch.x.astype(float) + 0.1))
    with refused("Wxh is float64 while.*float32.*one dtype"):
        loss_and_gradients(RELU, {**params, "Wxh": params["Wxh"].astype(float)}, batch)
    with refused("x is complex128 while.*real"):
        loss_and_gradients(RELU, params, batch._replace(x=batch.x.astype(complex)))
    with refused("gradient of Whh is float64"):
        loss_and_gradients(RELU, params, batch, penalty=lambda p: (0.0, {"Whh": 0.1 * np.eye(3)}))
    with refused("gradient of Wxh is float64 while.*float32"):
        SGD(0.1).step(
            params,
            {n: v + 0.1 * np.ones(v.shape) for n, v in params.items()},
            SGD(0.1).init(params),
        )


def test_wider_kinds_take_narrower_numbers():
    params, batch = case(RELU)
    narrow = Batch(batch.x.astype(np.float16), batch.y.astype(np.float32))
    wide = Batch(narrow.x.astype(float), narrow.y.astype(float))
    computed, want = (loss_and_gradients(RELU, params, b) for b in (narrow, wide))
    assert computed.loss == want.loss and (computed.gradients["x"] == want.gradients["x"]).all()
    with refused(r"x is int64.*does not hold its entry"):
        loss_and_gradients(RELU, params, batch._replace(x=np.full(batch.x.shape, 2**53 + 1)))


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("x", np.ones((3, 2, 2)), "x is float64.*lift both"),
        ("y", np.ones((2, 2)), "targets y is float64.*lift both"),
        ("Whh", np.ones((3, 3)), "Whh is float64.*lift both"),
        ("bh", objects([1.0, 2.0, 3.0]), "bh.*floats"),
        ("bh", objects([F(1), 0.5, 2]), "bh: .*Fraction and float"),
        ("y", objects([[1.0, 2.0]] * 2), "y.*Fraction and float"),
    ],
)
def test_fractions_and_floats_do_not_mix(name, value, message):
    params, batch = lifted(RELU)
    if name in params:
        params[name] = value
    else:
        batch = batch._replace(**{name: value})
    with refused(message):
        loss_and_gradients(RELU, params, batch)


def test_tangents_are_of_one_kind():
    params, batch = lifted(RELU)
    with refused("do not mix"):
        jvp(RELU, params, batch, {"Whh": np.ones((3, 3))})
    along = hvp(RELU, params, batch, {"Whh": params["Whh"]})
    assert entries_are(F, *along.values())
    ints = {name: np.ones(value.shape, int) for name, value in params.items()}
    x = np.ones(batch.x.shape, int)
    assert state_jacobians(RELU, ints, x).dtype == float
    single = {name: value.astype(np.float32) for name, value in ints.items()}
    outputs, loss = jvp(RELU, single, Batch(x, np.ones((2, 2))), {"Whh": single["Whh"]})
    assert outputs.dtype == loss.dtype == np.float32


def test_same_kind_leaves_what_is_right():
    params, batch = case(RELU)
    assert same_kind(params, batch.x)[0] is params and same_kind(params, batch.x)[1] is batch.x
    assert join("y", batch.y, "outputs", batch.y) is batch.y


# constants are exact on exact numbers

SETTINGS = [
    {"gain": 1.05},
    {"gain": F(21, 20)},
    {"clip_step": 0.01},
    {"clip_step": F(1, 100)},
    {"readout": "every"},
    {"reduction": "batch_mean", "readout": "every"},
]


def assert_exact(net, params, batch):
    result = loss_and_gradients(net, params, batch)
    gradients = {name: value for name, value in result.gradients.items() if name != "clipped"}
    assert entries_are(F, result.loss, result.outputs, *gradients.values())


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize(
    "act",
    [activation("leaky_relu", alpha=0.3), ACTIVATIONS["softsign"], ACTIVATIONS["prelu"]],
    ids=lambda act: act.name,
)
def test_fractions_stay_fractions(setting, act):
    """Also with parameters that are all ints, and with a mask."""
    net = replace(RELU, activation=act, **setting)
    params, batch = lifted(net)
    if net.readout == "every":
        mask = np.array([[True, True], [True, False], [False, False]])
        batch = batch._replace(mask=mask)
    assert_exact(net, params, batch)
    signs = {name: objects(np.sign(v.astype(float)).astype(int)) for name, v in params.items()}
    x, y = (objects(np.sign(v.astype(float)).astype(int)) for v in (batch.x, batch.y))
    assert_exact(net, signs, batch._replace(x=x, y=y))


@pytest.mark.parametrize("gain", [1.05, F(1.05)])
def test_gain_is_its_exact_value(gain):
    """The gain enters as its binary value: as if Whh, Wxh and bh had been multiplied by it."""
    params, batch = lifted(RELU)
    scaled = {
        name: value * (F(1.05) if name in ("Whh", "Wxh", "bh") else 1)
        for name, value in params.items()
    }
    computed = loss_and_gradients(replace(RELU, gain=gain), params, batch)
    assert computed.loss == loss_and_gradients(RELU, scaled, batch).loss
    floats, batch = case(RELU, dtype=np.float32)
    for state_ in (1.05, np.float64(1.05), F(1.05)):
        result = loss_and_gradients(replace(RELU, gain=state_), floats, batch)
        assert {g.dtype for g in result.gradients.values()} == {np.dtype(np.float32)}


def test_penalties_and_clipping_are_exact():
    """With constants in floats, which stand for their binary values."""
    W = {"W": objects([[F(1, 3), 0], [F(-2, 7), F(5)]])}
    value, grads = weight_decay(W, 0.01)
    assert value[()] == F(0.01) * (W["W"] ** 2).sum() and (grads["W"] == 2 * F(0.01) * W["W"]).all()
    value, grads = open_penalty(W, 0.01, "mean_square")
    assert value[()] == F(0.01) * defect(W["W"], "mean_square")[()] and kind(grads["W"]) is F
    assert kind(open_update(W["W"], 0.1, 0.01)) is F
    clipped = clip_by_value(W, 0.3)
    assert clipped.grads["W"][0, 0] == F(0.3) and kind(clipped.grads["W"]) is F
    with refused("gradient of W holds exact numbers"):
        clip_by_norm(W, 1.0)


def test_dual_numbers_at_a_kink():
    """A dual ball around 0 is not decided, as the ball is not; NaN still propagates."""
    flint = pytest.importorskip("flint")
    around = objects([Dual(flint.arb(0, 1), flint.arb(1))])
    with refused("not decided", ArithmeticError):
        nonpositive(around)
    with np.errstate(invalid="ignore"):
        assert not nonpositive(objects([Dual(float("nan"), 0.0)]))[0]


# balls and fmpq


def two_steps(rule, start):
    params, state = start, rule.init(start)
    for _ in range(2):
        params, state = rule.step(params, start, state)
    return params["W"]


def test_constants_on_balls_and_fast_rationals():
    """A gain and a clip as floats and as Fractions, a rational alpha, on both exact types."""
    flint = pytest.importorskip("flint")
    from refnet.exact import certify
    from refnet.exact.convert import lift, lift_all

    params, batch = lifted(replace(RELU, activation="leaky_relu"))
    for gain in (1.05, F(21, 20)):
        for clip in (None, 0.01, F(1, 100)):
            net = replace(
                RELU, activation=activation("leaky_relu", F(1, 3)), gain=gain, clip_step=clip
            )
            want = loss_and_gradients(net, params, batch)
            fast, ball = (certify(net, params, batch, kind=name) for name in ("rational", "ball"))
            assert fast.gradients.keys() == want.gradients.keys() - {"clipped"}
            for name, computed in fast.gradients.items():
                value = want.gradients[name]
                assert (lift(computed.exact, "fraction") == value).all(), name
                assert (ball.gradients[name].value == computed.value).all(), name
    at = lift_all({"W": np.array([[0.5, -2], [0.25, 3]])}, "ball")
    rules = (RMSprop(0.1, first=0.3), Adam(F(1, 10), eps=F(1, 10**8)), Momentum(0.1))
    for rule in rules:
        balls, floats = two_steps(rule, at), two_steps(rule, {"W": at["W"].astype(float)})
        assert kind(balls) is flint.arb and abs(balls.astype(float) - floats).max() < 1e-14
    angle = lift(np.array([[0, 0], [0.4, 0]]), "ball")
    with refused("Fraction and arb|arb and Fraction|arb and float"):
        matmul(angle, objects([[F(1)], [0]]))


def test_exponential_of_an_unknown_type_is_refused():
    from decimal import Decimal

    with refused("expm of Decimal", TypeError):
        expm(objects([[Decimal(1)]]))


@pytest.mark.parametrize("name", ["expm", "schur"])
def test_functions_that_fractions_lack(name):
    """e^X of Fractions is a polynomial, known as such; a cosine is refused by name."""
    form = transition(name)
    parts_of = {key: exact(value) for key, value in form.init(np.eye(2)).items()}
    if name == "schur":
        with refused("cos of Fraction", TypeError):
            form.matrix(parts_of)
    else:
        assert entries_are(F, form.matrix(parts_of)[0] + F(0))
    with refused("tanh of Fraction", TypeError):
        tanh(objects(SMALL[:2]))


def test_an_array_without_numbers_is_named():
    fractions, text = np.array([F(1, 2)], object), np.array(["a"], object)
    for params, wrong in (({"W": fractions, "b": text}, "b"), ({"W": text, "b": fractions}, "W")):
        with refused(f"^{wrong} is an object array of floats, or"):
            same_kind(params, fractions)


def test_integers_up_to_the_largest_that_float64_holds():
    for value, dtype, held in (
        (2**63, np.uint64, True),
        (2**64 - 2**11, np.uint64, True),
        (2**64 - 1, np.uint64, False),
        (2**63 - 1, np.int64, False),
    ):
        array = np.array([value], dtype)
        if held:
            assert int(join("y", array, "x", np.ones(1))[0]) == value
        else:
            with refused("does not hold its entry"):
                join("y", array, "x", np.ones(1))
