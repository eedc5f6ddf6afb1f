"""The judge says where a result is wrong: an independent bug, in words, and nothing else."""

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.check import assert_gradients, compare, judge
from refnet.check.cases import random_batch, random_params, reference_results
from refnet.exact import certify
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from support.byhand import lstm
from support.oracles import planted

pytestmark = pytest.mark.needs("flint")

T, B, H = 9, 4, 6
MASK = np.arange(T)[:, None] < np.array([9, 3, 7, 9])


@pytest.fixture(scope="module")
def case():
    net = RecurrentNet(3, H, 5, cell="lstm")
    rng = np.random.default_rng(0)
    params, batch = random_params(net, rng, np.float64), random_batch(net, rng, np.float64, T, B)
    return certify(net, params, batch._replace(mask=MASK))


def at(name, where, change):
    """A bug that changes these entries of one gradient."""

    def bug(results):
        value = np.array(results[name])
        value[where] = change(value[where])
        return {**results, name: value}

    return bug


def twice(values):
    return 2 * values


def noisy(values):
    return values * (1 + np.random.default_rng(0).normal(size=values.shape))


SOME = np.arange(20)
DIAGONAL = np.arange(4 * H), np.arange(4 * H) % H


@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize(
    "bug, says",
    [
        (at("dbh", np.s_[H : 2 * H], twice), "dbh: only gate f (rows 6 to 11); 2 times the"),
        (at("dWhh", np.s_[:, 4:], noisy), "dWhh: only columns 4 to 5 (the last 2)"),
        (at("dWhh", DIAGONAL, noisy), "dWhh: only the diagonal"),
        (at("dWhh", np.s_[[2, 3]], np.flipud), "units 2 and 3 change places"),
        (at("dWhh", np.s_[::H], noisy), "dWhh: only unit 0 (the first)"),
        (at("dWxh", np.s_[:, 0], noisy), "dWxh: only input 0 (the first)"),
        (at("dWhy", np.s_[2], noisy), "dWhy: only class 2"),
        (at("dx", np.s_[:, [0, 3]], noisy), "only the sequences of full length (examples 0, 3)"),
        (at("dx", np.s_[:5], noisy), "dx: only from step 4 down"),
        (at("dx", np.s_[1::3], noisy), "steps 1, 4, 7: every 3rd"),
        (at("dx", ([8, 2, 6, 8], range(4)), noisy), "dx: only the last step of every sequence"),
        (at("dx", np.s_[4, 2, 1], noisy), "dx: only the entry [4, 2, 1]; "),
        (at("dWhy", np.s_[:], twice), "dWhy: everywhere; 2 times the certified ones"),
        (at("dWhy", np.s_[:, 3], np.zeros_like), "dWhy: only unit 3; zero there"),
        (at("dWhy", (SOME % 5, SOME % H), noisy), "dWhy: 20 of 30 entries"),
        (at("dx", np.s_[:, 2], lambda v: v * np.nan), "only example 2; 27 entries are not finite"),
    ],
)
def test_where_it_is_wrong(case, bug, says):
    right = reference_results(case.net, case.params, case.batch)
    verdict = compare(bug(right), case)
    assert says in "\n".join(verdict.where)
    assert verdict.where[0].startswith("right: loss, outputs, ")
    assert compare(right, case).where == ()


@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize(
    "wrong, says",
    [
        ("loss", "the fault is in the loss, after the outputs"),
        ("outputs", "the fault is in the read-out, after the states"),
        ("h", "the fault is in the forward pass"),
        ("dby", "the fault is in the read-out's gradients"),
        ("dx", "the fault is in dx alone"),
        ("dWhh", "the fault is in a sum"),
        ("dWhh dWxh dbh dx", "the fault is in the backward pass, after the read-out's gradients"),
        ("dWhy dWhh", "the fault is in the sums dWhh, dWhy"),
        ("dh0", "only the gradient that reaches the initial state shows the fault"),
        ("dWhy dby dWhh dx", "the forward pass is right"),  # and several faults, or no one place
        ("dWhy dby dWhh dWxh dbh dh0 dx", "the fault starts at the loss's gradient in the outputs"),
    ],
)
def test_which_part_is_wrong(case, wrong, says):
    right = {name: np.array(value.value) for name, value in case.named().items()}
    theirs = right | {name: noisy(np.asarray(right[name])) for name in wrong.split()}
    assert compare(theirs, case).where[0].endswith(says)


@pytest.mark.usefixtures("unnamed")
def test_which_layer_of_a_stack_is_wrong():
    net, rng = StackedNet(2, 3, 4, layers=3), np.random.default_rng(0)
    params, batch = random_params(net, rng, np.float64), random_batch(net, rng, np.float64, 4, 2)
    right = reference_results(net, params, batch)
    wrong = {name: noisy(v) for name, v in right.items() if name == "dx" or name[-3:] == "_l0"}
    (said, *_) = compare(right | wrong, certify(net, params, batch)).where
    assert said.endswith("right: the fault is in what layer 1 hands down, or in layer 0")


def without_the_cells_slope(params, batch):
    """An LSTM whose slope of g is that of the sigmoid: at many steps every gate is wrong."""
    results = planted(lstm, "(1 - g * g)", "(g - g * g)")(params, batch)
    return {name: value for name, value in results.items() if name[:2] in ("lo", "dW", "db")}


@pytest.mark.usefixtures("unnamed")
def test_few_steps_show_the_gate(case):
    batch = Batch(case.batch.x, case.batch.y)
    where = judge(case.net, without_the_cells_slope, dict(case.params), batch).where
    says = "at T = 1: dWxh, dbh: only gate g (rows 12 to 17)"
    assert any(line.startswith(says) for line in where)
    with pytest.raises(AssertionError, match="(?s)only gate g.*the smallest sizes") as failed:
        assert_gradients(case.net, without_the_cells_slope, dict(case.params), batch)
    smallest = str(failed.value).split("the smallest sizes")[1]
    assert "right: loss" in smallest and "the fault" not in smallest  # a step rules out nothing


def test_functions_have_locations_too():
    def f(x, W):
        return np.tanh(x @ W.T).sum()

    rng = np.random.default_rng(3)
    x, W = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    d = 1 - np.tanh(x @ W.T) ** 2
    theirs = {"dx": d @ W, "dW": d.T @ x}
    theirs["dW"][3] *= 2
    verdict = judge(f, theirs, x, W)
    assert "dW: only row 3; 2 times the certified ones" in verdict.where
    assert "only row 3" in repr(verdict)


def test_what_is_right_there_is_not_everywhere(case):
    """Zeros that are right, and a diagonal."""
    right = {name: np.array(value.value) for name, value in case.named().items()}
    where = compare({**right, "h": 2 * right["h"]}, case).where
    assert any(line.startswith("h: everywhere but where 0 is right; 2 times") for line in where)

    def f(S):
        return (S @ S).sum()

    S = np.random.default_rng(0).normal(size=(3, 3))
    d = S.sum(axis=1)[None] + S.sum(axis=0)[:, None]
    where = judge(f, {"dS": d + np.where(np.eye(3), 0, d**2)}, S).where
    assert "dS: only the entries off the diagonal" in where
