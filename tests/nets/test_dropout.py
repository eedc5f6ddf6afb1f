"""Dropout, zoneout and noise: exact transposition on rationals, equations by hand, certified."""

from dataclasses import replace
from fractions import Fraction as F
from functools import partial

import numpy as np
import pytest

from refnet import FeedforwardNet, RecurrentNet, StackedNet
from refnet.batch import Batch
from refnet.cells import gru, gru_before, lstm, rnn
from refnet.compiled.walk import Walk
from refnet.exact.enclose import certify
from refnet.nets.gradients import loss_and_gradients, per_example_gradients
from refnet.nets.noise import Noise, Zoned
from refnet.nets.states import state_gradients
from refnet.prove.checks import RATIONAL_GATE, generic
from support.arguments import refused
from support.compiled import at_every_number_of_threads
from support.marks import both_dtypes
from support.oracles import loss_push_minus_pull, planted, push_minus_pull
from support.rational import generic_case

CELLS = ("rnn", "lstm", "gru", "gru_before", "cifg")
SIZE = {"rnn": 3, "lstm": 2, "gru": 2, "gru_before": 2}
"""Units; and as many steps, for the digits of gated cells' rationals grow with both."""
PARTS = ("outputs", "products", "zoneout", "added")


def rational(cell="rnn", **options):
    gate = {} if cell == "rnn" else {"gate": RATIONAL_GATE}
    kind, act = RecurrentNet, "softsign"
    if "layers" in options or "projection" in options:  # fewer digits
        kind = StackedNet if "layers" in options else RecurrentNet
        gate, act = {"gate": "leaky_relu"}, "leaky_relu"
    return kind(
        2,
        SIZE[cell],
        options.pop("outputs", 2),
        **{"cell": cell, "activation": act, "loss": "squared_error", **gate, **options},
    )


def noise_of(net, parts=PARTS, T=3, B=2, seed=5):
    """Factors and numbers of every kind, generic."""
    rng = np.random.default_rng(seed)
    P, two = net.projection or net.hidden, net.cell == "lstm"
    every = {
        "outputs": {n: generic(rng, (B, net.width)) for n in range(len(net.cells))},
        "products": {name: generic(rng, (B, P)) for name in net.every_cell},
        "zoneout": {
            name: generic(rng, (T, *(2,) * two, B, net.hidden), 401) for name in net.every_cell
        },
        "added": {name: generic(rng, (T, B, P)) for name in net.every_cell},
    }
    return Noise(**{part: every[part] for part in parts})


def noisy_case(net, parts=PARTS, mask=False):
    T = SIZE[net.cell]
    case = generic_case(net, 7, T=T, mask=mask)
    return case._replace(net=replace(net, noise=noise_of(net, parts, T)))


@pytest.mark.parametrize("parts", [(part,) for part in PARTS] + [PARTS], ids="+".join)
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell != "cifg"])
@pytest.mark.parametrize("readout", ["last", "every"])
def test_push_equals_pull(cell, parts, readout):
    case = noisy_case(rational(cell, readout=readout), parts, mask=True)
    assert push_minus_pull(case) == 0 and loss_push_minus_pull(case) == 0
    still = replace(case.net, noise=None)
    assert (
        loss_and_gradients(still, case.params, case.batch).loss
        != loss_and_gradients(case.net, case.params, case.batch).loss
    )


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 2, "bidirectional": True},
        {"layers": 2, "cell": "lstm", "readout": "every"},
        {"layers": 2, "readout": "none", "outputs": 3},
        {"cell": "lstm", "projection": 1, "readout": "every"},
        {"gain": F(3, 2), "learn_h0": True},
        {"zoneout": F(1, 3)},
    ],
    ids=str,
)
def test_push_equals_pull_in_other_nets(options):
    case = noisy_case(rational(**options), mask=True)
    assert push_minus_pull(case) == 0 and loss_push_minus_pull(case) == 0


@pytest.mark.parametrize("parts", [("outputs",), ("outputs", "products")])
@pytest.mark.parametrize("readout", ["last", "every"])
def test_checkpoints_give_the_same(parts, readout):
    case = noisy_case(rational("gru", readout=readout), parts)
    sparse = replace(case.net, checkpoint="sqrt")
    whole, parted = (
        loss_and_gradients(net, case.params, case.batch).gradients for net in (case.net, sparse)
    )
    assert all((parted[name] == value).all() for name, value in whole.items())
    assert loss_push_minus_pull(case._replace(net=sparse)) == 0


def test_feedforward_push_equals_pull():
    net = FeedforwardNet((2, 3, 4, 2), activation="softsign", loss="squared_error")
    rng = np.random.default_rng(0)
    noise = Noise({0: generic(rng, (2, 3)), 1: generic(rng, (2, 4))})
    case = generic_case(net, 2)
    case = case._replace(net=replace(net, noise=noise))
    assert push_minus_pull(case) == 0 and loss_push_minus_pull(case) == 0
    p, x = case.params, case.batch.x
    soft = lambda v: v / (1 + abs(v))  # noqa: E731
    h = soft(x @ p["W1"].T + p["b1"]) * noise.outputs[0]
    h = soft(h @ p["W2"].T + p["b2"]) * noise.outputs[1]
    outputs, _ = case.net.forward(p, x)
    assert (outputs == h @ p["W3"].T + p["b3"]).all()
    wrong = planted(
        FeedforwardNet.backward,
        'dh = self._thinned(matmul(dv, p[f"W{layer}"]), layer)',
        'dh = matmul(dv, p[f"W{layer}"])',
    )
    assert push_minus_pull(case, wrong) != 0


@pytest.mark.parametrize(
    "cell, module, old, new",
    [
        ("rnn", rnn, "carry = dropped(carry, drop)", "pass"),
        ("rnn", rnn, "h = dropped(h, drop)", "pass"),
        ("lstm", lstm, "e = dropped(", "e = (lambda e, _: e)("),
        ("gru", gru, "h = dropped(h, drop)", "pass"),
        (
            "gru_before",
            gru_before,
            "w = dropped(matmul(da[t, :, 2], new), drop)",
            "w = matmul(da[t, :, 2], new)",
        ),
    ],
)
def test_a_planted_bug_in_a_cell_is_rejected(cell, module, old, new, monkeypatch):
    case = noisy_case(rational(cell), ("products",))
    assert push_minus_pull(case) == 0
    monkeypatch.setattr(module, "backward", planted(module.backward, old, new))
    assert push_minus_pull(case) != 0


@pytest.mark.parametrize(
    "old, new",
    [
        ("((1 - k) * e, k * e)", "(e, k * e)"),
        ("direct + grads.pop", "grads.pop"),
        ("e_h[:, :width] + dh[t - first]", "e_h[:, :width]"),
    ],
)
def test_a_planted_bug_between_steps_is_rejected(old, new, monkeypatch):
    case = noisy_case(rational("lstm", readout="every"), ("zoneout", "added"))
    monkeypatch.setattr(Zoned, "backward", planted(Zoned.backward, old, new))
    assert push_minus_pull(case) != 0


def test_the_simple_cell_by_hand():
    """One equation a line, as in the module's head; 0 and 1 in place of k are zoneout's masks."""
    net = rational("rnn", readout="every")
    case = noisy_case(net)
    noise, p, x = case.net.noise, case.params, case.batch.x
    noise.zoneout[""][0] = np.array([[0, 1, 0], [1, 1, 0]], object) * F(1)
    h, rows = p["h0"], []
    for t in range(3):
        a = x[t] @ p["Wxh"].T + (noise.products[""] * h) @ p["Whh"].T + p["bh"]
        k = noise.zoneout[""][t]
        h = k * h + (1 - k) * (a / (1 + abs(a))) + noise.added[""][t]
        rows.append((noise.outputs[0] * h) @ p["Why"].T + p["by"])
    outputs, _ = case.net.forward(p, x)
    assert (outputs == np.stack(rows)).all()


def test_a_gated_state_is_dropped_in_its_products_alone():
    """z h[t] keeps what the mask drops: with z = 1 (a bias beyond all) the state stays."""
    net = RecurrentNet(2, 3, 2, "gru", noise=Noise(products={"": np.zeros((2, 3))}))
    params = net.init(np.random.default_rng(0), np.float64)
    params["bh"][3:6] = 100
    params["h0"] = np.arange(1.0, 4)
    _, tape = net.forward(params, np.ones((4, 2, 2)))
    assert (tape.cell.h == np.arange(1.0, 4)).all()


@pytest.mark.parametrize("cell", CELLS)
def test_zoneout_of_a_net_is_the_mean_of_masks(cell):
    net = RecurrentNet(2, 3, 2, cell, readout="every", zoneout=0.25)
    lead = (2,) if cell in ("lstm", "cifg") else ()
    shares = Noise(zoneout={"": np.full((5, *lead, 4, 3), 0.25)})
    params = net.init(np.random.default_rng(0), np.float64)
    x = np.random.default_rng(1).standard_normal((5, 4, 2))
    outputs, _ = net.forward(params, x)
    masked, _ = replace(net, zoneout=0, noise=shares).forward(params, x)
    plain, _ = replace(net, zoneout=0).forward(params, x)
    assert (outputs == masked).all() and (outputs != plain).all()


def compare_backends(net, dtype):
    """Noise of every kind on compiled cells, with any number of threads, beside the reference on
    the same numbers: a hundred roundings of numbers below 10 in each of 6 steps."""
    rng = np.random.default_rng(2)
    lead = (2,) if net.cell in ("lstm", "cifg") else ()
    noise = Noise(
        outputs={n: rng.integers(0, 2, (37, net.width)) * 2.0 for n in range(len(net.cells))},
        products={name: rng.integers(0, 2, (37, 8)) / 0.8 for name in net.every_cell},
        zoneout={name: rng.integers(0, 3, (6, *lead, 37, 8)) / 2 for name in net.every_cell},
        added={name: 0.1 * rng.standard_normal((6, 37, 8)) for name in net.every_cell},
    )
    params = net.init(rng, dtype)
    x, every = rng.standard_normal((6, 37, 3)).astype(dtype), net.readout == "every"
    y, lengths = rng.integers(0, 4, (6, 37) if every else 37), rng.integers(0, 7, 37)
    batch = Batch(x, y, np.arange(6)[:, None] < lengths)
    net = replace(net, noise=noise)
    want = loss_and_gradients(replace(net, backend="reference"), params, batch).gradients
    compiled = partial(loss_and_gradients, replace(net, backend="compiled"), params, batch)
    first, *others = (result.gradients for result in at_every_number_of_threads(compiled, 3))
    for name, value in want.items():
        limit = 600 * 10 * np.finfo(dtype).eps * max(1, abs(value).max())
        assert abs(value - first[name]).max() <= limit and first[name].dtype == dtype, name
        assert all((first[name] == other[name]).all() for other in others), name


@both_dtypes
@pytest.mark.parametrize("readout", ["last", "every"])
@pytest.mark.parametrize("cell", CELLS)
def test_compiled_cells_match_the_reference(cell, readout, dtype):
    compare_backends(RecurrentNet(3, 8, 4, cell, readout=readout, reduction="sum"), dtype)


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("part", ["zoneout", "added"])
def test_without_a_step_noise_changes_nothing(part, cell, backend):
    lead = (2,) * (part == "zoneout" and cell in ("lstm", "cifg"))
    net = RecurrentNet(2, 4, 3, cell, backend=backend, learn_h0=True)
    params = net.init(np.random.default_rng(0), np.float64)
    batch = Batch(np.zeros((0, 5, 2)), np.array([0, 1, 2, 0, 1]))
    noisy = replace(net, noise=Noise(**{part: {"": np.ones((0, *lead, 5, 4))}}))
    want = loss_and_gradients(net, params, batch).gradients
    for other in (noisy, replace(net, zoneout=0.25)):
        got = loss_and_gradients(other, params, batch).gradients
        assert want.keys() == got.keys() and want["h0"].any()
        assert all(np.array_equal(want[name], got[name]) for name in want)


@pytest.mark.parametrize("act", ["softsign", "relu"])
def test_compiled_stacks_match_the_reference(act):
    """Both directions, and slopes that need the pre-activations."""
    net = StackedNet(3, 8, 4, "lstm", act, layers=2, bidirectional=True, readout="every")
    compare_backends(net, np.float64)


@pytest.mark.parametrize("cell, part", [("gru", "drop"), ("lstm", "shares"), ("rnn", "order")])
def test_a_planted_bug_in_compiled_noise_is_rejected(cell, part, monkeypatch):
    pull = Walk.backward
    if part == "order":
        monkeypatch.setattr(Noise, "examples", lambda noise, rows: noise)
    else:

        def without(*given, **options):
            return pull(*given, **{name: options[name] for name in options.keys() - {part}})

        monkeypatch.setattr(Walk, "backward", without)
    with pytest.raises(AssertionError):
        compare_backends(RecurrentNet(3, 8, 4, cell), np.float64)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_certified(cell):
    rng = np.random.default_rng(3)
    net = StackedNet(2, 4, 3, cell, layers=2, readout="every")
    two = (2,) if cell == "lstm" else ()
    noise = Noise(
        outputs={n: rng.integers(0, 2, (3, 4)) / 0.7 for n in range(2)},
        products={name: rng.integers(0, 2, (3, 4)) / 0.9 for name in net.every_cell},
        zoneout={name: rng.integers(0, 2, (5, *two, 3, 4)) for name in net.every_cell},
        added={name: 0.1 * rng.standard_normal((5, 3, 4)) for name in net.every_cell},
    )
    net = replace(net, noise=noise)
    params = net.init(rng, np.float64)
    batch = Batch(rng.standard_normal((5, 3, 2)), rng.integers(0, 3, (5, 3)))
    proof, result = certify(net, params, batch), loss_and_gradients(net, params, batch)
    for name in params:
        true = proof.gradients[name].value
        limit = 5 * 2 * 100 * np.finfo(float).eps * max(1, abs(true).max())
        assert abs(true - result.gradients[name]).max() <= limit, name


def test_shares_of_examples_add_up():
    case = noisy_case(rational("lstm", readout="every"))
    shares = per_example_gradients(case.net, case.params, case.batch)
    whole = loss_and_gradients(case.net, case.params, case.batch)
    assert sum(share.loss for share in shares) == whole.loss
    for name in ("Whh", "Wxh", "Why"):
        assert (sum(share.gradients[name] for share in shares) == whole.gradients[name]).all()


def test_what_does_not_fit_is_refused():
    net = RecurrentNet(2, 3, 2)
    params, x = net.init(np.random.default_rng(0), np.float64), np.ones((4, 2, 2))
    for noise, says in (
        (Noise(products={"": np.ones((2, 4))}), r"products\[''\] has shape .2, 4.; need .2, 3."),
        (Noise(products={"_l0": np.ones((2, 3))}), "noise.products.'_l0'. is not among"),
        (Noise(outputs={1: np.ones((2, 3))}), "noise.outputs.1. is not among outputs.0."),
    ):
        with refused(says):
            replace(net, noise=noise).forward(params, x)
    dropped = Noise(products={"": np.ones((2, 3))})
    with refused("checkpoint is 'sqrt'; need 'none' with zoneout"):
        replace(net, noise=Noise(added={"": np.ones((4, 2, 3))}), checkpoint="sqrt")
    with refused("dropout in a feedforward net has no compiled kernel"):
        FeedforwardNet((2, 3, 2), noise=Noise(), backend="compiled")
    with refused("noise is 5", TypeError):
        replace(net, noise=5)
    with refused("state_gradients: need a net without noise"):
        state_gradients(replace(net, noise=dropped), params, Batch(x, np.zeros(2, int)))
    outputs, tape = replace(net, noise=dropped).forward(params, x)
    with refused("the tape is of a net with noise"):
        net.backward(params, tape, np.ones_like(outputs))


def flows_to_states(net, start=0):
    """On rationals: the gradient at every state minus that of a net that starts there."""
    case = generic_case(net, 3, T=SIZE[net.cell])
    x, y = case.batch.x, case.batch.y
    tape = net.forward(case.params, x)[1].cell
    two = getattr(tape, "c", None) is not None
    states = np.stack([tape.h, tape.c], axis=1) if two else tape.h
    flow = state_gradients(net, case.params, case.batch)
    for t in range(len(x)):
        params = case.params | {"h0": states[t + start]}
        yield flow[t] - loss_and_gradients(net, params, Batch(x[t:], y)).gradients["h0"]


@pytest.mark.parametrize("zoneout", [0, F(1, 3)], ids=str)
@pytest.mark.parametrize("cell", SIZE)
def test_gradients_at_the_states(cell, zoneout):
    net = rational(cell, zoneout=zoneout)
    assert all((difference == 0).all() for difference in flows_to_states(net))


def test_a_flow_from_another_state_is_rejected():
    assert any(
        (difference != 0).any() for difference in flows_to_states(rational(zoneout=F(1, 3)), 1)
    )
