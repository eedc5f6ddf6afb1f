"""Weights of predictions and smoothed labels: exact on rationals, on both backends, certified."""

from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

from refnet import FeedforwardNet, RecurrentNet, StackedNet
from refnet.batch import Batch, examples
from refnet.exact.enclose import certify
from refnet.maths import losses
from refnet.maths.losses import Scored, smoothed
from refnet.nets.gradients import loss_and_gradients, per_example_gradients, scored
from refnet.tasks import Arrays
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.steps import Run, batch_of, evaluate
from support.arguments import refused
from support.marks import both_dtypes
from support.oracles import loss_push_minus_pull, planted
from support.rational import generic_case
from support.strategies import Case

NETS = {
    "last": RecurrentNet(2, 3, 2, activation="softsign", loss="squared_error"),
    "every": RecurrentNet(2, 3, 2, activation="softsign", loss="squared_error", readout="every"),
    "stack": StackedNet(
        2, 2, 2, activation="softsign", loss="squared_error", readout="every", bidirectional=True
    ),
    "feedforward": FeedforwardNet((2, 3, 2), activation="softsign", loss="squared_error"),
}
HALF, THIRD = F(1, 2), F(1, 3)


def weighted_case(name, reduction="mean", each=False, seed=3):
    net = replace(NETS[name], reduction=reduction)
    case = generic_case(net, seed, mask=name in ("every", "stack"))
    weights = np.array([HALF, THIRD], object)
    if each:
        weights = np.array([[HALF, 0], [2, THIRD], [F(5), 7]], object)
    return case._replace(batch=case.batch._replace(weights=weights))


@pytest.mark.parametrize("reduction", ["mean", "batch_mean", "sum"])
@pytest.mark.parametrize("name, each", [*((name, False) for name in NETS), ("every", True)])
def test_push_equals_pull(name, each, reduction):
    case = weighted_case(name, reduction, each)
    assert loss_push_minus_pull(case) == 0
    unweighted = case.batch._replace(weights=None)
    differs = loss_and_gradients(case.net, case.params, unweighted).loss
    assert differs != loss_and_gradients(case.net, case.params, case.batch).loss


@pytest.mark.parametrize(
    "old, new",
    [
        ("scored.gradient * weights[:, None]", "scored.gradient"),
        ("scored.loss * weights", "scored.loss"),
    ],
)
def test_a_planted_bug_is_rejected(old, new, monkeypatch):
    case = weighted_case("every", each=True)
    monkeypatch.setattr("refnet.nets.gradients.score", planted(losses.score, old, new))

    def exact(net, params, batch):  # jvp's loss is the true one
        return loss_and_gradients(net, params, batch)

    if "loss" in old:  # both sides of the equality have the same wrong loss or gradient
        assert loss_push_minus_pull(case, exact) != 0
    else:
        assert loss_push_minus_pull(case) != 0


def test_a_weight_is_a_number_of_copies():
    """Among sums, twice the weight is the example twice, and a weight of 0 is none."""
    case = weighted_case("last", "sum")
    net, params, batch = case.net, {**case.params}, case.batch
    del params["h0"]
    double = loss_and_gradients(net, params, batch._replace(weights=np.array([2, 1], object)))
    again = examples(batch._replace(weights=None), np.array([0, 0, 1]), False)
    copies = loss_and_gradients(net, params, again)
    assert double.loss == copies.loss
    assert all((double.gradients[name] == copies.gradients[name]).all() for name in params)
    none = loss_and_gradients(net, params, batch._replace(weights=np.array([0, 1], object)))
    alone = loss_and_gradients(net, params, examples(batch._replace(weights=None), [1], False))
    assert none.loss == alone.loss and (none.gradients["x"][:, 0] == 0).all()


def test_a_mean_is_weighted():
    case = weighted_case("last")
    each = [
        loss_and_gradients(
            case.net,
            {**case.params, "h0": case.params["h0"][[b]]},
            examples(case.batch._replace(weights=None), slice(b, b + 1), False),
        ).loss
        for b in range(2)
    ]
    loss = loss_and_gradients(case.net, case.params, case.batch).loss
    assert loss == (HALF * each[0] + THIRD * each[1]) / (HALF + THIRD)
    shares = per_example_gradients(case.net, case.params, case.batch)
    assert sum(share.loss for share in shares) == loss
    nothing = case.batch._replace(weights=np.zeros(2, object))
    assert loss_and_gradients(case.net, case.params, nothing).loss == 0


@pytest.mark.parametrize("s", [HALF, THIRD])
def test_smoothing_adds_what_it_says_exactly(s):
    """What it adds to a loss is linear in the logits, so that its gradient gives its differences,
    and with the rest it is the mean of the losses of all labels."""
    rng = np.random.default_rng(0)
    v, d = (rng.integers(-9, 9, (3, 4)).astype(object) * F(1, 7) for _ in range(2))
    y = np.array([0, 3, 2])

    def zero(logits, labels):
        return Scored(logits[:, 0] * 0, logits * 0)

    def linear(logits, labels):  # as the cross-entropy is, but for what all labels share
        gradient = logits * 0
        gradient[np.arange(3), labels] -= 1
        return Scored((logits * gradient).sum(axis=1), gradient)

    added, shifted = smoothed(zero, s)(v, y), smoothed(zero, s)(v + d, y)
    assert ((added.gradient * d).sum(axis=1) == shifted.loss - added.loss).all()
    labels = [linear(v, np.full(3, c)) for c in range(4)]
    mixed = [
        (1 - s) * base + s * sum(parts) / 4
        for base, *parts in zip(linear(v, y)[0], *(each.loss for each in labels))
    ]
    assert smoothed(linear, s)(v, y).loss.tolist() == mixed
    wrong = planted(smoothed, "gradient - divided(s, C)[:, None]", "gradient")(zero, s)(v, y)
    assert ((wrong.gradient * d).sum(axis=1) != shifted.loss - added.loss).any()


def float_case(readout, smoothing=0.0, dtype=np.float64, weights=True):
    rng = np.random.default_rng(1)
    net = RecurrentNet(3, 8, 5, readout=readout, reduction="sum", smoothing=smoothing)
    params = net.init(rng, dtype)
    lead = (7, 16) if readout == "every" else (16,)
    batch = Batch(
        rng.standard_normal((7, 16, 3)).astype(dtype),
        rng.integers(0, 5, lead),
        np.arange(7)[:, None] < rng.integers(1, 8, 16),
        rng.uniform(0, 1, lead).astype(dtype) if weights else None,
    )
    direction = {name: rng.standard_normal(value.shape) for name, value in params.items()}
    return Case(net, params, batch, direction, None)


@pytest.mark.parametrize("readout", ["last", "every"])
@both_dtypes
def test_both_backends(readout, dtype):
    """A handful of roundings for each class, of numbers below twice the largest logit."""
    net, params, batch, *_ = float_case(readout, 0.25, dtype)
    outputs, _ = net.forward(params, batch.x, batch.mask)
    peer = replace(net, backend="compiled")
    (loss, gradient), (other, theirs) = (scored(each, outputs, batch) for each in (net, peer))
    limit = 16 * net.outputs * np.finfo(dtype).eps * max(1, abs(outputs).max())
    assert abs(gradient - theirs).max() <= limit and abs(loss - other) <= limit * loss
    _, plain = scored(replace(peer, smoothing=0), outputs, batch)
    assert abs(gradient - plain).max() > 100 * limit
    assert theirs.dtype == dtype


@pytest.mark.parametrize("net", ["recurrent", "halves"])
def test_certified(net, monkeypatch):
    """The certificate has the weights and the smoothing, also where it is made in two halves."""
    if net == "halves":
        monkeypatch.setattr("refnet.exact.enclose.WORK", 1)
    net, params, batch, *_ = float_case("every", 0.25)
    for reduction in ("sum", "mean"):
        net = replace(net, reduction=reduction)
        proof, result = certify(net, params, batch), loss_and_gradients(net, params, batch)
        size = 16 * 7 * (8 + 5 + 3) * 8 * np.finfo(float).eps
        assert abs(float(proof.loss.value) - result.loss) <= size * abs(result.loss)
        for name in params:
            true = proof.gradients[name].value
            assert abs(true - result.gradients[name]).max() <= size * 7 * max(1, abs(true).max())
        without = loss_and_gradients(net, params, batch._replace(weights=None)).loss
        assert abs(without - result.loss) > 1e-3


def test_against_torch():
    torch = pytest.importorskip("torch")
    net, params, batch, *_ = float_case("last")
    outputs, _ = net.forward(params, batch.x, batch.mask)
    factors = np.array([1, 2, 0.5, 3, 0.25])
    labels = torch.tensor(batch.y)
    for mine, theirs in (
        ({"weights": factors[batch.y]}, {"weight": torch.tensor(factors)}),
        ({"weights": None}, {"label_smoothing": 0.3}),
    ):
        logits = torch.tensor(outputs, requires_grad=True)
        peer = torch.nn.CrossEntropyLoss(**theirs)(logits, labels)
        peer.backward()
        smooth = replace(net, smoothing=theirs.get("label_smoothing", 0), reduction="mean")
        loss, gradient = scored(smooth, outputs, batch._replace(**mine))
        limit = 64 * np.finfo(float).eps * max(1, abs(outputs).max())
        assert abs(float(loss) - peer.item()) <= limit
        assert abs(gradient - logits.grad.numpy()).max() <= limit


@pytest.mark.parametrize(
    "weights, says",
    [
        (np.ones(3), "weights has shape .3,.; need"),
        (np.array([1, -1.0]), "weights are not all finite and at least 0"),
        (np.array([1, np.nan]), "weights are not all finite and at least 0"),
        (np.array([HALF, THIRD], object), "exact numbers and floats do not mix"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights, says):
    net = RecurrentNet(1, 2, 2)
    params = net.init(np.random.default_rng(0), np.float64)
    with refused(says):
        loss_and_gradients(net, params, Batch(np.ones((3, 2, 1)), np.zeros(2, int), None, weights))


TASK = Config("temporal-order:samples=50", length=10, hidden=4, backend="reference")


def test_settings_of_labels():
    e = build(replace(TASK, class_weights="1,2,0,0.5", ignore="3", smoothing=0.1))
    run, _ = Run.start(e)
    batch, plain = batch_of(e, run), batch_of(build(TASK), run)
    left = plain.y != 3
    assert 0 < left.sum() < 20 and (batch.y == plain.y[left]).all()
    assert (batch.x == plain.x[:, left]).all() and e.net.smoothing == 0.1
    assert batch.weights.tolist() == np.array([1, 2, 0, 0.5])[batch.y].tolist()
    total = sum(len(e.counted(part).y) for part in e.task.evaluation(0, 0))
    row = evaluate(e, run, 0.0)
    assert row["errors"] == round((1 - row["accuracy"]) * total)
    y, mask = np.array([[0, 3], [-9, 1]]), np.array([[True, True], [False, True]])
    every = e.weighted(Batch(np.ones((2, 2, 6), np.float32), y, mask))
    assert every.mask.tolist() == [[True, False], [False, True]]
    assert every.weights[every.mask].tolist() == [1, 2]


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"class_weights": "1,2"}, "class_weights is '1,2'; need 4 numbers"),
        ({"class_weights": "1,2,x,1"}, "need 4 numbers with commas"),
        ({"class_weights": "1,2,-1,1"}, "none below 0"),
        ({"class_weights": "0,0,0,0"}, "not all 0"),
        ({"class_weights": "balanced"}, "or 'balanced' for a task from your own data"),
        ({"smoothing": 1.0}, "smoothing is 1.0"),
        ({"ignore": "none"}, "ignore is 'none'; need a whole number"),
        ({"task": "adding", "smoothing": 0.1}, "smoothing 0.1 would have no effect"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, says):
    with refused(says):
        build(replace(TASK, **settings))


@pytest.mark.parametrize("readout", ["last", "every"])
def test_balanced_weights_are_those_of_scikit_learn(readout):
    """Of the training part alone, of the targets that there are."""
    weight = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 6, 40)
    y = [rng.choice(["a", "a", "b", "c", ""], length) for length in lengths]
    y = y if readout == "every" else [part[0] or "a" for part in y]
    splits = ["train"] * 30 + ["test"] * 10
    task = Arrays([np.ones((n, 1)) for n in lengths], y, splits=splits, readout=readout)
    e = build(replace(TASK, class_weights="balanced"), task)
    seen = np.concatenate(y[:30]) if readout == "every" else np.array(y[:30])
    want = weight("balanced", classes=np.array(["a", "b", "c"]), y=seen[seen != ""])
    assert np.allclose(e.class_weights, want, rtol=1e-6)
    ignored = build(replace(TASK, class_weights="balanced", ignore="0"), task).class_weights
    left = seen[(seen != "") & (seen != "a")]
    assert np.allclose(ignored[1:], weight("balanced", classes=np.array(["b", "c"]), y=left))
