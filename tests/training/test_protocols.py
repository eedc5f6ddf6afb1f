"""Protocols: they are what the papers print, and their table of differences follows from them."""

import argparse
from dataclasses import asdict, fields
from math import log

import numpy as np
import pytest

from refnet.cli import _add_train
from refnet.training.config import OWN, Config, applicable
from refnet.training.differences import differences
from refnet.training.experiment import build
from refnet.training.optimizers import optimizer
from refnet.training.papers import DEFAULTS, PROTOCOLS, Rule
from refnet.training.protocols import _facts, _holds, configure, preset
from refnet.training.specs import read_spec
from support.arguments import refused


def every():
    for protocol, (tasks, _) in PROTOCOLS.items():
        for task in tasks:
            for method in ("plain", "oinit", "open", "oinit+open"):
                if method == "plain" or protocol.startswith("manchev"):
                    yield protocol, task, method


def given_by(protocol, config):
    """The settings that the protocol's rules give this run."""
    facts = _facts(asdict(config))
    return {
        name for rule in PROTOCOLS[protocol][1] if _holds(rule, facts) for name in rule.settings
    }


def test_no_default_follows_neither_text_nor_code():
    """Every setting that applies to a run comes from a rule of its protocol, but for the user's
    own; and --help says so of each, and of no other."""
    for protocol, task, method in every():
        for more in ({}, {"cell": "lstm"}, {"clip": "value"}, {"transition": "svd"}):
            try:
                config = preset(task, protocol=protocol, method=method, **more)
            except ValueError:
                continue  # a feedforward net has no cell
            assert set(applicable(config)) - set(OWN) <= given_by(protocol, config)
    parser = argparse.ArgumentParser()
    _add_train(parser.add_subparsers())
    train = parser._subparsers._group_actions[0].choices["train"]
    helps = {action.dest: action.help for action in train._actions}
    for entry in fields(Config):
        if entry.name not in ("task", "protocol"):
            assert helps[entry.name].endswith(
                f"(default: {entry.default!r})"
                if entry.name in OWN
                else "(default: the protocol's)"
            ), entry.name
    # a setting that no rule gives is noticed
    lacking = [
        rule._replace(
            settings={
                name: value for name, value in rule.settings.items() if name != "weight_decay"
            }
        )
        for rule in PROTOCOLS["manchev-spratling/text"][1]
    ]
    tasks = PROTOCOLS["manchev-spratling/text"][0]
    config = preset("mnist", protocol="manchev-spratling/text")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROTOCOLS, "manchev-spratling/text", (tasks, lacking))
        assert set(applicable(config)) - set(OWN) - given_by("manchev-spratling/text", config) == {
            "weight_decay"
        }


def test_a_spec_given_keeps_the_protocols_other_options():
    config = preset("ptb", protocol="vorontsov/code", transition="svd:margin=100")
    assert read_spec("transition", config.transition)[1] == {
        "margin": 100,
        "spectrum_rate": "printed",
        "negative": "relu",
        "spectrum_factor": 0.1,
    }


def test_a_length_in_the_tasks_spec_replaces_the_protocols():
    for task in ("adding:length=50", "adding:samples=9,length=50"):
        assert build(preset(task, protocol="vorontsov/text")).task.length == 50
    assert build(preset("adding", protocol="vorontsov/text")).task.length == 1000
    with refused("^length is 60, and the task's own is 50; give one"):
        preset("adding:length=50", length=60)


def test_the_default_of_every_task_is_a_protocol_of_it():
    from refnet.tasks import TASKS

    assert set(DEFAULTS) == set(TASKS)
    for task, protocol in DEFAULTS.items():
        assert task in PROTOCOLS[protocol][0]
        assert preset(task) == preset(task, protocol=protocol)


def test_the_differences_follow_from_the_rules(monkeypatch):
    """Each row is a difference between two runs, and a rule added shows as a row."""
    text = differences()
    for row in ("sgd", "encoding=one-hot", "spectrum_factor=0.1", "scaling=code", "unsquared"):
        assert row in text
    assert "| gain " not in text
    tasks, rules = PROTOCOLS["vorontsov/code"]
    monkeypatch.setitem(
        PROTOCOLS, "vorontsov/code", (tasks, [*rules, Rule({"task": "copy"}, {"gain": 0.5})])
    )
    assert [line.split()[1:8] for line in differences().splitlines() if "| gain " in line] == [
        "vorontsov | gain | 1.0 | 0.5".split()
    ]


def test_the_penn_treebanks_steps_are_those_of_a_loss_in_bits():
    """The released code's clipping, weight decay and RMSprop on gradients in bits, written out,
    against the protocol's on the same gradients in nats: within rounding."""
    config = preset("ptb", protocol="vorontsov/code")
    name, options = read_spec("optimizer", config.optimizer)
    rule = optimizer(name, config.rate, **options)
    rng = np.random.default_rng(0)
    W = {"W": rng.normal(size=(6, 50))}
    theirs, squares, state = W["W"].copy(), 0.0, rule.init(W)
    for size in (1e-4, 1e-3, 1, 100):  # below the root of eps and above it, and clipped
        nats = size * rng.normal(size=(6, 50))
        bits = np.clip(nats / log(2), -30, 30) + 2e-4 * theirs
        squares = 0.9 * squares + 0.1 * bits**2
        theirs = theirs - 1e-3 * bits / np.sqrt(squares + 1e-6)
        ours = np.clip(nats, -config.clip_at, config.clip_at) + 2 * config.weight_decay * W["W"]
        W, state = rule.step(W, {"W": ours}, state)
        assert abs(W["W"] - theirs).max() <= 1e-14
        assert abs(bits - ours).max() > min(size, 30) / 10  # the gradients themselves differ


@pytest.mark.parametrize(
    "given, says",
    [
        ({}, "no task is given"),
        ({"task": None}, "task is None; need a str"),
        *[
            ({"task": "copy", name: value}, f"{name} is .*; need a ")
            for name, value in (
                ("transition", 3),
                ("cell", None),
                ("method", None),
                ("activation", ["tanh"]),
                ("rate", "1"),
            )
        ],
    ],
)
def test_a_setting_of_another_type_is_said(given, says):
    with refused(says):
        configure(given)
