"""The sizes at which a function is judged if none are named: what each of them finds, and nets that
cannot have all of them."""

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
    found["dx"] = np.where(abs(x) > 20, 0, found["dx"])""",
    ),
    "a sigmoid that overflows": (
        "lstm",
        "large inputs",
        """
    if (np.exp(abs(x).max().astype(x.dtype)) == np.inf):
        found["dbh"] = found["dbh"] * np.nan""",
    ),
    "one step of one sequence": (
        "gru",
        " 1     2    1 ",
        """
    if x.shape[:2] == (1, 1):
        found["dby"] = found["dby"] * 2""",
    ),
    "one sequence": (
        "gru",
        " 7     6    1 ",
        """
    if x.shape[1] == 1:
        found["dWhh"] = found["dWhh"] * 2""",
    ),
    "an odd number of sequences": (
        "rnn",
        " 5     19   9 ",
        """
    if x.shape[1] > 1 and x.shape[1] % 2:
        found["dWhh"] = found["dWhh"] * 1.5""",
    ),
    "what is left over of eights": (
        "gru",
        " 5     19   9 ",
        """
    H = p["Why"].shape[1]
    if H > 8 and H % 8:
        found["dbh"][H // 8 * 8:H] = found["dbh"][:H % 8]""",
    ),
    "a sequence of zeros": (
        "rnn --activation relu",
        "a sequence of zeros",
        """
    if not x.any(axis=(0, 2)).all():
        found["dbh"] = found["dbh"] + 1e-3""",
    ),
    "one step": (
        "rnn",
        " 1     2    1 ",
        """
    if len(x) == 1:
        found["dWxh"] = found["dWxh"] + 1e-3""",
    ),
    "one unit": (
        "gru",
        " 3     1    2 ",
        """
    if p["Why"].shape[1] == 1:
        found["dWhh"] = found["dWhh"].sum(0, keepdims=True) + 0 * found["dWhh"]""",
    ),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", AT_THE_EDGES)
def test_a_mistake_at_the_edges_is_found_without_naming_sizes(name, tmp_path, capsys):
    cell, where, bug = AT_THE_EDGES[name]
    (tmp_path / "mine.py").write_text(f"""import numpy as np
from refnet.batch import Batch
from refnet.check.cases import NORMS, reference_results
from refnet.nets.recurrent import RecurrentNet


def right(p, x, y):
    net = RecurrentNet(3, p["Why"].shape[1], 5, cell={cell.split()[0]!r},
                       activation={cell.split()[-1]!r} if "relu" in {cell!r} else "tanh")
    return reference_results(net, p, Batch(x, y))


def wrong(p, x, y):
    found = right(p, x, y){bug}
    return found
""")
    command = ["check", "function", "--cell", *cell.split()]
    assert cli.main([*command, f"{tmp_path}/mine.py:right"]) == 0
    assert set(in_columns(capsys.readouterr().out)) == {"explained by rounding"}
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    total = 14 if "relu" in cell else 12
    assert last == f"{total - 2} of {total} are explained by rounding"
    assert all(where in line for line in lines if "not rounding" in line)
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong", "--sizes", "20,16,4"]) == 0


@pytest.mark.parametrize("slope, named", [(1, "that from the right, 1"), (0.5, "the mean of")])
@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_another_slope_at_the_kink_is_named(name, slope, named):
    """Planted in a backward pass written out here."""
    at_zero = slope if name == "relu" or slope == 1 else 0.505

    described = Described(activation=name)

    def wrong(p, batch):
        T, B, H = len(batch.x), batch.x.shape[1], p["Why"].shape[1]
        a, h, rows = np.zeros((T, B, H)), np.zeros((T + 1, B, H)), np.arange(B)
        low = 0 if name == "relu" else 0.01
        for t in range(T):
            a[t] = batch.x[t] @ p["Wxh"].T + h[t] @ p["Whh"].T + p["bh"]
            h[t + 1] = np.where(a[t] > 0, a[t], low * a[t])
        v = h[-1] @ p["Why"].T + p["by"]
        d = np.exp(v - v.max(1, keepdims=True))
        d = d / d.sum(1, keepdims=True)
        d[rows, batch.y] -= 1
        d = d / B
        found = {
            "dWhy": d.T @ h[-1],
            "dby": d.sum(0),
            "dWhh": 0 * p["Whh"],
            "dWxh": 0 * p["Wxh"],
            "dbh": 0 * p["bh"],
        }
        dh = d @ p["Why"]
        for t in reversed(range(T)):
            da = np.where(a[t] > 0, 1, np.where(a[t] == 0, at_zero, low)) * dh
            found["dWhh"] = found["dWhh"] + da.T @ h[t]
            found["dWxh"] = found["dWxh"] + da.T @ batch.x[t]
            found["dbh"] = found["dbh"] + da.sum(0)
            dh = da @ p["Whh"]
        return found

    (row,) = function_rows(wrong, described, ((20, 16, 4),), (np.float64,), at="zeros")
    assert row["verdict"] == "not rounding"
    assert row["convention"].startswith(f"{name}' at 0 is {named}")


@pytest.mark.parametrize("name", [name for name, act in ACTIVATIONS.items() if not act.smooth])
@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_the_reference_passes_with_a_sequence_of_zeros(cell, name):
    described = Described(cell=cell, activation=name, mask=True)
    (row,) = function_rows(
        lambda p, b: reference_results(described.net(8), p, b),
        described,
        ((9, 8, 3),),
        (np.float32,),
        at="zeros",
    )
    assert described.kinked and row["verdict"] == "explained by rounding", row


def test_one_class_is_no_usual_size():
    assert Described(readout="none", loss="cross_entropy").smallest == 2
    assert Described(readout="none", loss="cross_entropy", bidirectional=True).smallest == 1
    assert Described(readout="none").smallest == 1
    rows = function_rows(
        lambda p, b: reference_results(Described(outputs=1).net(2), p, b),
        Described(outputs=1),
        ((3, 2, 2),),
        (np.float32,),
    )
    assert "zero is right here" in next(rows)["note"]


@pytest.mark.parametrize("options", [{"activation": "oplu"}, {"transition": "schur"}], ids=str)
def test_units_in_pairs(options, tmp_path, capsys):
    """Sizes that the net cannot have are made even, and a mistake is found."""
    ((option, name),) = options.items()
    described = Described(**options)
    assert described.smallest == 2
    rows = 6 + described.kinked + len(NORMS) * (option == "transition")
    (tmp_path / "mine.py").write_text(f"""
from refnet import Batch
from refnet.check.cases import NORMS, reference_results
from refnet.check.userfunction import Described


def right(p, x, y):
    return reference_results(Described({option}={name!r}).net(p["Why"].shape[1]), p, Batch(x, y))


def wrong(p, x, y):
    found = right(p, x, y)
    return {{**found, "dWxh": found["dWxh"] * 1.01}}
""")
    command = ["check", "function", "--dtypes", "float64", f"--{option}", name]
    assert cli.main([*command, f"{tmp_path}/mine.py:right"]) == 0
    assert in_columns(capsys.readouterr().out) == ["explained by rounding"] * rows
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong"]) == 1
    assert in_columns(capsys.readouterr().out) == ["not rounding"] * rows
