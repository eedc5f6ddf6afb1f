"""Settings: one declaration each, from which types, ranges, places, help and TOML follow."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest

from refnet.cli import main
from refnet.common.specs import parse_spec
from refnet.matrices.orthogonality import open_penalty
from refnet.matrices.transitions import TRANSITIONS
from refnet.matrices.transitions.manifold import Manifold
from refnet.nets.gradients import loss_and_gradients
from refnet.training.config import Config, applicable, check, check_value, declaration
from refnet.training.config_files import from_toml, to_toml
from refnet.training.experiment import build
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


@pytest.mark.parametrize("text", ["true", "True", "yes", "false", "False", "no"])
def test_peepholes_are_what_was_asked_for(text):
    experiment = build(
        Config(task="temporal-order:samples=5", length=10, hidden=4, cell=f"lstm:peepholes={text}")
    )
    assert ("Wpi" in experiment.start()[0]) == (text.lower() in ("true", "yes"))


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
        ("--transition urnn --hidden 7", "transition urnn: the matrix has 7 rows; need an even"),
        ("--transition unitary --hidden 7", "transition unitary: the matrix has 7 rows"),
        ("--transition unitary:step=x", "choose one of cayley, qr, polar, geodesic"),
        ("--transition urnn --manifold-rate 1", "manifold_rate 1.0 would have no effect"),
        ("--transition urnn --method oinit", "plain and open as a penalty go with it"),
        ("--activation modrelu_pairs --hidden 7", "even width, not 7; use 8 or 6"),
        ("--norm-stabilizer 1 --layers 2", "layers is 2; need 1 with norm_stabilizer"),
        ("--norm-stabilizer 1 --accumulate 2", "accumulate is 2; need 1 with norm_stabilizer"),
        ("--vanishing 1 --cell lstm", "cell is 'lstm'; need 'rnn' with vanishing"),
        ("--vanishing 1 --noise-state .1", "noise_state is 0.1; need 0.0 with vanishing"),
        ("--vanishing=-1", "vanishing is -1.0; need at least 0"),
        ("--method open --open-form triple", "invalid choice|choose one of squared"),
        ("--oinit-form double --method oinit", "invalid choice|choose one of squared"),
        ("--oinit-gradient .1", "would have no effect: it is for method oinit"),
    ],
)
def test_bad_flags_are_one_line_and_leave_nothing(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    assert main([*"train temporal-order --length 10 --quiet".split(), *flags.split()]) == 2
    text = capsys.readouterr().err
    assert re.search(message, text) and text.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_rate_on_manifolds_is_a_setting_of_every_transition_that_has_one():
    for name, dense_params in TRANSITIONS.items():
        applies = "manifold_rate" in applicable(Config(transition=name))
        assert applies == issubclass(dense_params, Manifold)


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


def test_oinit_makes_the_sizes_of_a_product_orthogonal():
    """W = D o S: OINIT makes S orthogonal and leaves D."""
    config = Config(
        "temporal-order:samples=5", length=10, hidden=6, transition="product", method="oinit"
    )
    params, report = build(config).start()
    S = params["Whh.S"]
    assert [entry["matrix"] for entry in report] == ["Whh.S"]
    assert np.square(S @ S.T - np.eye(6)).sum() < 1e-5
    with refused("oinit changes a matrix itself"):
        build(replace(config, transition="product:hard=true"))


def test_open_acts_on_the_sizes_of_a_product():
    """Not on D o S: the penalty is strength ||S S' - I||^2, of which D has no gradient."""
    config = preset("temporal-order", length=10, hidden=8, transition="product", method="open")
    e = build(config)
    params, _ = e.start()
    value, grads = e.penalty(params)
    expected, gradient = open_penalty({"S": params["Whh.S"]}, config.strength, config.open_form)
    assert value == expected and grads.keys() == {"Whh.S"}
    assert (grads["Whh.S"] == gradient["S"]).all() and np.ptp(params["Whh.D"]) > 0.5


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
