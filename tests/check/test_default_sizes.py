"""The sizes at which a function is judged if none are named: what each of them finds, and nets that
cannot have all of them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from refnet import cli
from refnet.check.cases import NORMS, reference_results
from refnet.check.userfunction import Described, function_rows
from refnet.maths.activations import ACTIVATIONS
from support.columns import in_columns

pytestmark = pytest.mark.needs("flint")

AT_THE_EDGES = {
    "tanh that ends": (
        "rnn",
        "large inputs",
        """
    results["dx"] = np.where(abs(x) > 20, 0, results["dx"])""",
    ),
    "a sigmoid that overflows": (
        "lstm",
        "large inputs",
        """
    if (np.exp(abs(x).max().astype(x.dtype)) == np.inf):
        results["dbh"] = results["dbh"] * np.nan""",
    ),
    "one step of one sequence": (
        "gru",
        " 1 2 1 ",
        """
    if x.shape[:2] == (1, 1):
        results["dby"] = results["dby"] * 2""",
    ),
    "one sequence": (
        "gru",
        " 7 6 1 ",
        """
    if x.shape[1] == 1:
        results["dWhh"] = results["dWhh"] * 2""",
    ),
    "an odd number of sequences": (
        "rnn",
        " 5 19 9 ",
        """
    if x.shape[1] > 1 and x.shape[1] % 2:
        results["dWhh"] = results["dWhh"] * 1.5""",
    ),
    "what is left over of eights": (
        "gru",
        " 5 19 9 ",
        """
    H = p["Why"].shape[1]
    if H > 8 and H % 8:
        results["dbh"][H // 8 * 8:H] = results["dbh"][:H % 8]""",
    ),
    "a sequence of zeros": (
        "rnn relu",
        "a sequence of zeros",
        """
    if not x.any(axis=(0, 2)).all():
        results["dbh"] = results["dbh"] + 1e-3""",
    ),
    "one step": (
        "rnn",
        " 1 2 1 ",
        """
    if len(x) == 1:
        results["dWxh"] = results["dWxh"] + 1e-3""",
    ),
    "one unit": (
        "gru",
        " 3 1 2 ",
        """
    if p["Why"].shape[1] == 1:
        results["dWhh"] = results["dWhh"].sum(0, keepdims=True) + 0 * results["dWhh"]""",
    ),
}


@pytest.mark.usefixtures("unnamed")
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", AT_THE_EDGES)
def test_a_mistake_at_the_edges_is_results_without_naming_sizes(name, tmp_path, capsys):
    words, where, bug = AT_THE_EDGES[name]
    kind, activation = (*words.split(), "tanh")[:2]
    (tmp_path / "mine.py").write_text(f"""import numpy as np
from refnet.batch import Batch
from refnet.check.cases import reference_results
from refnet.check.userfunction import Described


def right(p, x, y):
    net = Described(cell={kind!r}, activation={activation!r}).net(p["Why"].shape[1])
    return reference_results(net, p, Batch(x, y))


def wrong(p, x, y):
    results = right(p, x, y){bug}
    return results
""")
    command = ["check", "function", "--cell", kind, "--activation", activation]
    assert cli.main([*command, f"{tmp_path}/mine.py:right"]) == 0
    assert set(in_columns(capsys.readouterr().out)) == {"explained by rounding"}
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong"]) == 1
    lines = capsys.readouterr().out.splitlines()
    total = 14 if activation == "relu" else 12
    assert f"{total - 2} of {total} are explained by rounding" in lines
    wrong = [" ".join(line.split()) for line in lines if line.endswith("not rounding")]
    assert len(wrong) == 2 and all(where in line for line in wrong)
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong", "--sizes", "20,16,4"]) == 0


@pytest.mark.parametrize("slope, named", [(1, "that from the right, 1"), (0.5, "the mean of")])
@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_another_slope_at_the_kink_is_named(name, slope, named):
    """Planted in a backward pass written out here."""
    low = 0 if name == "relu" else 0.01
    at_zero = low + (1 - low) * slope
    described = Described(activation=name)

    def pull(a, h, dh, p, alpha):
        return dh * np.where(a > 0, 1, np.where(a == 0, at_zero, low)), {}

    def wrong(params, batch):
        net = described.net(params["Why"].shape[1])
        other = replace(net, activation=replace(net.activation, pull=pull))
        return reference_results(other, params, batch)

    (row,) = function_rows(wrong, described, [((20, 16, 4), "zeros")], (np.float64,))
    assert row["verdict"] == "not rounding"
    assert row["convention"].startswith(f"{name}' at 0 is {named}")


@pytest.mark.parametrize("name", [name for name, act in ACTIVATIONS.items() if not act.smooth])
@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_the_reference_passes_with_a_sequence_of_zeros(cell, name):
    described = Described(cell=cell, activation=name, mask=True)
    right = partial(reference_results, described.net(8))
    (row,) = function_rows(right, described, [((9, 8, 3), "zeros")], (np.float32,))
    assert described.kinked and row["verdict"] == "explained by rounding", row


def test_one_class_is_no_usual_size():
    assert Described(readout="none", loss="cross_entropy").smallest == 2
    assert Described(readout="none", loss="cross_entropy", bidirectional=True).smallest == 1
    assert Described(readout="none").smallest == 1
    described = Described(outputs=1)
    right = partial(reference_results, described.net(2))
    (row,) = function_rows(right, described, [((3, 2, 2), "")], (np.float32,))
    assert "zero is right here" in row["note"]


@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize("options", [{"activation": "oplu"}, {"transition": "schur"}], ids=str)
def test_units_in_pairs(options, tmp_path, capsys):
    """Sizes that the net cannot have are made even, and a mistake is results."""
    ((option, name),) = options.items()
    described = Described(**options)
    assert described.smallest == 2
    rows = 6 + described.kinked + len(NORMS) * (option == "transition")
    (tmp_path / "mine.py").write_text(f"""
from refnet import Batch
from refnet.check.cases import reference_results
from refnet.check.userfunction import Described


def right(p, x, y):
    return reference_results(Described({option}={name!r}).net(p["Why"].shape[1]), p, Batch(x, y))


def wrong(p, x, y):
    results = right(p, x, y)
    return {{**results, "dWxh": results["dWxh"] * 1.01}}
""")
    command = ["check", "function", "--dtypes", "float64", f"--{option}", name]
    assert cli.main([*command, f"{tmp_path}/mine.py:right"]) == 0
    assert in_columns(capsys.readouterr().out) == ["explained by rounding"] * rows
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong"]) == 1
    assert in_columns(capsys.readouterr().out) == ["not rounding"] * rows
