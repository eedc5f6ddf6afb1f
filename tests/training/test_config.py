"""Settings: one declaration each, from which types, ranges, places, help and TOML follow."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.cli import main
from refnet.matrices.transitions import TRANSITIONS
from refnet.matrices.transitions.manifold import Manifold
from refnet.nets.gradients import jvp, loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.runs.checkpoint import load
from refnet.specs import parse_spec
from refnet.training.config import (
    Config,
    applicable,
    check,
    check_value,
    declaration,
    from_toml,
    to_toml,
)
from refnet.training.experiment import build
from refnet.training.loop import identity, train
from refnet.training.protocols import configure, preset
from refnet.training.specs import KINDS, options_of, read_spec
from support.arguments import refused
from support.realdata import real_data

EMPTY = ("protocol", "input_weights", "recurrent", "gate_recurrent")


@pytest.mark.parametrize(
    "name", [entry.name for entry in fields(Config) if type(entry.default) is int]
)
def test_a_size_beyond_all_memory_is_refused_by_its_name(name):
    with refused(f"{name} is 1000.*; need at most "):
        check_value(name, 10**40)


def test_every_setting_is_declared_and_its_default_passes():
    check(Config())
    for entry in fields(Config):
        assert len(declaration(entry.name).help) > 5
        if entry.name in KINDS and entry.name not in EMPTY:
            read_spec(entry.name, entry.default)


@pytest.mark.parametrize(
    "text, peepholes",
    [
        ("true", True),
        ("True", True),
        ("yes", True),
        ("false", False),
        ("False", False),
        ("no", False),
    ],
)
def test_peepholes_are_what_was_asked_for(text, peepholes):
    experiment = build(
        Config(task="temporal-order:samples=5", length=10, hidden=4, cell=f"lstm:peepholes={text}")
    )
    assert ("Wpi" in experiment.start()[0]) == peepholes


def test_options_have_types():
    """Every option of every name reads its own default, and nothing of another type."""
    wrong = {
        bool: ("2", "maybe", ""),
        int: ("1.5", "x", "true", ""),
        float: ("x", "nan", "inf", "true", ""),
    }
    for setting, kind in KINDS.items():
        for name in kind.names:
            for option, (types, default) in options_of(setting, name).items():
                assert types, (setting, name, option)
                if default is not None:
                    read = read_spec(setting, f"{name}:{option}={default}")[1][option]
                    assert read == default and type(read) in types
                for text in wrong[types[0]] if len(types) == 1 and types[0] is not str else ():
                    with refused(f"{option} is '{text}'; need a?"):
                        read_spec(setting, f"{name}:{option}={text}")


@pytest.mark.parametrize(
    "text, message",
    [
        ("rnn:gates=1", "cell rnn has no option 'gates'; it takes none"),
        ("lstm:peepholes=perhaps", "cell lstm: peepholes is 'perhaps'; need true or false"),
        ("lstm:forget=1,forget=2", "forget is given twice"),
        ("lstm:forget", "'forget' is not key=value"),
        ("LSTM", "cell 'LSTM' is unknown; choose one of rnn, lstm"),
    ],
)
def test_specs_that_do_not_read_are_refused(text, message):
    with refused(message):
        read_spec("cell", text)


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--oinit-steps=-1 --method oinit", "oinit_steps is -1; need at least 1"),
        ("--oinit-cost nan --method oinit", "oinit_cost is nan; need a finite number"),
        ("--oinit-cost 1e-3", "oinit_cost 0.001 would have no effect: it is for method oinit"),
        ("--cell rnn:gates=1", "cell rnn has no option 'gates'"),
        ("--depth 10", "depth 10 would have no effect: it is for feedforward nets"),
        (
            "--gate-recurrent ramp",
            "gate_recurrent 'ramp' would have no effect: it is for cells with",
        ),
        ("--clip-at nan --clip norm", "clip_at is nan; need a finite number"),
        ("--clip-at 0 --clip norm", "clip_at is 0.0; need more than 0"),
        ("--clip-at 3", "clip_at 3.0 would have no effect: it is for clipping"),
        ("--iterations 0", "iterations is 0; need at least 1"),
        ("--manifold-rate 1", "manifold_rate 1.0 would have no effect"),
        ("--weights gaussian:sd=-1", "gaussian's sd is -1.0; need at least 0"),
        ("--weights gauss", "weights 'gauss' is unknown"),
        ("--optimizer rmsprop:form=x", "has no form 'x'"),
        ("--seed=-1", "seed is -1; need at least 0"),
        ("--gain inf", "gain is inf; need a finite number"),
        ("--strength 1", "strength 1.0 would have no effect: it is for method open"),
        (
            "--protocol vorontsov/text",
            "has no task temporal-order.*choose manchev-spratling/text or",
        ),
        ("--protocol x", "protocol 'x' is unknown; choose one of manchev-spratling/text"),
    ],
)
def test_bad_flags_are_one_line_and_leave_nothing(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    assert main([*"train temporal-order --length 10 --quiet".split(), *flags.split()]) == 2
    text = capsys.readouterr().err
    assert re.search(message, text) and text.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_rate_on_manifolds_is_a_setting_of_every_transition_that_has_one():
    for name, made in TRANSITIONS.items():
        applies = "manifold_rate" in applicable(Config(transition=name))
        assert applies == issubclass(made, Manifold)


def test_settings_that_do_not_apply_must_be_their_defaults(monkeypatch):
    check(Config(depth=10))
    with refused("depth 3 would have no effect"):
        build(Config(depth=3))
    monkeypatch.setenv("REFNET_DATA", str(real_data("mnist")))
    with refused("clip step bounds gradients inside the recursion"):
        build(replace(preset("mnist"), clip="step"))


def test_toml_has_what_applies_and_reads_back(tmp_path):
    for config in (
        Config(),
        preset("mnist", method="open", weights='a"b\\c'),
        preset("copy", learn_h0=True, rate=1e-30, cell="lstm"),
    ):
        (tmp_path / "c.toml").write_text(to_toml(config))
        saved = from_toml(tmp_path / "c.toml")
        assert Config(**saved) == config and set(saved) == set(applicable(config))
    assert "depth" not in applicable(Config()) and "cell" not in applicable(preset("mnist"))


def test_a_saved_spec_is_complete_and_a_given_one_is_completed(tmp_path):
    saved = {"task": "copy", "transition": "svd:margin=1"}
    assert configure({}, saved).transition == "svd:margin=1"
    given = {"task": "copy", "transition": "svd:margin=1"}
    assert configure(given).transition == "svd:margin=1,spectrum_rate=printed"
    assert parse_spec(configure({**given, "transition": "orthogonal"}).transition)[1] == {}


def test_settings_given_make_another_run_of_a_file(tmp_path):
    """What the file says of a method or a cell that is no longer the run's is left out; what never
    applied is refused. A protocol that nothing would be taken from is refused too."""
    saved = applicable(
        preset("temporal-order", method="open", strength=0.5, cell="gru", gate_recurrent="he")
    )
    config = configure({"method": "plain", "cell": "rnn"}, saved)
    assert config == replace(
        Config(**saved),
        method="plain",
        cell="rnn",
        strength=Config.strength,
        open_form=Config.open_form,
        gate_recurrent="",
    )
    with refused("strength 0.5 would have no effect"):
        configure({"cell": "rnn"}, {**saved, "method": "plain"})
    with refused("protocol manchev-spratling/text would have no effect"):
        configure({"protocol": "manchev-spratling/text"}, saved)
    assert configure({}, saved | {"protocol": ""}).protocol == "manchev-spratling/code"
    assert (
        configure(
            {"protocol": "manchev-spratling/text"},
            {"task": "adding", "protocol": "manchev-spratling/code"},
        ).optimizer
        == "sgd"
    )


def test_prelus_slope_starts_where_it_is_told_to():
    experiment = build(
        Config(task="copy:samples=5", length=5, hidden=4, activation="prelu:start=0.7")
    )
    params = experiment.start()[0]
    assert params["slope"] == experiment.report(params)["slope"] == np.float32(0.7)


@pytest.mark.parametrize("method", ["oinit", "open"])
def test_the_methods_act_on_the_sizes_of_a_product(method):
    """W = D o S: OINIT makes S orthogonal and leaves D; OPEN's gradient is S's alone."""
    experiment = build(
        Config(
            task="temporal-order:samples=5",
            length=10,
            hidden=6,
            transition="product",
            method=method,
            dtype="float64",
            strength=(0.5 if method == "open" else 0.01),
        )
    )
    params, report = experiment.start()
    S = params["Whh.S"]
    if method == "oinit":
        assert [entry["matrix"] for entry in report] == ["Whh.S"]
        assert np.square(S @ S.T - np.eye(6)).sum() < 1e-6
        with refused("oinit changes a matrix itself"):
            build(replace(experiment.config, transition="product:hard=true"))
    else:
        made = experiment.net.matrices(params)[0]
        value, grads = experiment.penalty(made)
        E = S @ S.T - np.eye(6)
        assert set(grads) == {"Whh.S"} and np.isclose(value, 0.5 * np.square(E).sum())
        assert np.allclose(grads["Whh.S"], 0.5 * 4 * E @ S)


@pytest.mark.parametrize("method", ["plain", "oinit", "open", "oinit+open"])
def test_a_run_moves_the_sizes_of_a_product_and_not_its_distances(tmp_path, method):
    """SGD by hand: S <- S - rate (D o dL/dW + lambda 4 (S S' - I) S), and D keeps its bits."""
    config = preset(
        "temporal-order:samples=20",
        length=10,
        hidden=8,
        transition="product",
        method=method,
        protocol="manchev-spratling/text",
        dtype="float64",
        iterations=30,
        evaluate_every=30,
        backend="reference",
    )
    train(config, tmp_path / "run")
    found = load(tmp_path / "run" / "checkpoint.npz", identity(config)).groups["params"]
    experiment = build(config)
    params, report = experiment.start()
    D, dense = params["Whh.D"], replace(experiment.net, transition=None)
    assert bool(report) == ("oinit" in method) and np.ptp(D) > 0.5
    for number in range(30):
        made = {
            **{name: value for name, value in params.items() if "." not in name},
            "Whh": D * params["Whh.S"],
        }
        grads = loss_and_gradients(
            dense, made, experiment.task.batch(number, config.batch, config.seed)
        ).gradients
        S = params["Whh.S"]
        dS = D * grads["Whh"]
        if "open" in method:
            dS = dS + config.strength * 4 * (S @ S.T - np.eye(8)) @ S
        params = {
            **{name: made[name] - config.rate * grads[name] for name in made if name != "Whh"},
            "Whh.D": D,
            "Whh.S": S - config.rate * dS,
        }
    assert np.array_equal(found["Whh.D"], D)
    assert abs(found["Whh.S"] - params["Whh.S"]).max() < 1e-12
    assert abs(found["Whh.S"] - experiment.start()[0]["Whh.S"]).max() > 1e-6


def test_a_negative_singular_value_is_kept_or_cut_by_name():
    from refnet.matrices.transitions import transition

    p = np.array([-3.0, 0.0, 3.0])
    parts = {"U": np.eye(3), "V": np.eye(3), "p": p}
    kept, cut = (transition("svd", margin=2, negative=name) for name in ("keep", "relu"))
    s = 4 * (1 / (1 + np.exp(-p)) - 0.5) + 1
    assert s[0] < 0 and np.allclose(kept.spectrum(parts), s)
    assert np.allclose(cut.spectrum(parts), np.maximum(s, 0))
    dW = np.ones((3, 3))
    for made, zero in ((kept, False), (cut, True)):
        dp = made.pull_back(parts, made.matrix(parts)[1], dW)["p"]
        assert (dp[0] == 0) == zero and (dp[1:] != 0).all()
    # without a margin the part is s itself
    free = {"U": np.eye(3), "V": np.eye(3), "s": p}
    kept, cut = (transition("svd", negative=name) for name in ("keep", "relu"))
    assert (kept.spectrum(free) == p).all() and (cut.spectrum(free) == [0, 0, 3]).all()
    assert (cut.matrix(free)[0] == np.diag([0, 0, 3])).all()
    dW = np.arange(1.0, 10).reshape(3, 3)
    assert (cut.pull_back(free, cut.matrix(free)[1], dW)["s"] == [0, 0, 9]).all()
    assert (kept.pull_back(free, kept.matrix(free)[1], dW)["s"] == [1, 5, 9]).all()
    assert transition("svd", margin=2, spectrum_factor=0.1).rates == {"p": 0.1}
    assert transition("svd", spectrum_factor=0.1).rates == {"s": 0.1}


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
@pytest.mark.parametrize("transition", ["dense", "svd:margin=0.5"])
def test_an_embedding_has_exact_gradients(cell, transition):
    """Wxh = W E: the gradients of W and E are those of the net with the matrix W E, pulled back
    through the product, and agree with a tangent of the forward pass; a planted bug does not."""
    config = Config(
        task="copy:samples=5",
        length=3,
        hidden=4,
        embedding=3,
        cell=cell,
        transition=transition,
        recurrent="orthogonal",
        dtype="float64",
        backend="reference",
        weight_decay=0.25,
    )
    experiment = build(config)
    params = experiment.start()[0]
    assert params["Wxh.E"].shape == (3, 10) and "Wxh" not in params
    batch = experiment.task.batch(0, 2, 0)
    rng = np.random.default_rng(1)
    v = {name: rng.normal(size=value.shape) for name, value in params.items()}
    found = loss_and_gradients(experiment.net, params, batch).gradients
    pulled = sum((found[name] * v[name]).sum() for name in params)
    pushed = float(jvp(experiment.net, params, batch, v)[1])
    size = sum(np.abs(found[name] * v[name]).sum() for name in params)
    # sums of some hundred terms, each rounded a few times
    bound = 1e4 * np.finfo(float).eps * size
    assert abs(pulled - pushed) <= bound
    swapped = (
        pulled
        - (found["Wxh.E"] * v["Wxh.E"]).sum()
        + ((params["Wxh.W"].T @ params["Wxh.W"] @ found["Wxh.E"]) * v["Wxh.E"]).sum()
    )
    assert abs(swapped - pushed) > 1e3 * bound
    # weight decay acts on W and not on E
    with_decay = loss_and_gradients(experiment.net, params, batch, penalty=experiment.penalty)
    decay = with_decay.gradients["Wxh.W"] - found["Wxh.W"]
    assert np.allclose(decay, 0.5 * params["Wxh.W"], atol=1e-12)
    assert (with_decay.gradients["Wxh.E"] == found["Wxh.E"]).all()


def test_weight_decay_of_a_stack_acts_on_the_input_matrix_of_its_embedding():
    experiment = build(
        Config(
            task="copy:samples=5",
            length=3,
            hidden=4,
            embedding=3,
            layers=2,
            backend="reference",
            weight_decay=0.25,
        )
    )
    params = experiment.start()[0]
    batch = experiment.task.batch(0, 2, 0)
    plain, decayed = (
        loss_and_gradients(experiment.net, params, batch, penalty=penalty).gradients
        for penalty in (None, experiment.penalty)
    )
    for name in ("Wxh_l0.W", "Wxh_l0.E", "Wxh_l1"):
        factor = 0 if name.endswith("E") else 0.5
        assert np.allclose(decayed[name] - plain[name], factor * params[name], atol=1e-6), name


@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(2, 4, 3, embedding=3),
        StackedNet(2, 4, 3, embedding=3, layers=2, bidirectional=True),
    ],
)
def test_further_gradients_reach_both_factors_of_an_embedding(net):
    rng = np.random.default_rng(0)
    params = net.init(rng, np.float64)
    batch = Batch(rng.normal(size=(5, 2, 2)), np.array([0, 2]))
    outputs, tape = net.forward(params, batch.x)
    alone = net.backward(params, tape, outputs)
    extra = {name: rng.normal(size=value.shape) for name, value in params.items()}
    assert {"Wxh.W", "Wxh.E"} <= {name.replace("_l0", "") for name in extra}
    found = net.backward(params, tape, outputs, extra=extra)
    for name, value in extra.items():
        assert np.allclose(found[name], alone[name] + value, rtol=1e-14, atol=1e-14), name


def test_an_embedding_is_no_matrix_to_orthogonalise():
    with refused("which embedding 3 makes a product"):
        build(Config(embedding=3, method="oinit", orthogonal="all"))


@pytest.mark.parametrize("line", ["rate = ", "clip_at = ", "strength = -", "gain = "])
def test_numbers_beyond_floats_are_refused(tmp_path, line):
    """TOML's integers have any size."""
    path = tmp_path / "config.toml"
    path.write_text(f'task = "adding"\n{line}{"9" * 400}\n')
    with refused(f"config.toml: {line.split()[0]} is .*finite number"):
        from_toml(path)
