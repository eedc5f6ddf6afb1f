"""The naive nets agree with the reference."""

import numpy as np
import pytest

from refnet.check.mistakes.base import mistake
from refnet.check.mistakes.formulas import carried, counted
from refnet.check.programs.passes import run, runs
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.drawn import drawn

CELLS = ("rnn", "lstm", "gru", "gru_before")
OPTIONS = {
    "gain": 1.5,
    "learn_h0": True,
    "loss": "squared_error",
    "reduction": "batch_mean",
    "clip_step": 0.01,
}


def agree(net, mask=False, peepholes=False, **how):
    params, batch = drawn(net, 6, 3, float, mask=mask, peepholes=peepholes)
    ours, theirs = loss_and_gradients(net, params, batch), run(net, params, batch, **how)
    # float64 both: n < 1e4 operations, entries of order 1
    bound = 1e4 * np.finfo(float).eps
    assert abs(theirs["loss"] - ours.loss) < bound
    assert abs(theirs["outputs"] - ours.outputs).max() < bound
    gradients = {f"d{name}": value for name, value in ours.gradients.items() if name != "clipped"}
    assert {name for name in theirs if name.startswith("d")} == set(gradients)
    for name, value in gradients.items():
        assert theirs[name].shape == value.shape, name
        assert abs(theirs[name] - value).max() < bound, name


@pytest.mark.parametrize("readout", ["last", "every"])
@pytest.mark.parametrize("cell", CELLS)
def test_agrees_with_the_reference(cell, readout):
    for mask in (False, True):
        agree(RecurrentNet(2, 4, 3, cell=cell, readout=readout), mask, cell == "lstm")
        agree(RecurrentNet(2, 4, 3, cell=cell, readout=readout, **OPTIONS), mask)


@pytest.mark.parametrize("cell", CELLS)
def test_agrees_with_parametrised_activations_and_transitions(cell):
    agree(RecurrentNet(2, 4, 3, cell=cell, activation=ACTIVATIONS["prelu"]))
    agree(RecurrentNet(2, 4, 3, cell=cell, gain=2, transition=transition("cayley")))
    agree(RecurrentNet(2, 4, 3, cell=cell, embedding=3))


@pytest.mark.parametrize("name", ["tanh", "prelu", "modrelu"])
def test_agrees_for_feedforward_nets(name):
    agree(FeedforwardNet((4, 5, 5, 3), ACTIVATIONS[name]))
    agree(FeedforwardNet((4, 5, 5, 3), ACTIVATIONS[name], transition("svd"), "squared_error"))


@pytest.mark.parametrize("name", ["tanh", "prelu", "modrelu"])
def test_many_passes_at_once_are_those_of_each_alone(name):
    """Of other inputs, parameters, activations and programs; None of changes that do not fit."""
    net = RecurrentNet(2, 4, 3, cell="lstm", activation=ACTIVATIONS[name], clip_step=0.1)
    case = drawn(net, 6, 3, float)
    every = [
        {},
        {"x": lambda v, s: v[::-1]},
        {"x": lambda v, s: v[1:]},
        {"h0": lambda v, s: v + 0.1},
        {"p": lambda v, s: {**v, "Whh": v["Whh"] * 2, "bh": v["bh"] + 1}},
        {"y": lambda v, s: v[:2]},
        {"sigmoid": lambda f, s: lambda a: f(2 * a), "act": lambda f, s: lambda a: f(a) / 2},
        {"cell": lambda v, s: v.replace("h = o k", "h = k")},
        {"pulls": lambda v, s: counted(s, carried, lambda t: t % 2)},
    ]
    outcomes = list(runs(net, *case, [(change,) for change in every]))
    assert outcomes.pop(5) is None and every.pop(5)
    for change, results in zip(every, outcomes):
        alone = run(net, *case, change)
        assert set(alone) == set(results)
        for key, value in alone.items():
            assert abs(results[key] - value).max() < 1e4 * np.finfo(float).eps, key


def test_the_forward_pass_alone():
    net = RecurrentNet(2, 4, 3)
    params, batch = drawn(net, 6, 3, float)
    whole, part = run(net, params, batch), run(net, params, batch, backward=False)
    assert set(part) == {"loss", "outputs"} and part["loss"] == whole["loss"]


def test_a_mistake_is_the_text_of_a_formula_or_a_function():
    net = RecurrentNet(2, 4, 3)
    case = drawn(net, 6, 3, float)
    by_text = mistake("halved", x="v / 2", act="f(a) / 2").run(net, *case)
    by_function = run(net, *case, {"x": lambda v, s: v / 2, "act": lambda f, s: lambda a: f(a) / 2})
    assert all((by_text[name] == by_function[name]).all() for name in by_text)
    assert (by_text["dWhh"] != run(net, *case)["dWhh"]).all()
    with refused("absent", NameError):
        mistake("of no name", x="absent(v)").run(net, *case)
