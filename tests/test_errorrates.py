"""The judge judged: no false alarm on correct results, no planted bug that passes."""

import argparse
import json

import numpy as np
import pytest

pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
from refnet.check import errorrates  # noqa: E402
from refnet.check.bugs import BUGS, CORRECT, run  # noqa: E402
from refnet.check.cases import random_batch, random_params  # noqa: E402
from refnet.check.cli import add_commands  # noqa: E402
from refnet.check.verdict import EXPLAINED, LIMITS, NOT_ROUNDING  # noqa: E402
from refnet.nets.gradients import loss_and_gradients  # noqa: E402
from refnet.nets.recurrent import RecurrentNet  # noqa: E402

HERE = [name for name in ("NumPy", "permuted NumPy")]
SMALL_SIZES = ((5, 4, 2), (20, 8, 3))


def command(*arguments):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    args = parser.parse_args(list(map(str, arguments)))
    return args.run(args)


def test_no_false_alarm_on_correct_results():
    rows = list(errorrates.correct_rows(24, seed=1, longest=50, implementations=tuple(HERE)))
    assert len(rows) == 48
    assert {row["verdict"] for row in rows} == {EXPLAINED}
    assert {row["cell"] for row in rows} == {"rnn", "lstm", "gru"}
    assert {row["dtype"] for row in rows} == {"float32", "float64"}


def test_other_implementations_raise_no_alarm():
    pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")
    pytest.importorskip("jax", reason="JAX (extra jax) is not installed")
    rows = list(errorrates.correct_rows(6, seed=2, longest=20,
                                        implementations=("PyTorch", "JAX")))
    assert {row["verdict"] for row in rows} == {EXPLAINED}


def test_no_bug_passes_that_rounding_could_not_hide():
    rows = list(errorrates.bug_rows(sizes=SMALL_SIZES))
    found = errorrates.summary(rows)
    assert found["kinds_of_bugs"] == len(BUGS) >= 30
    assert found["bugs"] == 4 * len(BUGS) and found["correct"] == 4
    assert found["missed"] == 0 and found["false_alarms"] == 0
    assert found["found"] + found["hidden_in_rounding"] == found["bugs"]
    assert found["found"] >= 0.98 * found["bugs"]


def test_summary_counts_misses_and_false_alarms():
    bug = {"kind": "bug", "what": "b", "z": 1.0}
    rows = [{"kind": "correct", "what": "c", "z": 7.0, "verdict": "suspicious"},
            {**bug, "verdict": EXPLAINED, "true_z": LIMITS[1] + 1},
            {**bug, "verdict": EXPLAINED, "true_z": 1.0},
            {**bug, "verdict": NOT_ROUNDING, "true_z": 99.0}]
    found = errorrates.summary(rows)
    assert (found["false_alarms"], found["missed"], found["hidden_in_rounding"]) == (1, 1, 1)
    assert (found["found"], found["bugs"], found["largest_z_of_correct"]) == (1, 3, 7.0)


def test_the_naive_net_is_the_reference():
    net = RecurrentNet(3, 4, 3)
    rng = np.random.default_rng(0)
    params, batch = random_params(net, rng, float), random_batch(net, rng, float, 6, 2)
    ours, theirs = loss_and_gradients(net, params, batch), run(CORRECT, params, batch)
    for name, value in ours.gradients.items():
        # float64 both: n < 1e4 operations, entries of order 1
        assert abs(theirs[f"d{name}"] - value).max() < 1e4 * np.finfo(float).eps, name


def test_every_bug_changes_the_result():
    net = RecurrentNet(3, 4, 3)
    rng = np.random.default_rng(0)
    params, batch = random_params(net, rng, float), random_batch(net, rng, float, 6, 2)
    right = run(CORRECT, params, batch)
    for bug in BUGS:
        wrong = run(bug, params, batch)
        assert any((wrong[name] != right[name]).any() for name in right), bug.name
        if not bug.forward:
            assert wrong["loss"] == right["loss"], bug.name


def test_checkers_side_by_side():
    pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")
    pytest.importorskip("jax", reason="JAX (extra jax) is not installed")
    few = tuple(bug for bug in BUGS if bug.name in (
        "tanh' off by 1e-6", "everything 0.09% too large", "dWhh reported transposed"))
    rows = list(errorrates.checker_rows(bugs=few))
    short = {row["bug"]: row for row in rows if row["case"] == "short"}
    assert short["none"]["refnet float32"] and short["none"]["gradcheck"]
    assert not short["none"]["assert_allclose"]  # its default rejects correct float32 gradients
    assert short["everything 0.09% too large"]["gradcheck"]
    assert short["tanh' off by 1e-6"]["check_grads"]
    for bug in few:
        assert not short[bug.name]["refnet float32"] and not short[bug.name]["refnet float64"]
    assert not short["dWhh reported transposed"]["gradcheck"]


OWN = '''
import torch

def loss(p, x, y):
    h = torch.zeros(x.shape[1], p["bh"].shape[0], dtype=x.dtype)
    for step in x:
        h = torch.tanh(step @ p["Wxh"].T + h @ p["Whh"].T + p["bh"])
    return torch.nn.functional.cross_entropy(h @ p["Why"].T + p["by"], y, reduction="REDUCTION")
'''


def test_commands_judge_a_users_function(tmp_path, capsys):
    pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")
    file, out = tmp_path / "mine.py", tmp_path / "rows.json"
    size = ("--hidden", 4, "--steps", 5, "--batch", 3)
    file.write_text(OWN.replace("REDUCTION", "mean"))
    assert command("check", "torch", "--function", f"{file}:loss", *size, "--json", out) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["verdict"] for row in rows] == [EXPLAINED] * 2
    file.write_text(OWN.replace("REDUCTION", "sum"))
    assert command("check", "torch", "--function", f"{file}:loss", *size) == 1
    assert "the reduction is sum instead of mean" in capsys.readouterr().out
    with pytest.raises(ValueError, match="need FILE.py:NAME"):
        command("check", "torch", "--function", "nowhere.py:loss")
    with pytest.raises(ValueError, match="has no function lost"):
        command("check", "torch", "--function", f"{file}:lost")


def test_commands_judge_a_model_file(tmp_path, capsys):
    onnx = pytest.importorskip("onnx", reason="onnx (extra onnx) is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime (extra onnx) is not installed")
    from refnet.check.adapters.onnx_nets import model
    net = RecurrentNet(2, 3, 1, cell="gru")
    made = model(net, random_params(net, np.random.default_rng(0), np.float32))
    onnx.save(made, tmp_path / "gru.onnx")
    assert command("check", "onnx", tmp_path / "gru.onnx") == 0
    assert capsys.readouterr().out.count(EXPLAINED) == 2
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ValueError, match="cannot be read as an ONNX model"):
        command("check", "onnx", tmp_path / "broken.onnx")


def test_commands_write_and_judge_vectors(tmp_path, capsys, monkeypatch):
    from refnet.check import vectors
    from refnet.check.encodings import encode
    few = [case for case in vectors.catalogue() if case[0] in ("rnn-last", "gru-last")]
    monkeypatch.setattr(vectors, "catalogue", lambda: iter(few))
    golden, theirs = tmp_path / "golden", tmp_path / "theirs"
    theirs.mkdir()
    assert command("vectors", "write", golden) == 0
    assert "2 cases in three encodings" in capsys.readouterr().out
    name, net, params, batch = few[0]
    found = loss_and_gradients(net, params, batch)
    (theirs / f"{name}.json").write_bytes(encode(
        {f"d{key}": value for key, value in found.gradients.items()}, "json",
        {"dtype": "float32"}))
    assert command("vectors", "judge", golden, theirs) == 1
    assert "there is no result for this case" in capsys.readouterr().out
    assert command("vectors", "judge", golden, theirs, "--skip-missing") == 0
    assert "1 of 1 cases" in capsys.readouterr().out


@pytest.mark.parametrize("path", [
    ("check",), ("check", "torch"), ("check", "jax"), ("check", "onnx"), ("check", "rates"),
    ("check", "checkers"), ("vectors",), ("vectors", "write"), ("vectors", "judge")])
def test_help_teaches_with_an_example(path, capsys):
    with pytest.raises(SystemExit):
        command(*path, "--help")
    assert "example" in capsys.readouterr().out
