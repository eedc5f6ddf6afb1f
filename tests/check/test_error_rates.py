"""The judge judged: no false alarm on correct results, no planted bug that passes."""

import argparse
import json
from shutil import which

import numpy as np
import pytest

from benchmarks.judge import rates
from benchmarks.judge.bugs import nameless
from benchmarks.judge.checkers import CASES, CHECKERS, checker_rows
from benchmarks.judge.implementations import IMPLEMENTATIONS
from refnet.check.cases import random_batch, random_params
from refnet.check.cli import add_commands
from refnet.check.mistakes import mistakes
from refnet.check.verdict import EXPLAINED, LIMITS, NOT_ROUNDING
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet

pytestmark = pytest.mark.needs("flint")

HERE = (
    "reference",
    "permuted",
    "loops BLAS",
    "loops fused",
    "loops sequential fused",
    "loops backwards",
    "loops pairwise",
)
IN_C = tuple(name for name in IMPLEMENTATIONS if name.startswith("C "))


def command(*arguments):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    args = parser.parse_args(list(map(str, arguments)))
    return args.run(args)


def test_no_false_alarm_on_correct_results():
    rows = list(rates.correct_rows(40, seed=1, longest=20, implementations=HERE))
    assert len(rows) > 150
    assert {row["verdict"] for row in rows} == {EXPLAINED}
    assert {row["cell"] for row in rows} == {"rnn", "lstm", "gru", "gru_before", "feedforward"}
    assert {row["dtype"] for row in rows} == {"float32", "float64"}
    assert {row["mask"] for row in rows} == {row["peepholes"] for row in rows} == {True, False}
    assert len({row["transition"] for row in rows}) > 1


def test_c_raises_no_alarm():
    if which("cc") is None:
        pytest.skip("there is no C compiler")
    rows = list(rates.correct_rows(10, seed=3, longest=20, implementations=IN_C))
    assert {row["what"] for row in rows} == set(IN_C)
    assert {row["verdict"] for row in rows} == {EXPLAINED}
    assert len({row["cell"] for row in rows}) == 4


def test_other_implementations_raise_no_alarm():
    for name in ("torch", "jax", "autograd", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} (extras) is not installed")
    names = ("PyTorch", "JAX", "autograd", "onnxruntime", "ONNX reference")
    rows = list(rates.correct_rows(12, seed=2, longest=10, implementations=names))
    assert {row["what"] for row in rows} == set(names)
    assert {row["verdict"] for row in rows} == {EXPLAINED}


@pytest.mark.parametrize("what", ["rnn h0", "rnn clipped", "gru every mask", "feedforward"])
def test_no_bug_passes_that_rounding_could_not_hide(what):
    case = next(n for n, (name, *_) in enumerate(rates.CASES) if name == what)
    rows = list(rates.bug_rows(cases=[case]))
    found = rates.summary(rows)
    assert found["correct"] == 2 and found["bugs"] > (100 if what == "feedforward" else 200)
    assert found["missed"] == 0 and found["false_alarms"] == 0
    assert found["found"] + found["hidden_in_rounding"] == found["bugs"]
    assert found["found"] >= 0.98 * found["bugs"]
    assert found["by_their_own"] >= 0.85 * found["named"]


def test_bugs_are_of_every_kind():
    """At least 100 kinds; no two of one case have one name."""
    kinds = set()
    for name, net, T, B in rates.CASES:
        rng = np.random.default_rng(0)
        params, batch = random_params(net, rng, float), random_batch(net, rng, float, T, B)
        here = [one.name for one in (*mistakes(net, params, batch), *nameless(net, batch))]
        assert len(set(here)) == len(here), name
        kinds |= set(here)
    assert len(kinds) > 200


def test_summary_counts_misses_and_false_alarms():
    bug = {"kind": "bug", "what": "b", "z": 1.0}
    rows = [
        {"kind": "correct", "what": "c", "z": 7.0, "verdict": "suspicious"},
        {**bug, "verdict": EXPLAINED, "true_z": LIMITS[1] + 1},
        {**bug, "verdict": EXPLAINED, "true_z": 1.0},
        {**bug, "verdict": NOT_ROUNDING, "true_z": 99.0},
    ]
    found = rates.summary(rows)
    assert (found["false_alarms"], found["missed"], found["hidden_in_rounding"]) == (1, 1, 1)
    assert (found["found"], found["bugs"], found["largest_z_of_correct"]) == (1, 3, 7.0)


def test_tables_keep_counts_and_exceptions():
    rows = [
        {"kind": "correct", "what": "c", "z": 1.0, "verdict": EXPLAINED},
        {"kind": "bug", "what": "b", "z": 9.0, "verdict": EXPLAINED, "true_z": 99.0},
        {
            "kind": "bug",
            "what": "b",
            "z": 99.0,
            "verdict": NOT_ROUNDING,
            "true_z": 99.0,
            "convention": "b",
        },
    ]
    tables = rates.tables(rows)
    assert tables["correct"] == [
        {"what": "c", "correct": 1, "false_alarms": 0, "largest_z_of_correct": 1.0}
    ]
    assert tables["bugs"] == [
        {
            "what": "b",
            "bugs": 2,
            "found": 1,
            "hidden_in_rounding": 0,
            "missed": 1,
            "named": 1,
            "by_their_own": 1,
        }
    ]
    assert tables["rows"] == [rows[1]]


def test_checkers_side_by_side():
    pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")
    pytest.importorskip("jax", reason="JAX (extra jax) is not installed")
    few = ("tanh' is off by 1e-6", "every gradient is 0.09% too large", "dWhh is transposed")
    rows = list(checker_rows(few=few))
    assert {row["case"] for row in rows if row["bug"] == "none"} == set(CASES)
    assert all(row[name] for row in rows for name in CHECKERS[:4] if row["bug"] == "none")
    short = {row["bug"]: row for row in rows if row["case"] == "rnn"}
    assert short["none"]["refnet float32"] and short["none"]["gradcheck"]
    assert not short["none"]["assert_allclose"]  # its default rejects correct float32 gradients
    assert short["every gradient is 0.09% too large"]["gradcheck"]
    assert short["tanh' is off by 1e-6"]["check_grads"]
    for bug in few:
        assert not short[bug]["refnet float64"]
        if "1e-6" not in bug:  # which in float32 is little more than rounding
            assert not short[bug]["refnet float32"]
    assert not short["dWhh is transposed"]["gradcheck"]


OWN = """
import torch

def loss(p, x, y):
    h = torch.zeros(x.shape[1], p["bh"].shape[0], dtype=x.dtype)
    for step in x:
        h = torch.tanh(step @ p["Wxh"].T + h @ p["Whh"].T + p["bh"])
    return torch.nn.functional.cross_entropy(h @ p["Why"].T + p["by"], y, reduction="REDUCTION")
"""


def test_commands_judge_a_users_function(tmp_path, capsys):
    pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")
    file, out = tmp_path / "mine.py", tmp_path / "rows.json"
    size = ("--sizes", "5,4,3")
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
    assert "2 of 2 are explained by rounding" in capsys.readouterr().out
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ValueError, match="not a valid ONNX model"):
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
    (theirs / f"{name}.json").write_bytes(
        encode(
            {f"d{key}": value for key, value in found.gradients.items()},
            "json",
            {"dtype": "float32"},
        )
    )
    assert command("vectors", "judge", golden, theirs) == 1
    assert "there is no result for this case" in capsys.readouterr().out
    assert command("vectors", "judge", golden, theirs, "--skip-missing") == 0
    assert "1 of 1 cases" in capsys.readouterr().out


@pytest.mark.parametrize(
    "path",
    [
        ("check",),
        ("check", "torch"),
        ("check", "jax"),
        ("check", "onnx"),
        ("check", "rates"),
        ("check", "checkers"),
        ("vectors",),
        ("vectors", "write"),
        ("vectors", "judge"),
    ],
)
def test_help_teaches_with_an_example(path, capsys):
    with pytest.raises(SystemExit):
        command(*path, "--help")
    assert "example" in capsys.readouterr().out
