"""The sizes at which a function is judged if none are named: what each of them finds, and nets that
cannot have all of them."""

import numpy as np
import pytest

pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
from test_own import in_columns  # noqa: E402

from refnet import cli  # noqa: E402
from refnet.check.cases import reference_results  # noqa: E402
from refnet.check.own import Described, own_rows  # noqa: E402

AT_THE_EDGES = {
    "tanh that ends": ("rnn", "large inputs", '''
    found["dx"] = np.where(abs(x) > 20, 0, found["dx"])'''),
    "a sigmoid that overflows": ("lstm", "large inputs", '''
    if (np.exp(abs(x).max().astype(x.dtype)) == np.inf):
        found["dbh"] = found["dbh"] * np.nan'''),
    "one sequence": ("gru", " 1     2    1 ", '''
    if x.shape[1] == 1:
        found["dby"] = found["dby"] * 2'''),
    "one step": ("rnn", " 1     2    1 ", '''
    if len(x) == 1:
        found["dWxh"] = found["dWxh"] + 1e-3'''),
    "one unit": ("gru", " 3     1    2 ", '''
    if p["Why"].shape[1] == 1:
        found["dWhh"] = found["dWhh"].sum(0, keepdims=True) + 0 * found["dWhh"]''')}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", AT_THE_EDGES)
def test_a_mistake_at_the_edges_is_found_without_naming_sizes(name, tmp_path, capsys):
    cell, where, bug = AT_THE_EDGES[name]
    (tmp_path / "mine.py").write_text(f'''import numpy as np
from refnet.batch import Batch
from refnet.check.cases import reference_results
from refnet.nets.recurrent import RecurrentNet


def right(p, x, y):
    return reference_results(RecurrentNet(3, p["Why"].shape[1], 5, cell={cell!r}), p, Batch(x, y))


def wrong(p, x, y):
    found = right(p, x, y){bug}
    return found
''')
    command = ["check", "function", "--cell", cell]
    assert cli.main([*command, f"{tmp_path}/mine.py:right"]) == 0
    assert set(in_columns(capsys.readouterr().out)) == {"explained by rounding"}
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "6 of 8 are explained by rounding"
    assert all(where in line for line in lines if "not rounding" in line)
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong", "--sizes", "20,16,4"]) == 0


def test_one_class_is_no_usual_size():
    assert Described(readout="none", loss="cross_entropy").smallest == 2
    assert Described(readout="none", loss="cross_entropy", bidirectional=True).smallest == 1
    assert Described(readout="none").smallest == 1
    rows = own_rows(lambda p, b: reference_results(Described(outputs=1).net(2), p, b),
                    Described(outputs=1), ((3, 2, 2),), (np.float32,))
    assert "zero is right here" in next(rows)["note"]


@pytest.mark.parametrize("options", [{"activation": "oplu"}, {"transition": "schur"}], ids=str)
def test_units_in_pairs(options, tmp_path, capsys):
    """No size that the net cannot have is among the usual ones, and a mistake is found."""
    (option, name), = options.items()
    described = Described(**options)
    assert described.smallest == 2
    (tmp_path / "mine.py").write_text(f"""
from refnet import Batch
from refnet.check.cases import reference_results
from refnet.check.own import Described


def right(p, x, y):
    return reference_results(Described({option}={name!r}).net(p["Why"].shape[1]), p, Batch(x, y))


def wrong(p, x, y):
    found = right(p, x, y)
    return {{**found, "dWxh": found["dWxh"] * 1.01}}
""")
    command = ["check", "function", "--dtypes", "float64", f"--{option}", name]
    assert cli.main([*command, f"{tmp_path}/mine.py:right"]) == 0
    assert in_columns(capsys.readouterr().out) == ["explained by rounding"] * 3
    assert cli.main([*command, f"{tmp_path}/mine.py:wrong"]) == 1
    assert in_columns(capsys.readouterr().out) == ["not rounding"] * 3
