"""The judge judged: no false alarm on correct results, no planted bug that passes."""

import json
from functools import partial
from shutil import which

import numpy as np
import pytest

from benchmarks.judge import checkers, rates
from benchmarks.judge.bugs import bugs, nameless
from benchmarks.judge.implementations import IMPLEMENTATIONS
from refnet.check.cases import random_batch, random_params
from refnet.check.mistakes import mistakes
from refnet.check.verdict import EXPLAINED, LIMITS, NOT_ROUNDING

pytestmark = pytest.mark.needs("flint")

IN_NUMPY = [name for name in IMPLEMENTATIONS if name.startswith("loops")]
IN_NUMPY += ["reference", "permuted", "compiled"]
IN_C = [name for name in IMPLEMENTATIONS if name.startswith("C ")]


OTHERS = ["PyTorch", "JAX", "autograd", "onnxruntime", "ONNX reference"]


@pytest.mark.parametrize(
    "seed, nets, longest, names",
    [
        pytest.param(1, 24, 20, IN_NUMPY, id="NumPy"),
        pytest.param(3, 8, 20, IN_C, id="C"),
        pytest.param(
            *(2, 8, 10, OTHERS),
            marks=pytest.mark.needs("torch", "jax", "autograd", "onnx", "onnxruntime"),
            id="others",
        ),
    ],
)
def test_no_false_alarm_on_correct_results(seed, nets, longest, names):
    if names is IN_C and which("cc") is None:
        pytest.skip("there is no C compiler")
    rows = list(rates.correct_rows(nets, seed, longest, names))
    assert {row["what"] for row in rows} == set(names)
    assert {row["verdict"] for row in rows} == {EXPLAINED}
    assert {row["dtype"] for row in rows} == {"float32", "float64"}
    if names is IN_C:
        assert len({row["cell"] for row in rows}) == 4
    if names is IN_NUMPY:
        assert {row["cell"] for row in rows} == {"rnn", "lstm", "gru", "gru_before", "feedforward"}
        assert {row["mask"] for row in rows} == {row["peepholes"] for row in rows} == {True, False}
        assert len({row["transition"] for row in rows}) > 1


@pytest.mark.parametrize(
    "what, dtype, every",
    [
        ("rnn h0", np.float32, 3),
        ("rnn clipped", np.float64, 3),
        ("gru every mask", np.float32, 5),
        ("feedforward", np.float64, 1),
    ],
)
def test_no_bug_passes_that_rounding_could_not_hide(what, dtype, every, monkeypatch):
    """Of the slower cases every third or fifth bug; benchmarks.judge.rates counts all of all."""
    monkeypatch.setattr(rates, "DTYPES", (dtype,))
    number = [case.name for case in rates.CASES].index(what)
    rows = list(rates.bug_rows(cases=[number], planted=lambda case: bugs(case)[::every]))
    counts = rates.summary(rows)
    assert counts["correct"] == 1 and counts["bugs"] > 50
    assert counts["missed"] == 0 and counts["false_alarms"] == 0
    assert counts["found"] + counts["hidden_in_rounding"] == counts["bugs"]
    assert counts["found"] >= 0.98 * counts["bugs"]
    perhaps = [row for row in rows if str(row.get("convention")).startswith("perhaps ")]
    among_two = sum(row["what"] in row["convention"] for row in perhaps)
    assert counts["by_their_own"] + among_two >= 0.85 * counts["named"]
    assert counts["by_their_own"] >= 0.82 * counts["named"]


def test_bugs_are_of_every_kind():
    """More than 200 kinds; no two of one case have one name."""
    kinds = set()
    for case in rates.CASES:
        rng, net = np.random.default_rng(0), case.net
        params = random_params(net, rng, float)
        batch = random_batch(net, rng, float, case.steps, case.batch)
        names = [bug.name for bug in (*mistakes(net, params, batch), *nameless(net, batch))]
        assert len(set(names)) == len(names), case
        kinds |= set(names)
    assert len(kinds) > 200


ROWS = [
    {"kind": "correct", "what": "c", "z": 7.0, "verdict": "suspicious"},
    {"kind": "bug", "what": "b", "z": 1.0, "verdict": EXPLAINED, "true_z": LIMITS[1] + 1},
    {"kind": "bug", "what": "b", "z": 1.0, "verdict": EXPLAINED, "true_z": 1.0},
    {
        "kind": "bug",
        "what": "b",
        "z": 99.0,
        "verdict": NOT_ROUNDING,
        "true_z": 99.0,
        "convention": "b",
    },
]


def test_tables_keep_counts_and_exceptions():
    counts = rates.summary(ROWS)
    assert (counts["false_alarms"], counts["missed"], counts["hidden_in_rounding"]) == (1, 1, 1)
    assert (counts["found"], counts["bugs"], counts["largest_z_of_correct"]) == (1, 3, 7.0)
    tables = rates.tables(ROWS)
    assert tables["z"] == {"correct": "7", "bug": "1 1 99"}
    assert tables["correct"] == [
        {"what": "c", "correct": 1, "false_alarms": 1, "largest_z_of_correct": 7.0}
    ]
    named = {"named": 1, "by_their_own": 1}
    assert tables["bugs"] == [
        {"what": "b", "bugs": 3, "found": 1, "hidden_in_rounding": 1, "missed": 1, **named}
    ]
    assert tables["rows"] == ROWS[:3]


@pytest.mark.parametrize("planted, status", [((), 0), (ROWS[1:2], 1)])
def test_the_command_counts_wrong_verdicts(planted, status, tmp_path, monkeypatch, capsys):
    file = tmp_path / "rates.json"
    words = ["rates", "--nets", "2", "--longest", "3", "--implementations", "reference"]
    monkeypatch.setattr("sys.argv", [*words, "--json", str(file)])
    monkeypatch.setattr(rates, "bug_rows", lambda seed: iter(planted))
    assert rates.main() == status
    assert "largest z of correct" in capsys.readouterr().out
    record = json.loads(file.read_text())
    assert record["summary"]["correct"] == 2 and len(record["rows"]) == len(planted)


@pytest.mark.needs("torch", "jax")
def test_checkers_side_by_side(tmp_path, monkeypatch):
    file = tmp_path / "checkers.json"
    few = ("tanh' is off by 1e-6", "every gradient is 0.09% too large", "dWhh is transposed")
    monkeypatch.setattr("sys.argv", ["checkers", "--json", str(file)])
    monkeypatch.setattr(checkers, "checker_rows", partial(checkers.checker_rows, few=few))
    cases = [case for case in checkers.CASES if case.name in ("rnn", "gru", "feedforward")]
    monkeypatch.setattr(checkers, "CASES", cases)
    checkers.main()
    rows = json.loads(file.read_text())["rows"]
    correct = [row for row in rows if row["bug"] == "none"]
    assert [row["case"] for row in correct] == [case.name for case in cases]
    assert all(row[name] for row in correct for name in checkers.CHECKERS[:4])
    short = {row["bug"]: row for row in rows if row["case"] == "rnn"}
    assert not short["none"]["assert_allclose"]  # its default rejects correct float32 gradients
    assert short["every gradient is 0.09% too large"]["gradcheck"]
    assert short["tanh' is off by 1e-6"]["check_grads"]
    for bug in few:
        assert not short[bug]["refnet float64"]
        if "1e-6" not in bug:  # which in float32 is little more than rounding
            assert not short[bug]["refnet float32"]
    assert not short["dWhh is transposed"]["gradcheck"]
