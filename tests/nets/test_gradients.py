"""Derivatives against each other, on every number type, each oracle with bugs it rejects."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

import refnet.cells.rnn as rnn
from refnet.batch import Batch
from refnet.compiled.kernels import KERNELS
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.gradients import hvp, jvp, loss_and_gradients, per_example_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients, state_jacobians
from support.arguments import refused
from support.drawn import drawn
from support.marks import both_backends
from support.oracles import dot, loss_push_minus_pull, planted, rounding_bound
from support.rational import RNN_BUGS, generic_case
from support.strategies import SMOOTH, Case, feedforward_cases, rnn_cases


@given(rnn_cases(names=SMOOTH, exact=False, loss="cross_entropy"))
def test_complex_step(case):
    """Where the net is smooth, <gradient, direction> is the complex step's to a few eps."""
    assert abs(loss_push_minus_pull(case)) <= rounding_bound(case)


@given(rnn_cases(names=["elu", "leaky_relu", "prelu", "relu"], exact=False, loss="squared_error"))
def test_complex_step_with_kinks(case):
    """A kink is decided by the real part alone. Its rounding may differ between real and
    complex products, so a pre-activation that is zero but for rounding is left out."""
    tape = case.net.forward(case.params, case.batch.x, case.batch.mask)[1].cell
    assume((abs(tape.a) > 2.0**-40).all())  # 2^12 eps: far above the rounding of a short sum
    assert abs(loss_push_minus_pull(case)) <= 16 * rounding_bound(case)


@given(feedforward_cases(names=SMOOTH, exact=False, loss="cross_entropy"))
def test_complex_step_feedforward(case):
    assert abs(loss_push_minus_pull(case)) <= rounding_bound(case)


SOFT = RecurrentNet(2, 3, 2, activation="softsign", loss="squared_error", backend="reference")


def float_case(net, seed=0, B=3):
    params, batch = drawn(replace(net, learn_h0=True), 4, B, np.float64, seed)
    rng = np.random.default_rng(seed)
    direction = {
        name: rng.choice([-1.0, 1.0], value.shape)
        for name, value in {**params, "x": batch.x}.items()
    }
    return Case(net, params, batch, direction, None)


def magnitude_case(dtype):
    net = RecurrentNet(2, 4, 3, activation="elu", backend="reference")
    params, batch = drawn(replace(net, learn_h0=True), 4, 2, dtype)
    rng = np.random.default_rng(21)
    return (
        net,
        params,
        batch,
        {
            name: rng.choice(np.array([-1, 1], dtype), value.shape)
            for name, value in {**params, "x": batch.x}.items()
        },
    )


def scales(dtype):
    """Powers of two over the type's range, but for what the tangent itself needs of it."""
    top = np.finfo(dtype).maxexp - 20
    return [np.ldexp(np.ones((), dtype), int(n)) for n in np.linspace(-top, top, 13)]


def magnitudes_disagree(dtype):
    """The first power of two by which scaling a direction does not scale its tangents, or None."""
    net, params, batch, v = magnitude_case(dtype)

    def tangents(direction):
        return *jvp(net, params, batch, direction), *hvp(net, params, batch, direction).values()

    usual, tiny = tangents(v), np.finfo(dtype).tiny
    for scale in scales(dtype):
        # beside the smallest numbers, what is rounded there
        allowed = 0 if scale >= 1 else tiny
        scaled = tangents({name: value * scale for name, value in v.items()})
        if not all(np.all(abs(a - b * scale) <= allowed) for a, b in zip(scaled, usual)):
            return scale
    return None


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_directions_of_any_magnitude(dtype):
    """The tangent is linear in the direction: a power of two goes through exactly."""
    assert magnitudes_disagree(dtype) is None


def test_a_step_that_is_not_scaled_is_rejected(monkeypatch):
    monkeypatch.setattr(np, "frexp", lambda value: (value, np.zeros(np.shape(value), int)))
    assert magnitudes_disagree(np.float64) is not None


def test_a_direction_of_mixed_magnitudes_is_a_sum():
    """One sequence is pushed by 1e250, the other by 1e-250: each as if it were alone."""
    net, params, batch, v = magnitude_case(np.float64)
    push = np.zeros_like(batch.x)
    push[:, 0], push[:, 1] = v["x"][:, 0] * 1e250, v["x"][:, 1] * 1e-250
    both, _ = jvp(net, params, batch, {"x": push})
    for b in range(2):
        alone, _ = jvp(net, params, batch, {"x": np.where(np.arange(2)[:, None] == b, push, 0)})
        assert alone[b].all() and np.array_equal(both[b], alone[b])


@given(rnn_cases())
def test_per_example_gradients_add_up(case):
    net, params, batch, _, _ = case
    whole = loss_and_gradients(net, params, batch)
    shares = per_example_gradients(net, params, batch)
    assert sum(share.loss for share in shares) == whole.loss
    for name, value in whole.gradients.items():
        if name == "x":
            total = np.concatenate([share.gradients[name] for share in shares], axis=1)
        elif name == "h0" and value.ndim == 2:
            total = np.concatenate([share.gradients[name] for share in shares])
        else:
            total = sum(share.gradients[name] for share in shares)
            if name == "h0":
                total = total.sum(axis=0)
        assert (total == value).all(), name


@given(rnn_cases(names=["softsign", "identity", "leaky_relu"]))
def test_hvp_is_symmetric(case):
    """<u, H v> == <v, H u> on rationals: the Hessian is the derivative of a gradient."""
    net, params, batch, v, _ = case
    u = {name: value[::-1] + 1 if value.ndim else value + 1 for name, value in v.items()}
    assert dot(hvp(net, params, batch, v), u) == dot(hvp(net, params, batch, u), v)


@pytest.mark.parametrize(
    "loss, y",
    [("squared_error", 1 + 2j), ("squared_error", 1.5), ("squared_error", 2), ("none", 1 + 2j)],
)
def test_tangents_in_complex_numbers_take_any_targets(loss, y):
    """The tangent of the loss along by is the sum of its gradient, and squared errors, the
    mean of two of them, have the Hessian I in by."""
    net = RecurrentNet(2, 3, 2, loss=loss, reduction="sum", backend="reference")
    rng = np.random.default_rng(0)
    params = {
        name: value + 1j * rng.normal(size=value.shape)
        for name, value in net.init(rng, np.float64).items()
    }
    batch = Batch(rng.normal(size=(3, 1, 2)) + 0j, np.full((1, 2), y))
    along = {"by": np.ones(2)}
    result = loss_and_gradients(net, params, batch)
    assert jvp(net, params, batch, along)[1] == pytest.approx(result.gradients["by"].sum())
    second = hvp(net, params, batch, along)["by"]
    assert second.tolist() == [loss == "squared_error"] * 2
    real = {name: value.real for name, value in params.items()}
    if np.iscomplexobj(batch.y):
        for derivative in (jvp, hvp):
            with refused("need real targets: pass y.real", TypeError):
                derivative(net, real, batch._replace(x=batch.x.real), along)


@both_backends
@pytest.mark.parametrize("kind", [RecurrentNet, StackedNet])
@pytest.mark.parametrize("shape", [(3, 0), (0, 2), (0, 0)])
def test_no_sequence_and_no_step_give_zeros(kind, shape, backend):
    net = kind(2, 3, 2, readout="every", backend=backend)
    params = net.init(np.random.default_rng(0), np.float64)
    batch = Batch(np.zeros((*shape, 2)), np.zeros(shape, int))
    result = loss_and_gradients(net, params, batch)
    assert result.loss == 0 and not any(value.any() for value in result.gradients.values())
    assert not any(value.any() for value in hvp(net, params, batch, {}).values())
    assert state_gradients(net, params, batch).shape == (shape[0] + 1, shape[1], 3)


@given(rnn_cases(names=["softsign", "identity", "relu", "oplu"]))
def test_state_jacobians(case):
    """dh_T/dh_0 applied to a tangent of h0 is the tangent of h_T; later ones chain up."""
    net, params, batch, direction, _ = case
    assume(params.get("h0") is not None)
    net = replace(net, readout="last")
    batch = batch._replace(mask=None)
    jacobians = state_jacobians(net, params, batch.x)
    T, B = batch.x.shape[:2]
    assert (jacobians[T] == np.eye(net.hidden, dtype=int)).all()
    h0_dot = np.broadcast_to(direction["h0"], (B, net.hidden))
    outputs_dot = jvp(
        net, params, batch._replace(y=np.zeros((B, net.outputs), object)), {"h0": direction["h0"]}
    )[0]
    pushed = np.stack([params["Why"] @ jacobians[0, b] @ h0_dot[b] for b in range(B)])
    assert (pushed == outputs_dot).all()


def complex_step_differs(case):
    case = float_case(replace(case.net, activation="tanh", loss="cross_entropy"), seed=5)
    return abs(loss_push_minus_pull(case)) > rounding_bound(case)


def shares_differ(case):
    net, params, batch, _, _ = case
    whole = loss_and_gradients(net, params, batch).gradients
    shares = [share.gradients for share in per_example_gradients(net, params, batch)]
    return (
        any((sum(share[name] for share in shares) != whole[name]).any() for name in ("Whh", "bh"))
        or (np.concatenate([share["x"] for share in shares], axis=1) != whole["x"]).any()
    )


def is_asymmetric(case):
    """A field that is not the gradient of a loss has no symmetric derivative."""
    net, params, batch, v, _ = case
    u = {name: value[::-1] + 1 for name, value in v.items()}
    return dot(hvp(net, params, batch, v), u) != dot(hvp(net, params, batch, u), v)


def jacobian_differs(case):
    net, params, batch, direction, _ = case
    jacobian = state_jacobians(net, params, batch.x)[0]
    pushed = [params["Why"] @ jacobian[b] @ direction["h0"][b] for b in range(2)]
    batch = batch._replace(y=batch.y[-1])
    net = replace(net, readout="last")
    return (pushed != jvp(net, params, batch, {"h0": direction["h0"]})[0]).any()


LEAK = "leak between examples"
LEAKS = RNN_BUGS | {
    LEAK: ('carry = matmul(da[t], p["Whh"])', 'carry = matmul(da[t], p["Whh"])[::-1]')
}
ORACLES = {
    complex_step_differs: RNN_BUGS,
    is_asymmetric: RNN_BUGS,
    # what treats examples differently; a bug that each has alike is for the others
    shares_differ: ("missing bias sum", LEAK, "input gradient through the wrong step"),
    # one step's pull-back; the other bugs do not enter dh_T/dh_t
    jacobian_differs: ("wrong transpose", "missing h0 gradient", "derivative at the wrong array"),
}


@pytest.mark.parametrize("differs, bug", [(f, bug) for f, bugs in ORACLES.items() for bug in bugs])
def test_oracles_reject(differs, bug, monkeypatch):
    case = generic_case(replace(SOFT, readout="every"), seed=8)
    assert not differs(case)
    monkeypatch.setattr(rnn, "backward", planted(rnn.backward, *LEAKS[bug]))
    assert differs(case)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
def test_same_source_on_every_float(name, dtype):
    """Every result has the inputs' dtype and is the float64 one up to float32's rounding."""
    net = RecurrentNet(2, 4, 3, activation=ACTIVATIONS[name], backend="reference")
    case = float_case(net, seed=11)
    cast = {key: value.astype(dtype) for key, value in case.params.items()}
    result = loss_and_gradients(net, cast, case.batch._replace(x=case.batch.x.astype(dtype)))
    exact = loss_and_gradients(net, case.params, case.batch)
    assert result.loss.dtype == dtype
    tolerance = 2**29 * rounding_bound(case)  # eps of float32 is 2^29 times float64's
    for key, value in result.gradients.items():
        assert value.dtype == dtype, key
        assert abs(value - exact.gradients[key]).max() <= tolerance, key


@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(2, 3, 2, cell="rnn", backend="reference"),
        RecurrentNet(2, 3, 2, cell="lstm", backend="reference"),
        RecurrentNet(2, 3, 2, cell="gru", backend="reference"),
        StackedNet(2, 3, 2, cell="cifg", layers=2, backend="reference"),
        StackedNet(2, 3, 2, cell="lstm", bidirectional=True, backend="reference"),
        RecurrentNet(2, 3, 2, embedding=3, backend="reference"),
        StackedNet(2, 3, 2, embedding=3, layers=2, backend="reference"),
    ],
)
def test_a_penalty_reaches_every_parameter(net):
    """Those too that a gated cell has one below the other in Whh."""
    rng = np.random.default_rng(0)
    params, batch = drawn(net, 4, 2, np.float64)
    extra = {name: np.full(value.shape, rng.integers(1, 9) / 8) for name, value in params.items()}
    plain = loss_and_gradients(net, params, batch).gradients
    full = loss_and_gradients(net, params, batch, penalty=lambda p: (0.0, extra)).gradients
    assert plain.keys() == full.keys()
    for name in params:
        assert np.array_equal(full[name], plain[name] + extra[name]), name


def test_a_penalty_of_another_kind_is_refused():
    net = RecurrentNet(2, 3, 2, backend="reference")
    params, batch = drawn(net)
    with refused("penalty is 3; need a function", TypeError):
        loss_and_gradients(net, params, batch, penalty=3)
    with refused(r"value has shape \(3,\); need one number"):
        loss_and_gradients(net, params, batch, penalty=lambda p: (np.ones(3), {}))


@pytest.mark.parametrize(
    "readout, y",
    [
        ("last", np.array([0, 1, 1, 0])),
        ("every", np.zeros((4, 5), int)),
        ("every", [[0] * 3] * 4),
        ("every", np.zeros(4, int)),
        ("last", np.zeros((2, 2), int)),
    ],
)
def test_shares_of_a_batch_that_does_not_fit_are_refused(readout, y):
    net = RecurrentNet(2, 3, 2, readout=readout, backend="reference")
    params, batch = drawn(net, 4, 3)
    with refused("batch: y ", (TypeError, ValueError)):
        per_example_gradients(net, params, batch._replace(y=y))


def test_options_of_another_cell_are_named():
    with refused("the cell rnn has no option forget; it has none", TypeError):
        RecurrentNet(2, 3, 2).init(np.random.default_rng(0), forget=1)
    with refused("the cell lstm has no option bias; need forget or peep", TypeError):
        RecurrentNet(2, 3, 2, cell="lstm").init(np.random.default_rng(0), bias=1)


def test_fully_masked_sequence_is_read_at_h0():
    case = generic_case(SOFT, seed=14)
    mask = np.zeros((3, 2), bool)
    result = loss_and_gradients(SOFT, case.params, case.batch._replace(mask=mask))
    assert (result.gradients["Whh"] == 0).all() and (result.gradients["h0"] != 0).all()
    read = case.params["h0"] @ case.params["Why"].T + case.params["by"]
    assert (result.outputs == read).all()


def test_a_cell_without_a_kernel_is_refused(monkeypatch):
    net = RecurrentNet(1, 2, 1, backend="compiled")
    monkeypatch.delitem(KERNELS, "rnn")
    with refused("--backend reference"):
        net.layer
