"""Derivatives against each other, on every number type, each oracle with bugs it rejects."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given

import refnet.cells.rnn as rnn
from refnet.batch import Batch
from refnet.compiled.kernels import KERNELS
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import hvp, jvp, loss_and_gradients, per_example_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients, state_jacobians
from support.arguments import refused
from support.oracles import dot, loss_push_minus_pull, planted, rounding_bound
from support.rational import RNN_BUGS, generic_case
from support.strategies import SMOOTH, Case, feedforward_cases, rnn_cases

FLOAT_NAMES = sorted(set(ACTIVATIONS) - {"oplu", "modrelu"})


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


def float_case(net, seed=0, loss_classes=True, T=4, B=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    H = net.hidden
    shapes = {
        "Whh": (H, H),
        "Wxh": (H, net.inputs),
        "bh": (H,),
        "Why": (net.outputs, H),
        "by": (net.outputs,),
        "h0": (H,),
        **{name: shape(H) for name, shape, _ in net.activation.start},
    }
    params = {name: rng.normal(0, 0.6, shape).astype(dtype) for name, shape in shapes.items()}
    steps = (T, B) if net.readout == "every" else (B,)
    y = (
        rng.integers(0, net.outputs, steps)
        if net.loss == "cross_entropy"
        else rng.normal(size=(*steps, net.outputs)).astype(dtype)
    )
    x = rng.normal(size=(T, B, net.inputs)).astype(dtype)
    direction = {
        name: rng.choice([-1.0, 1.0], value.shape).astype(dtype)
        for name, value in {**params, "x": x}.items()
    }
    return Case(net, params, Batch(x, y), direction, None)


@pytest.mark.parametrize("bug", RNN_BUGS)
def test_complex_step_rejects(bug, monkeypatch):
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS["tanh"], readout="every")
    case = float_case(net, seed=5)
    assert abs(loss_push_minus_pull(case)) <= rounding_bound(case)
    monkeypatch.setattr(rnn, "backward", planted(rnn.backward, *RNN_BUGS[bug]))
    assert abs(loss_push_minus_pull(case)) > rounding_bound(case)


def magnitude_case(dtype):
    net = RecurrentNet(2, 4, 3, activation=ACTIVATIONS["elu"])
    case = float_case(net, seed=21, B=2)
    return (
        net,
        {name: value.astype(dtype) for name, value in case.params.items()},
        case.batch._replace(x=case.batch.x.astype(dtype)),
        {name: value.astype(dtype) for name, value in case.direction.items()},
    )


def scales(dtype):
    """Powers of two over the type's range, but for what the tangent itself needs of it."""
    top = np.finfo(dtype).maxexp - 20
    return [np.ldexp(np.ones((), dtype), int(n)) for n in np.linspace(-top, top, 13)]


def magnitudes_disagree(dtype):
    """The first power of two by which scaling a direction does not scale its tangents, or None."""
    net, params, batch, v = magnitude_case(dtype)
    outputs, loss = jvp(net, params, batch, v)
    products = hvp(net, params, batch, v)
    for scale in scales(dtype):
        scaled = {name: value * scale for name, value in v.items()}
        pushed, slope = jvp(net, params, batch, scaled)
        curved = hvp(net, params, batch, scaled)
        exact = (
            np.array_equal(pushed, outputs * scale)
            and slope == loss * scale
            and all(np.array_equal(curved[name], value * scale) for name, value in products.items())
        )
        # beside the smallest numbers, what is rounded there
        tiny = np.finfo(dtype).tiny
        near = all(
            np.all(abs(a - b) <= tiny)
            for a, b in (
                (pushed, outputs * scale),
                (slope, loss * scale),
                *((curved[name], value * scale) for name, value in products.items()),
            )
        )
        if not (exact if scale >= 1 else near):
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


LEAKS = {
    **RNN_BUGS,
    "leak between examples": (
        'carry = matmul(da[t], p["Whh"])',
        'carry = matmul(da[t], p["Whh"])[::-1]',
    ),
}


@pytest.mark.parametrize(
    "bug", ["missing bias sum", "leak between examples", "input gradient through the wrong step"]
)
def test_per_example_oracle_rejects(bug, monkeypatch):
    """What treats examples differently; a bug that each example has alike is for the others."""
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error")
    net, params, batch, _, _ = generic_case(net, seed=7)

    def differs():
        whole = loss_and_gradients(net, params, batch).gradients
        shares = [share.gradients for share in per_example_gradients(net, params, batch)]
        return (
            any(
                (sum(share[name] for share in shares) != whole[name]).any()
                for name in ("Whh", "bh")
            )
            or (np.concatenate([s["x"] for s in shares], axis=1) != whole["x"]).any()
        )

    assert not differs()
    monkeypatch.setattr(rnn, "backward", planted(rnn.backward, *LEAKS[bug]))
    assert differs()


def test_per_example_oracle_rejects_sum_for_mean():
    """Shares of the mean of two add up to it; those of a sum add up to twice as much."""
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error")
    net, params, batch, _, _ = generic_case(net, seed=7)
    shares = per_example_gradients(replace(net, reduction="sum"), params, batch)
    whole = loss_and_gradients(net, params, batch)
    assert sum(share.loss for share in shares) == 2 * whole.loss


@given(rnn_cases(names=["softsign", "identity", "leaky_relu"]))
def test_hvp_is_symmetric(case):
    """<u, H v> == <v, H u> on rationals: the Hessian is the derivative of a gradient."""
    net, params, batch, v, _ = case
    u = {name: value[::-1] + 1 if value.ndim else value + 1 for name, value in v.items()}
    assert dot(hvp(net, params, batch, v), u) == dot(hvp(net, params, batch, u), v)


@pytest.mark.parametrize("bug", RNN_BUGS)
def test_symmetry_oracle_rejects(bug, monkeypatch):
    """A field that is not the gradient of a loss has no symmetric derivative."""
    case = generic_case(
        RecurrentNet(
            2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error", readout="every"
        ),
        seed=8,
    )
    net, params, batch, v, _ = case
    u = {name: value[::-1] + 1 for name, value in v.items()}
    assert dot(hvp(net, params, batch, v), u) == dot(hvp(net, params, batch, u), v)
    monkeypatch.setattr(rnn, "backward", planted(rnn.backward, *RNN_BUGS[bug]))
    assert dot(hvp(net, params, batch, v), u) != dot(hvp(net, params, batch, u), v)


@pytest.mark.parametrize(
    "loss, y",
    [("squared_error", 1 + 2j), ("squared_error", 1.5), ("squared_error", 2), ("none", 1 + 2j)],
)
def test_tangents_in_complex_numbers_take_any_targets(loss, y):
    """The tangent of the loss along by is the sum of its gradient, and squared errors, the
    mean of two of them, have the Hessian I in by."""
    net = RecurrentNet(2, 3, 2, loss=loss, reduction="sum")
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


@pytest.mark.parametrize("backend", ["reference", "compiled"])
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


def test_hvp_is_the_difference_of_gradients_of_a_quadratic():
    """With an identity net of one step the loss is a polynomial; along the read-out alone it
    is a quadratic, so a difference of gradients is the Hessian product, exactly."""
    case = generic_case(
        RecurrentNet(2, 3, 2, activation=ACTIVATIONS["identity"], loss="squared_error"), seed=9
    )
    net, params, batch, direction, _ = case
    v = {"Why": direction["Why"]}
    moved = {**params, "Why": params["Why"] + v["Why"]}
    product = hvp(net, params, batch, v)["Why"]
    difference = (
        loss_and_gradients(net, moved, batch).gradients["Why"]
        - loss_and_gradients(net, params, batch).gradients["Why"]
    )
    assert (product == difference).all()


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


@pytest.mark.parametrize(
    "bug", ["wrong transpose", "missing h0 gradient", "derivative at the wrong array"]
)
def test_jacobian_oracle_rejects(bug, monkeypatch):
    """The bugs of one step's pull-back; the others do not enter dh_T/dh_t."""
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error")
    net, params, batch, direction, _ = generic_case(net, seed=15)

    def holds():
        jacobian = state_jacobians(net, params, batch.x)[0]
        pushed = np.stack([params["Why"] @ jacobian[b] @ direction["h0"][b] for b in range(2)])
        return (pushed == jvp(net, params, batch, {"h0": direction["h0"]})[0]).all()

    assert holds()
    monkeypatch.setattr(rnn, "backward", planted(rnn.backward, *RNN_BUGS[bug]))
    assert not holds()


def test_state_jacobians_are_the_papers_product():
    """diag(f'(a)) W, not W' diag(f(h)): the correction to the formula after eq. 4."""
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error")
    case = generic_case(net, seed=10)
    tape = net.forward(case.params, case.batch.x)[1].cell
    product = np.eye(3, dtype=int).astype(object)
    for a in tape.a[:, 0]:
        slope = np.array([1 / (1 + abs(v)) ** 2 for v in a], object)
        product = (slope[:, None] * case.params["Whh"]) @ product
    assert (state_jacobians(net, case.params, case.batch.x)[0, 0] == product).all()


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
def test_same_source_on_every_float(name, dtype):
    """Every result has the inputs' dtype and is the float64 one up to float32's rounding."""
    net = RecurrentNet(2, 4, 3, activation=ACTIVATIONS[name])
    case = float_case(net, seed=11)
    cast = {key: value.astype(dtype) for key, value in case.params.items()}
    result = loss_and_gradients(net, cast, case.batch._replace(x=case.batch.x.astype(dtype)))
    exact = loss_and_gradients(net, case.params, case.batch)
    assert result.loss.dtype == dtype
    tolerance = 2**29 * rounding_bound(case)  # eps of float32 is 2^29 times float64's
    for key, value in result.gradients.items():
        assert value.dtype == dtype, key
        assert abs(value - exact.gradients[key]).max() <= tolerance, key


def test_fractions_agree_with_floats():
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error")
    case = float_case(net, seed=12)
    exact = np.vectorize(Fraction, otypes=[object])
    result = loss_and_gradients(
        net,
        {k: exact(v) for k, v in case.params.items()},
        Batch(exact(case.batch.x), exact(case.batch.y)),
    )
    floats = loss_and_gradients(net, case.params, case.batch)
    assert all(type(v) is Fraction for g in result.gradients.values() for v in g.flat)
    for key, value in floats.gradients.items():
        assert abs(value - result.gradients[key].astype(float)).max() <= rounding_bound(case)


def test_mask_reads_each_sequence_at_its_own_last_step():
    """A batch of different lengths is its sequences run alone."""
    net = RecurrentNet(
        2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error", reduction="sum"
    )
    case = generic_case(net, seed=13)
    lengths = [1, 3]
    mask = np.arange(3)[:, None] < np.array(lengths)
    whole = loss_and_gradients(net, case.params, case.batch._replace(mask=mask))
    shares = [
        loss_and_gradients(
            net,
            {**case.params, "h0": case.params["h0"][b : b + 1]},
            Batch(case.batch.x[:n, b : b + 1], case.batch.y[b : b + 1]),
        )
        for b, n in enumerate(lengths)
    ]
    assert whole.loss == sum(share.loss for share in shares)
    assert (whole.gradients["Whh"] == sum(s.gradients["Whh"] for s in shares)).all()
    assert (whole.gradients["x"][1:, 0] == 0).all()


@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(2, 3, 2, cell="rnn"),
        RecurrentNet(2, 3, 2, cell="lstm"),
        RecurrentNet(2, 3, 2, cell="gru"),
        StackedNet(2, 3, 2, cell="cifg", layers=2),
        StackedNet(2, 3, 2, cell="lstm", bidirectional=True),
    ],
)
def test_a_penalty_reaches_every_parameter(net):
    """Those too that a gated cell has one below the other in Whh."""
    rng = np.random.default_rng(0)
    params = net.init(rng, np.float64)
    batch = Batch(rng.normal(size=(4, 2, 2)), np.array([0, 1]))
    given = {name: np.full(value.shape, rng.integers(1, 9) / 8) for name, value in params.items()}
    plain = loss_and_gradients(net, params, batch).gradients
    full = loss_and_gradients(net, params, batch, penalty=lambda p: (0.0, given)).gradients
    assert plain.keys() == full.keys()
    for name in params:
        assert np.array_equal(full[name], plain[name] + given[name]), name


def test_a_penalty_of_another_kind_is_refused():
    net = RecurrentNet(2, 3, 2)
    params = net.init(np.random.default_rng(0))
    batch = Batch(np.ones((4, 2, 2), np.float32), np.array([0, 1]))
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
    net = RecurrentNet(2, 3, 2, readout=readout)
    batch = Batch(np.ones((4, 3, 2)), y)
    params = net.init(np.random.default_rng(0), np.float64)
    with refused("batch: y ", (TypeError, ValueError)):
        per_example_gradients(net, params, batch)


def test_options_of_another_cell_are_named():
    with refused("the cell rnn has no option forget; it has none", TypeError):
        RecurrentNet(2, 3, 2).init(np.random.default_rng(0), forget=1)
    with refused("the cell lstm has no option bias; need forget or peep", TypeError):
        RecurrentNet(2, 3, 2, cell="lstm").init(np.random.default_rng(0), bias=1)


def test_fully_masked_sequence_is_read_at_h0():
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS["softsign"], loss="squared_error")
    case = generic_case(net, seed=14)
    mask = np.zeros((3, 2), bool)
    result = loss_and_gradients(net, case.params, case.batch._replace(mask=mask))
    assert (result.gradients["Whh"] == 0).all() and (result.gradients["h0"] != 0).all()
    read = case.params["h0"] @ case.params["Why"].T + case.params["by"]
    assert (result.outputs == read).all()


@pytest.mark.parametrize(
    "shape, message",
    [((7, 2), "For one sequence, pass"), ((3, 2, 5), "need \\(T, B, D\\) with D = 2")],
)
def test_wrong_input_shape_names_the_repair(shape, message):
    net = RecurrentNet(2, 3, 2)
    params = float_case(net).params
    with refused(message):
        net.forward(params, np.zeros(shape))


@pytest.mark.parametrize(
    "bad",
    [
        {"cell": "rnm"},
        {"readout": "first"},
        {"loss": "hinge"},
        {"reduction": "max"},
        {"backend": "gpu"},
        {"hidden": 0},
    ],
)
def test_unknown_choices_are_refused(bad):
    with refused("is unknown|need at least 1"):
        RecurrentNet(**{"inputs": 1, "hidden": 1, "outputs": 1, **bad})


def test_a_cell_without_a_kernel_is_refused(monkeypatch):
    net = RecurrentNet(1, 2, 1, backend="compiled")
    monkeypatch.delitem(KERNELS, "rnn")
    with refused("--backend reference"):
        net.layer


def test_feedforward_refuses_what_it_cannot_run():
    net = FeedforwardNet((2, 3, 1))
    with refused("widths are"):
        FeedforwardNet((3,))
    with refused("D = 2"):
        net.forward({}, np.zeros((4, 3)))
    with refused("mask is for sequences"):
        net.forward({}, np.zeros((4, 2)), np.ones((4, 2), bool))
