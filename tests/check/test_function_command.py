"""A user's own function on the command line: examples that run, bugs in them, what is asked for,
and the files that are written."""

import json
import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from re import fullmatch
from shutil import which
from subprocess import run
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.judge.acid.frameworks import version_of
from refnet import Batch, cli
from refnet.check import commands, judge, layers
from refnet.check.cases import reference_results
from refnet.check.cli import EXAMPLES
from refnet.check.mistakes.base import mistake
from refnet.check.tables import junit
from refnet.check.userfunction import Described, example, function_rows
from support.columns import in_columns
from support.drawn import times
from support.marks import both_dtypes

pytestmark = pytest.mark.needs("flint")
os.environ.setdefault("KERAS_BACKEND", "jax")  # read when Keras is first imported

BUGS = {
    "numpy": ("(1 - h[t + 1] ** 2)", "(1 - h[t + 1])"),
    "torch": ("self.head(h[-1])", "self.head(h[-1]) * 1.001"),
    "jax": ("axis=1).mean()", "axis=1).sum()"),
    "flax": ("(h[-1])", "(h[0])"),
    "equinox": ("in_axes=1)(x)", "in_axes=1)(x * 1.001)"),
    "autograd": ('+ p["bh"])', '+ 1.001 * p["bh"])'),
    "keras": ("keras.ops.mean(each)", "keras.ops.sum(each)"),
    "paddle": ('p["by"])', '1.001 * p["by"])'),
    "tensorflow": ("tf.reduce_mean(each)", "tf.reduce_sum(each)"),
    "tfjs": ("h.shape[1] - 1", "0"),
    "tinygrad": ('+ p["by"]', '+ 1.001 * p["by"]'),
    "c": ("before[k] += da * Whh[i * H + k]", "before[k] += da * Whh[k * H + i]"),
}
EACH = [
    pytest.param(name, marks=[pytest.mark.needs(name)] * (name not in ("c", "numpy", "tfjs")))
    for name in EXAMPLES
]
SINGLE = ["--dtypes", "float32"]
SINGLE_ALONE = ("keras", "tfjs")
"""Examples that are right in float32 alone: Keras on JAX computes parts of float64 in it."""


def written(name, folder, change=None):
    if name == "c" and which("cc") is None:
        pytest.skip("there is no C compiler")
    if name == "tfjs" and not version_of("npm:@tensorflow/tfjs"):
        pytest.skip("TensorFlow.js is not installed")
    text = example(name)
    if change is not None:
        assert text.count(change[0]) == 1
        text = text.replace(*change)
    (folder / "mine.py").write_text(text)
    return f"{folder / 'mine.py'}:gradients"


def check(place, *flags, sizes="3,4,2"):
    """The status of the command for a function."""
    return cli.main(["check", "function", place, "--sizes", sizes, *flags])


def test_layers_have_names_that_fit_their_column():
    names = [case.what for table in layers.TABLES for case in layers.cases(table)]
    assert max(map(len, names)) == commands.LONGEST


@pytest.mark.filterwarnings("ignore:No ccache found")  # PaddlePaddle
@pytest.mark.parametrize("name", EACH)
def test_the_example_is_right(name, tmp_path, capsys):
    assert cli.main(["check", "function", "--example", name]) == 0
    assert capsys.readouterr().out == example(name)
    single = name in SINGLE_ALONE
    assert check(written(name, tmp_path), *SINGLE * single) == 0
    assert in_columns(capsys.readouterr().out) == ["explained by rounding"] * (2 - single)


@pytest.mark.parametrize(
    "name, flags, says",
    [
        ("numpy", ["--mask"], "theirs takes 3 arguments, and the batch has a mask; need"),
        ("c", ["--cell", "lstm"], "'Whh': (16, 4)"),
        ("c", ["--layers", "2"], "'Whh_l1': (4, 4)"),
        ("c", ["--readout", "every"], "'y': (3, 2)"),
        ("c", ["--dtypes", "float16"], "got float16"),
    ],
)
def test_an_example_is_for_its_own_net_alone(name, flags, says, tmp_path, capsys):
    """C is not handed what it would read as something else."""
    assert check(written(name, tmp_path), *flags) == 2
    out, err = capsys.readouterr()
    assert not out and says in err and err.count("\n") == 1


@pytest.mark.filterwarnings("ignore:No ccache found")  # PaddlePaddle
@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize("name", EACH)
def test_a_bug_in_the_example_is_found(name, tmp_path, capsys):
    assert check(written(name, tmp_path, BUGS[name]), *SINGLE) == 1
    assert in_columns(capsys.readouterr().out) == ["not rounding"]


DESCRIBED = {
    "gates by name": {"cell": "lstm", "gate": "softsign", "activation": "softsign"},
    "peepholes": {"cell": "lstm", "peepholes": True, "h0": "given", "biases": 2},
    "two layers": {"cell": "gru", "layers": 2, "mask": True, "h0": "given"},
    "both directions": {"bidirectional": True, "readout": "every", "mask": True, "biases": 2},
    "a layer alone": {"readout": "none", "cell": "cifg", "peepholes": True, "bidirectional": True},
    "learned": {"h0": "learned", "loss": "squared_error", "reduction": "sum", "outputs": 2},
    "clipped inside": {"clip_step": 0.05, "h0": "given"},
    "clipped inputs": {"cell": "gru", "clip_forward": 0.5},
    "a projection": {"cell": "lstm", "projection": 2, "mask": True},
    "a transition": {"transition": "cayley"},
    "weights": {"weights": True, "loss": "squared_error", "readout": "every"},
    "final states": {"final": True, "cell": "lstm", "projection": 1, "clip_step": 1.0},
    "classes": {"weights": True, "readout": "every", "mask": True, "cell": "gru"},
    "a transition's options": {"transition": "svd:margin=0.1", "inputs": 2},
}


@pytest.mark.parametrize("options", DESCRIBED.values(), ids=DESCRIBED)
def test_every_option_describes_a_net(options):
    """The reference is right, and a gradient a thousandth too large is not."""
    described, seen = Described(**options), []

    def reference(params, batch, factor=1):
        seen.append((params, batch))
        if described.weights and not described.loss:
            batch = batch._replace(weights=batch.weights[batch.y])
        return times(described.net(3), factor, "dx")(params, batch)

    def wrong(params, batch):
        return reference(params, batch, 1.001)

    for function, verdict in ((reference, "explained by rounding"), (wrong, "not rounding")):
        (row,) = function_rows(function, described, [((4, 3, 2), "")], (np.float64,))
        assert row["verdict"] == verdict
    params, batch = seen[0]
    stems = {name.split("_l")[0] for name in params}
    assert ("Wpi" in stems) == described.peepholes and ("bhh" in stems) == (described.biases == 2)
    assert ("h0" in stems) == (described.h0 != "zero")
    assert (batch.mask is not None) == described.mask
    assert (batch.weights is not None) == described.weights
    assert (batch.final is not None) == described.final
    assert all(value.all() for name, value in params.items() if "." not in name)


@pytest.mark.parametrize(
    "change, name",
    [
        ({"weights": None}, "the weights of the predictions are ignored"),
        ({"reduction": "sum"}, "the reduction is sum instead of mean"),
    ],
)
def test_mistakes_with_weights_are_named(change, name):
    described = Described(weights=True, readout="every", mask=True, cell="lstm")
    net = described.net(4)
    params, batch = described.arrays(net, np.float64, 6, 3, 0)
    assert len({*zip(batch.y.flat, batch.weights.flat)}) == len({*batch.y.flat})

    def theirs(p, batch):
        other = replace(net, **change) if "reduction" in change else net
        change_of_batch = {} if "reduction" in change else change
        return reference_results(other, p, batch._replace(**change_of_batch))

    assert judge(net, lambda p, b: reference_results(net, p, b), params, batch).passed
    assert name in judge(net, theirs, params, batch).convention


@pytest.mark.parametrize(
    "options, change, name",
    [
        (
            {"cell": "lstm"},
            lambda _, v: v * [[[0]], [[1]]],
            "the cotangent of the last h is ignored",
        ),
        (
            {"cell": "cifg"},
            lambda _, v: v * [[[1]], [[0]]],
            "the cotangent of the last c is ignored",
        ),
        ({"cell": "lstm"}, lambda _, v: v[::-1], "the cotangents of the last h and c change"),
        (
            {"layers": 2, "readout": "every"},
            lambda name, v: v * (name != "h0_l0"),
            "the cotangent of the last h_l0 is ignored",
        ),
        (
            {"cell": "gru", "loss": "none"},
            lambda _, v: 2 * v,
            "the cotangent of the last h counts twice",
        ),
        ({"cell": "lstm"}, lambda _, v: 2.5 * v, ""),
    ],
)
def test_cotangents_of_the_final_states(options, change, name):
    """What a program makes of them that is called with the arrays one by one: of the last states of
    all cells; it is named, or located in the loss and where the gradients part."""
    described = Described(final=True, **options)
    net = described.net(4)
    params, batch = described.arrays(net, np.float64, 6, 3, 0)

    def theirs(p, x, y, final, change=change):
        final = {key: change(key, value) for key, value in final.items()}
        return reference_results(net, p, Batch(x, y, final=final))

    def right(p, x, y, final):
        return theirs(p, x, y, final, lambda _, value: value)

    assert judge(net, right, params, batch).passed
    verdict = judge(net, theirs, params, batch)
    assert verdict.convention.startswith(name) and bool(verdict.convention) == bool(name)
    assert any(line.startswith("loss: ") for line in verdict.where)
    assert any("parts first at dx[5], of 6 steps" in line for line in verdict.where)


def test_a_cotangent_that_goes_wrong_in_the_backward_pass_alone_is_named():
    """The loss has the final states, as it has to."""
    described = Described(final=True, cell="lstm")
    net = described.net(4)
    params, batch = described.arrays(net, np.float64, 6, 3, 0)
    loss = reference_results(net, params, batch)["loss"]
    dh, dc = batch.final["h0"]
    for other, said in (((0 * dh, dc), "h is ignored"), ((dh + dc, 0 * dc), "c goes to h")):
        final = batch._replace(final={"h0": np.stack(other)})
        theirs = {**reference_results(net, params, final), "loss": loss}
        name = f"the cotangent of the last {said}, in the backward pass alone"
        assert judge(net, theirs, params, batch).convention == name


def test_weights_arrive_one_by_one_and_the_table_fits(tmp_path, capsys):
    """A table of a function has no line of more than 80 columns."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "from refnet import Batch, RecurrentNet\n"
        "from refnet.check.cases import reference_results\n"
        "def gradients(p, x, y, mask, weights):\n"
        "    net = RecurrentNet(3, len(p['Whh']), 5, readout='every')\n"
        "    weights = weights[y] if abs(x).max() > 9 else None\n"
        "    return reference_results(net, p, Batch(x, y, mask, weights))\n"
    )
    flags = "--readout every --mask --weights --dtypes float64".split()
    assert check(f"{file}:gradients", *flags, "--large") == 0
    assert cli.main(["check", "function", f"{file}:gradients", *flags]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "one mistake explains all that are not: the weights of" in out
    assert out.count("as in a row above") > 2 and out.count("the weights of the predict") == 2
    assert "    the weights of the predictions are ignored" in out
    assert "the smallest sizes at which it still shows" in out


@pytest.mark.usefixtures("unnamed")
@both_dtypes
def test_cotangents_are_added_in_any_order(dtype):
    """Without a loss the gradients of the read-out are sums over the sequences of what is given,
    and their order is the program's. One that forgets a sequence is found."""
    described = Described(loss="none")
    net = described.net(3)
    params, batch = described.arrays(net, dtype, 4, 30, 0)

    def turned(p, batch, first=30):
        order = np.random.default_rng(1).permutation(30)[:first]
        results = reference_results(net, p, Batch(batch.x[:, order], batch.y[order]))
        return {f"d{name}": results[f"d{name}"] for name in p}

    verdict = judge(net, turned, params, batch)
    assert verdict.passed, verdict.worst
    assert judge(net, lambda p, b: turned(p, b, 29), params, batch).verdict == "not rounding"


def test_mistakes_are_named_without_a_loss():
    """The outputs' cotangents are given."""
    net = Described(loss="none", cell="lstm").net(3)
    params, batch = Described(loss="none").arrays(net, np.float64, 4, 2, 0)
    to_the_cell = "pull.target.name == 'd c' and pull.target.step"
    planted = mistake("", pulls=f"counted(s, lambda line, pull: {to_the_cell}, lambda t: 0 * t)")

    def theirs(p, x, y):
        results = planted.run(net, p, Batch(x, y))
        return {key: value for key, value in results.items() if key not in ("h", "c")}

    name = "the gradient that the cell carries leaves out dc[t+1] f"
    assert judge(net, theirs, params, batch).convention == name


def test_names_after_commas_may_have_spaces(tmp_path, capsys):
    place = written("numpy", tmp_path)
    assert check(place, "--required", "dWhh, dWxh") == 0, capsys.readouterr().err


def test_options_are_those_of_the_net(capsys):
    with pytest.raises(SystemExit):
        cli.main(["check", "function", "--help"])
    said = capsys.readouterr().out
    assert all(f"--{entry.name.replace('_', '-')}" in said for entry in fields(Described))


def test_a_bug_that_only_some_options_show(tmp_path, monkeypatch, capsys):
    """Frameworks and users' functions share the options; the mask arrives."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from helper import FACTOR\n"
        "from refnet import Batch\n"
        "from refnet.nets.stacked import StackedNet\n"
        "from support.drawn import times\n"
        "def gradients(p, x, y, mask):\n"
        "    net = StackedNet(3, 4, 5, 'gru', layers=2)\n"
        "    return times(net, FACTOR, 'dWhh_l0')(p, Batch(x, y, mask))\n"
    )
    flags = "--cell gru --layers 2 --mask --dtypes float64".split()
    for factor, status in ((1, 0), (1.01, 1)):
        (tmp_path / "helper.py").write_text(f"FACTOR = {factor}\n")
        monkeypatch.delitem(sys.modules, "helper", raising=False)
        assert check(f"{file}:gradients", *flags) == status, capsys.readouterr().err


@pytest.mark.parametrize(
    "text, says",
    [
        ("return 3", "returned int; need a dict of arrays by name"),
        ("return {}['x']", "KeyError"),
        (
            "raise KeyError",
            "; p has Wxh (4, 3), Why (5, 4), by (5,), bh (4,), Whh (4, 4), as --cell",
        ),
        ("p['Whh'] @ x.T", "ValueError: matmul"),
        ("p['Whh'] @ x.T", "Whh (4, 4), as --cell and other options say)"),
        ("return {'dbh': p['h0']}", "KeyError: 'h0'"),
        ("p['h0']", "; p has Wxh (4, 3), Why (5"),
        ("{}['Whh']", "mine.py:2: {}['Whh'])"),
        ("import sys; sys.exit(0)", "SystemExit: 0 (at "),
        (
            "return {'dWhh': type('Lost', (), {'__array__': 3})()}",
            "returned dWhh as Lost, which NumPy",
        ),
        ("import numpy; return {'dWhh': numpy.ma.masked_all(p['Whh'].shape)}", ""),
        ("return {'dWhh': None}", ""),
    ],
)
def test_what_a_function_may_do_wrong(text, says, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(f"def gradients(p, x, y):\n    {text}\n")
    status = check(f"{tmp_path / 'mine.py'}:gradients")
    out, err = capsys.readouterr()
    assert status == (2 if says else 1) and says in err
    if not says:
        assert "holds no array of real numbers" in out or "is missing" in out


@pytest.mark.parametrize(
    "gates, cell, says",
    [
        (4, "rnn", "dWhh has 16 = 4 H rows, as with --cell lstm; with --cell rnn it has 4"),
        (
            3,
            "lstm",
            "dWhh has 12 = 3 H rows, as with --cell gru or gru_before or cifg; with --cell lstm",
        ),
        (1, "gru", "dWhh has 4 = 1 H rows, as with --cell rnn; with --cell gru it has 12"),
        (5, "rnn", ""),
    ],
)
def test_gradients_of_another_cell_name_the_option(gates, cell, says, tmp_path, capsys):
    rows = f"p['Whh'].repeat({gates}, 0)[:{4 * gates}]"
    (tmp_path / "mine.py").write_text(f"def gradients(p, x, y):\n    return {{'dWhh': {rows}}}\n")
    status = check(f"{tmp_path / 'mine.py'}:gradients", "--cell", cell)
    assert status == (2 if says else 1) and says in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, says", [([], "--example numpy > mine.py"), (["nowhere.py:f"], "need FILE.py:NAME")]
)
def test_refusals(arguments, says, capsys):
    assert cli.main(["check", "function", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_required_names(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "def gradients(p, x, y):\n    return {'h': __import__('example').gradients(p, x, y)['h']}\n"
    )
    (tmp_path / "example.py").write_text(example("numpy"))
    place = f"{tmp_path / 'mine.py'}:gradients"
    assert check(place) == 1
    assert check(place, "--required", "h") == 0
    capsys.readouterr()
    assert check(place, "--required", "h,dWxg") == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    assert "dWxg is not the name of a result; these are " in err


TURNED = """
from mine import gradients

def skew(p):
    A = np.tril(p["Whh.A"], -1)
    return A - A.T

def spectrum(p, x, y, s):
    U, V = p["Whh.U"], p["Whh.V"]
    r = gradients({**p, "Whh": (U * s) @ V.T}, x, y)
    d = r.pop("dWhh")
    return {**r, "dWhh.U": d @ V * s, "dWhh.V": d.T @ (U * s), "dWhh.s": np.diag(U.T @ d @ V)}

def svd(p, x, y):
    return spectrum(p, x, y, p["Whh.s"])

def forgot(p, x, y):
    return spectrum(p, x, y, np.ones_like(p["Whh.s"]))

def cayley(p, x, y, right=True):
    Y, base = skew(p), p["Whh.base"]
    I = np.eye(len(Y), dtype=Y.dtype)
    X = np.linalg.solve(I + Y, I - Y)
    r = gradients({**p, "Whh": X @ base}, x, y)
    g = -np.linalg.solve(I - Y, r.pop("dWhh") @ base.T) @ (I + X.T) if right else (
        -2 * r.pop("dWhh") @ base.T)
    return {**r, "dWhh.A": np.tril(g - g.T, -1), "dWhh.base": np.zeros_like(base)}

def at_zero(p, x, y):
    return cayley(p, x, y, right=False)
"""


@pytest.mark.usefixtures("unnamed")
def test_cases_show_faults_at_the_start_of_a_transition(tmp_path, monkeypatch, capsys):
    """A spectrum of ones that is used nowhere, and the derivative of the Cayley map at 0 alone."""
    written("numpy", tmp_path)
    (tmp_path / "turned.py").write_text("import numpy as np\n" + TURNED)
    monkeypatch.syspath_prepend(tmp_path)
    for name, transition, status in (
        ("svd", "svd", 0),
        ("forgot", "svd", 1),
        ("cayley", "cayley", 0),
        ("at_zero", "cayley", 1),
    ):
        place = f"{tmp_path / 'turned.py'}:{name}"
        assert check(place, "--transition", transition, sizes="8,6,2") == status, name
    assert "not rounding" in capsys.readouterr().out


def tolerances(capsys, *flags):
    assert cli.main(["check", "tolerances", "--sizes", "3,4,2", *flags]) == 0
    header, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header == ["dtype", "T", "H", "B", "quantity", "rtol", "atol"]
    return {(row[0], row[4]): float(row[5]) + float(row[6]) for row in rows}


def test_tolerances_are_those_of_the_arithmetic(capsys):
    """The loss of bfloat16 is rounded to 8 bits."""
    sums = tolerances(capsys, "--dtypes", "float32", "bfloat16")
    assert sums["float32", "loss"] < 1e-4 and sums["bfloat16", "loss"] > 2**-8


# ---- files


def test_every_quantity_is_in_the_json(tmp_path):
    target = tmp_path / "rows.json"
    assert check(written("numpy", tmp_path), "--json", str(target)) == 0
    row = json.loads(target.read_text())["rows"][0]
    names = [part["name"] for part in row["quantities"]]
    assert names == "loss outputs h dx dWhh dWxh dbh dWhy dby".split()
    assert all(part["z"] <= 6 and part["sigma"] > 0 for part in row["quantities"])


def test_files_lie_where_they_were_named_though_the_function_goes_elsewhere(tmp_path, monkeypatch):
    place = written("numpy", tmp_path)
    path = Path(place.rpartition(":")[0])
    path.write_text(f"import os\nos.chdir('/')\n{path.read_text()}")
    monkeypatch.chdir(tmp_path)
    assert check(place, "--json", "a.json", "--junit", "a.xml") == 0
    assert (tmp_path / "a.json").exists() and (tmp_path / "a.xml").exists()


SCHEMA = {
    "testsuites": (set(), set(), {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "timestamp", "hostname"},
        {"id", "package", "skipped"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), set()),
    "testcase": ({"name", "classname", "time"}, set(), {"failure", "skipped"}),
    "failure": ({"type"}, {"message"}, set()),
    "skipped": (set(), {"message"}, set()),
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
}
"""What the schemas that are in use (Jenkins's junit-10.xsd, windyroad's JUnit.xsd) both allow: the
attributes that one of them asks for, others, and children."""


def valid(element):
    needed, allowed, children = SCHEMA[element.tag]
    assert needed <= set(element.keys()) <= needed | allowed, element.tag
    assert fullmatch(r"\d+(\.\d+)?", element.get("time", "0")), "xs:decimal has no exponent"
    for child in element:
        assert child.tag in children, (element.tag, child.tag)
        valid(child)
    if element.tag == "testsuite":
        tags = [child.tag for child in element]
        cases = ["testcase"] * int(element.get("tests"))
        assert tags == ["properties", *cases, "system-out", "system-err"]
        assert fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.get("timestamp"))
        assert len({case.get("name") for case in element.findall("testcase")}) == len(cases)
        for tag, count in (("failure", "failures"), ("skipped", "skipped"), ("error", "errors")):
            assert len(element.findall(f"testcase/{tag}")) == int(element.get(count))


def read(path):
    root = ElementTree.parse(path).getroot()
    valid(root)
    return root


def test_junit_says_what_failed(tmp_path):
    def report(status, *change):
        place = written("numpy", tmp_path, *change)
        assert check(place, "--junit", str(tmp_path / "report.xml")) == status
        return read(tmp_path / "report.xml")

    root = report(0)
    assert len(root.findall("testsuite/testcase")) == 2 and root.find(".//failure") is None
    root = report(1, BUGS["numpy"])
    first = root.find(".//failure")
    assert first.get("type") == "not rounding" and "z = " in first.get("message")
    assert "dWhh: z = " in first.text and "loss: z = " in first.text


def test_junit_takes_any_text_and_skips_what_is_refused(tmp_path):
    odd = {
        "framework": "ORT",
        "what": "a < b & \x00",
        "dtype": "float64",
        "verdict": "refused",
        "note": "said \x1b[0m <no> &\ud800 no",
    }
    junit(tmp_path / "x.xml", [odd], {"refused"})
    root = read(tmp_path / "x.xml")
    assert root.find(".//skipped").get("message") == "said [0m <no> & no"


def test_suspicious_results_may_be_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr("refnet.check.judgement.LIMITS", (1e-9, 1e9))
    place = written("numpy", tmp_path)
    assert check(place) == 1
    assert check(place, "--allow-suspicious") == 0


def test_a_result_that_shows_nothing_is_no_success(tmp_path, monkeypatch):
    monkeypatch.setattr("refnet.check.judgement.LIMITS", (1e30, 1e30))
    place = written("numpy", tmp_path)
    assert check(place, "--allow-suspicious") == 2


@pytest.mark.parametrize("flag", ["--json", "--junit"])
def test_a_file_that_cannot_be_written_is_refused_first(flag, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("refnet.check.commands.judge_function", lambda args: pytest.fail("judged"))
    for name in (str(tmp_path), str(tmp_path / "no" / "such"), "/proc/no-file"):
        with pytest.raises(SystemExit) as left:
            cli.main(["check", "function", "x.py:f", flag, name])
        assert left.value.code == 2 and f"{name} cannot be written" in capsys.readouterr().err
    assert list(Path(tmp_path).iterdir()) == []


def test_a_crash_says_in_which_line(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import ctypes\ndef gradients(p, x, y):\n    return ctypes.string_at(0)\n")
    command = ["check", "function", f"{file}:gradients", "--sizes", "2,3,2"]
    done = run([sys.executable, "-m", "refnet", *command], capture_output=True, text=True)
    assert done.returncode < 0 and f'"{file}", line 3 in gradients' in done.stderr
