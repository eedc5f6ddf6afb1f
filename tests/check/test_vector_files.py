"""Results beside golden vectors: names that are no case's, links, names of arrays, float16."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from refnet import cli
from refnet.check import catalogue, vectors
from refnet.check.encodings import decode, encode
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.recurrent import RecurrentNet
from support.vectors import reference_answers

pytestmark = pytest.mark.needs("flint")


@pytest.fixture
def alone(few, tmp_path):
    """The right results of one case."""
    reference_answers(few, tmp_path)
    for path in tmp_path.iterdir():
        if path.name != "rnn-last.npz":
            path.unlink()
    return tmp_path


@pytest.mark.parametrize(
    "name, near",
    [
        ("lstm_last.safetensors", "lstm-last.safetensors"),
        ("lstm-last.JSON", "lstm-last.json"),
        ("something.npz", "after the cases"),
    ],
)
def test_a_result_under_a_wrong_name_is_reported(few, alone, capsys, name, near):
    (alone / name).write_text("")
    (alone / "manifest.json").write_text("{}")
    (alone / "notes.txt").write_text("")
    assert cli.main(["vectors", "judge", str(few), str(alone), "--skip-missing"]) == 0
    out, err = capsys.readouterr()
    assert "1 of 1 cases are explained by rounding; " in out and "were skipped" in out
    assert err.startswith(f"{name} is no result of a case") and near in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("link", ["nowhere", "lstm-last.json"])
def test_a_dead_link_is_no_missing_result(few, alone, capsys, link):
    (alone / "lstm-last.json").symlink_to(alone / link)
    assert cli.main(["vectors", "judge", str(few), str(alone), "--skip-missing"]) != 0
    assert "1 of 2 cases are explained by rounding" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["\ud800x", "a\nb\x1b[2J", "\x00"])
def test_names_of_arrays_disturb_no_other_case(few, alone, capsys, name):
    arrays = {name: {"shape": [], "data": [1]}}
    (alone / "lstm-last.json").write_text(json.dumps({"arrays": arrays}))
    assert cli.main(["vectors", "judge", str(few), str(alone), "--skip-missing"]) != 0
    out = capsys.readouterr().out
    assert "1 of 2 cases are explained by rounding" in out
    assert all(c.isprintable() or c == "\n" for c in out) and len(out.splitlines()) == 5


def test_numbers_below_float16_are_zero_in_it(tmp_path):
    """A gradient below the smallest number of float16, far above that of float32."""
    net = RecurrentNet(2, 2, 3, activation=ACTIVATIONS["identity"], loss="squared_error")
    case = catalogue._case("vanishing", net, T=30, scale=2.0**-6)
    vectors.write(tmp_path / "golden", cases=iter([case]))
    certified, _ = vectors._case_of(
        tmp_path / "golden", "vanishing", vectors._entries(tmp_path / "golden")["vanishing"]
    )
    right = {name: ball.value.astype(np.float16) for name, ball in certified.named().items()}
    assert np.any((right["dx"] == 0) & (certified.named()["dx"].value != 0))
    for change, verdict in ((0, EXPLAINED), (1, NOT_ROUNDING)):
        theirs = tmp_path / str(change)
        theirs.mkdir()
        np.savez(
            theirs / "vanishing.npz", **{**right, "dWhy": right["dWhy"] * np.float16(1 + change)}
        )
        assert vectors.judge(tmp_path / "golden", theirs)["vanishing"].verdict == verdict


def test_files_say_what_the_command_says(few, tmp_path):
    """--json and --junit have the mistake's name, where it is wrong, and every quantity."""
    theirs, rows, report = tmp_path / "theirs", tmp_path / "rows.json", tmp_path / "report.xml"
    theirs.mkdir()
    reference_answers(few, theirs)
    arrays = dict(decode(theirs / "lstm-last.npz")[0])
    size = len(arrays["dWhh"]) // 4
    arrays["dWhh"][size : 2 * size] *= 2
    (theirs / "lstm-last.npz").write_bytes(encode(arrays, "npz", {"dtype": "float32"}))
    words = ["vectors", "judge", str(few), str(theirs), "--json", str(rows), "--junit", str(report)]
    assert cli.main(words) == 1
    saved = {row["what"]: row for row in json.loads(rows.read_text())["rows"]}
    assert {name: row["verdict"] for name, row in saved.items()} == {
        "rnn-last": EXPLAINED,
        "rnn-every": EXPLAINED,
        "lstm-last": NOT_ROUNDING,
    }
    wrong = saved["lstm-last"]
    said = f"dWhh: only gate f (rows {size} to {2 * size - 1}); 2 times the certified ones"
    assert wrong["worst"] == "dWhh" and said in wrong["where"]
    assert {part["name"] for part in wrong["quantities"]} == set(arrays)
    (suite,) = ElementTree.parse(report).getroot()
    assert suite.get("tests") == "3" and suite.get("failures") == "1"
    (failure,) = suite.iter("failure")
    assert failure.get("message").startswith("dWhh: z = ") and failure.get("type") == NOT_ROUNDING
    assert said in failure.text and "dWxh: z = " in failure.text
