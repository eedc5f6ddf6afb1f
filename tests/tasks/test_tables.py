"""Data files as tasks: what is read, what may be missing, and what is refused in one line."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import refnet
from refnet import Config, load, resume, train
from refnet.cli import main
from refnet.common.names import DATA
from refnet.tasks import make_task, options
from refnet.tasks.tables import READERS
from refnet.training.experiment import build
from refnet.training.protocols import configure
from support.arguments import refused

RNG = np.random.default_rng(0)
LENGTHS = (3, 1, 4, 2, 5, 3, 2, 4)
X = [RNG.standard_normal((n, 2)).round(3) for n in LENGTHS]


def rows(header=("id", "time", "a", "b", "target"), label=lambda n, t: "xy"[n % 2]):
    return [header] + [
        (f"s{n}", t, *x[t], label(n, t)) for n, x in enumerate(X) for t in range(len(x))
    ]


def only_at(place):
    """The number of the class, in one row of each sequence."""
    return lambda n, t: n % 2 if t == range(LENGTHS[n])[place] else "NA"


def write(path, table, delimiter=","):
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(table)
    return str(path)


def sequences_of(task):
    """The training part's sequences in the order of the file, in the user's numbers."""
    scale, mean = np.array(task.encoding.scale), np.array(task.encoding.mean)
    return np.split(task._x.steps * scale + mean, np.cumsum(task._x.lengths)[:-1])


def test_a_table_is_its_sequences(tmp_path):
    """However its rows are ordered and separated, and whatever its columns are called."""
    plain = make_task(write(tmp_path / "a.csv", rows()), dtype="float64")
    assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(sequences_of(plain), X))
    assert (plain.readout, plain.encoding.classes, plain.name) == ("last", ["x", "y"], "a.csv")
    header, *lines = rows()
    stirred = [lines[i] for i in RNG.permutation(len(lines))]
    for path, table, delimiter, names in (
        ("b.csv", [header, *stirred], ";", {}),
        ("c.tsv", [("ID", "T", "a", "b", "L"), *lines], "\t", {"id": "ID", "time": "T"}),
    ):
        names |= {"target": "L"} if names else {}
        task = make_task(write(tmp_path / path, table, delimiter), **names, dtype="float64")
        sequences = sorted(sequences_of(task), key=lambda x: x.ravel().tolist())
        wanted = sorted(X, key=lambda x: x.ravel().tolist())
        assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(sequences, wanted))


def test_targets_and_parts_of_a_table(tmp_path):
    path = write(tmp_path / "a.csv", rows(label=lambda n, t: 0.5 + n + t))
    task = make_task(path)
    assert (task.readout, task.loss) == ("every", "squared_error")
    assert make_task(path, readout="last").readout == "last"
    path = write(
        tmp_path / "b.csv", rows(label=lambda n, t: "xy"[(n + t // 2) % 2] if t % 2 else "")
    )
    task = make_task(path, validation=0.0, test=0.0)
    assert (task.readout, task.splits, task.encoding.classes) == ("every", ("train",), ["x", "y"])
    for place in (0, -1):  # the sequence's one target, in one of its rows
        path = write(tmp_path / "d.csv", rows(label=only_at(place)))
        task = make_task(path)
        assert (task.readout, task.encoding.classes) == ("last", [0, 1])
        assert make_task(path, readout="every").readout == "every"
    table = [(*row, part) for row, part in zip(rows(), ["part", *["train"] * 15, *["test"] * 9])]
    task = make_task(write(tmp_path / "c.csv", table), split="part")
    assert task.splits == ("test",) and task.size == 5


def test_a_column_of_words_is_symbols(tmp_path):
    table = [("id", "event", "target")]
    table += [(n, word, n % 2) for n in range(9) for word in ("go", "stop", "go")[: 1 + n % 3]]
    task = make_task(write(tmp_path / "a.csv", table))
    assert task.encoding.words == ["go", "stop"] and task.encoding.classes == [0, 1]
    net = build(configure({"task": str(tmp_path / "a.csv")})).net
    assert (net.embedding, net.inputs) == (2, 2)


CELL = ("id", "time", "a", "b", "target")
FIRST, DATED = (("s", time, 1, 1, 2) for time in (0, "2024-01-31"))
BAD = {
    "no column 'id' for id; its columns are k, a, target": [("k", "a", "target"), (1, 2, 3)],
    "no column 'target' for target": [("id", "a"), (1, 2)],
    "line 3 has 3 entries; need 5": [CELL, *rows()[1:2], (1, 2, 3)],
    "need a header of different names": [("id", "a", "a", "target"), (1, 2, 3, 4)],
    "line 3 has 'tall' as b; need numbers": [CELL, ("s", 0, 1, 2, 3), ("s", 1, 1, "tall", 3)],
    ":missing=mean, which takes the mean of the training part": [CELL, ("s", 0, "NA", 1, 2)],
    "line 3 repeats the time 0 of sequence s": [CELL, FIRST, FIRST],
    "no column beside id, target": [("id", "target"), (1, 2)],
    "line 3 has '1/2/2024' as time; need numbers, or dates such as 2024-01-31": [
        CELL,
        DATED,
        ("s", "1/2/2024", 1, 1, 2),
    ],
    "line 3 lacks time; fill it in": [CELL, FIRST, ("s", "", 1, 1, 2)],
    "header is '', with 0 rows beneath it; need a header of different names": [()],
    "header is 'id,a,,target', with 1 rows": [("id", "a", "", "target"), (1, 2, 3, 4)],
    "line 3 lacks id; need": [CELL, FIRST, ("", 1, 1, 1, 2)],
    "line 3 lacks time": [CELL, DATED, ("s", "", 1, 1, 2)],
    "line 3 has 'NaT' as time": [CELL, DATED, ("s", "NaT", 1, 1, 2)],
    "line 3 has 'NAN' as time": [CELL, FIRST, ("s", "NAN", 1, 1, 2)],
    "line 2 has '-nan' as a; fill": [CELL, ("s", 0, "-nan", 1, 2)],
    "line 3 lacks a; need a word": [("id", "a", "target"), (1, "go", 2), (1, "", 2)],
    "line 3 has '7' as time": [CELL, DATED, ("s", "7", 1, 1, 2)],
    "line 3 has 'today' as time": [CELL, DATED, ("s", "today", 1, 1, 2)],
    "line 2 has '1500-01-01' as time; need no fractions": [
        CELL,
        ("s", "1500-01-01", 1, 1, 2),
        ("s", "2024-01-31T00:00:00.000000001", 1, 1, 2),
    ],
    "line 2 has 'inf' as a; need finite": [CELL, ("s", 0, "inf", 1, 2)],
    "line 2 has '-inf' as target; need finite": [CELL, ("s", 0, 1, 1, "-inf")],
    **{
        f"line 3 has '{10**20}' as {CELL[at]}; need finite numbers, and 1e20 for": [
            CELL,
            FIRST,
            tuple(10**20 if n == at else 1 for n in range(5)),
        ]
        for at in (1, 3, 4)
    },
}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("train", "test"), "line 3 has 'test' as part; need train, validation, test, the same"),
        (("dev", "dev"), "line 2 has 'dev' as part"),
        (("train", ""), "line 3 lacks part"),
    ],
)
def test_a_sequence_has_one_part(tmp_path, parts, message):
    table = [("id", "a", "target", "part"), *((1, n, "x", part) for n, part in enumerate(parts))]
    with refused(f"a.csv: {message}"):
        make_task(write(tmp_path / "a.csv", table), split="part")


@pytest.mark.parametrize("labels", [(0, 1, 2), ("x", "y", "z")])
def test_a_step_without_a_class_leaves_the_others_classes(tmp_path, labels):
    """Integers, too; and the digest knows which step it is."""
    path, records = tmp_path / "a.csv", []
    for gap in (None, (0, 0), (2, 2)):
        table = rows(label=lambda n, t, gap=gap: "" if (n, t) == gap else labels[(n + t) % 3])
        task = make_task(write(path, table))
        assert (task.readout, task.encoding.classes) == ("every", [*labels])
        assert task._present is None or task._present.sum() == sum(LENGTHS) - 1
        records.append(task.record()["sha256"])
    assert len({*records}) == 3


@pytest.mark.parametrize("message", BAD)
def test_a_table_that_is_refused(tmp_path, message):
    path = write(tmp_path / "a.csv", BAD[message])
    with refused(re.escape(message)) as caught:
        make_task(path)
    assert path in str(caught.value) and "\n" not in str(caught.value)


def test_a_line_is_counted_with_the_breaks_in_its_entries_and_those_before(tmp_path):
    path = tmp_path / "a.csv"
    for end in ("\n", "\r\n", "\r"):
        lines = ['id,time,"a', 'b",c,target', '"s', '",0,1,1,2', '"s', '",1,1,tall,2', "s,2"]
        path.write_bytes(end.join(lines).encode())
        with refused("a.csv: line 7 has 2 entries; need 5"):
            make_task(str(path))
        path.write_bytes(end.join(lines[:-1]).encode())
        with refused("a.csv: line 5 has 'tall' as c"):
            make_task(str(path))
        path.write_bytes(end.join([*lines[:5], '",0,1,1,2']).encode())
        with refused("a.csv: line 5 repeats the time 0 of sequence s"):
            make_task(str(path))


def test_times_that_agree_only_in_float64_are_in_order(tmp_path):
    times = ["1700000000.123456790", "1700000000.123456789", "1.7e9", "17e-1"]
    assert float(times[0]) == float(times[1])
    table = [CELL, *[("s0", time, n, 0, "x") for n, time in enumerate(times)], ("s1", 0, 0, 0, "y")]
    task = make_task(write(tmp_path / "a.csv", table), validation=0.0, test=0.0, standardize=False)
    (x,) = (part for part in np.split(task._x.steps, [4]) if len(part) == 4)
    assert x[:, 0].tolist() == [3, 2, 1, 0]
    again = [*table[:3], ("s0", "1700000000.1234567890", 0, 0, "x")]
    with refused("line 4 repeats the time 1700000000.1234567890 of sequence s0"):
        make_task(write(tmp_path / "a.csv", again))


def test_dates_order_the_rows_and_blank_lines_end_them(tmp_path):
    for days in (
        ("2024-02-01T00:30", "2024-01-31", "2024-02-01T00:05"),
        ("2024-02-01T00:00:00.000000002", "2024-02-01", "2024-02-01T00:00:00.000000001"),
        ("2024-02-01T01:00Z", "2024-02-01T02:00+02:00", "2024-02-01 00:30"),
    ):
        table = [CELL, *((n, day, k, n, n % 2) for n in range(6) for k, day in enumerate(days))]
        path = write(tmp_path / "a.csv", [*table, (), ()])
        assert sequences_of(make_task(path))[0][:, 0].round().tolist() == [1, 2, 0]


def test_missing_features_may_be_the_mean(tmp_path):
    table = rows()
    table[2] = (*table[2][:2], "", *table[2][3:])
    task = make_task(write(tmp_path / "a.csv", table), missing="mean")
    assert (task._x.steps == 0).sum() == 1


def test_arrays_in_a_file(tmp_path):
    """Padded, or one after another; and no pickle is opened."""
    y, path = np.arange(8) % 2, tmp_path / "a.npz"
    padded = np.full((8, 5, 2), np.nan)
    for row, x in zip(padded, X):
        row[: len(x)] = x
    np.savez(path, x=padded, y=y, lengths=LENGTHS)
    first = make_task(str(path)).record()
    np.savez(path, x=np.concatenate(X), y=y, lengths=LENGTHS)
    assert make_task(str(path)).record() == first
    np.savez(path, x=padded, y=y, length=LENGTHS)
    with refused("a.npz has x, y, length; need x and y, and of lengths"):
        make_task(str(path))
    for lengths in (np.array(LENGTHS, float), np.array([-3, 9, *LENGTHS[2:]]), 24):
        np.savez(path, x=np.concatenate(X), y=y, lengths=lengths)
        with refused(r"a.npz: lengths is .*; need a whole number from 1 on"):
            make_task(str(path))
    np.savez(path, x=np.ones((8, 2)), y=y, lengths=np.ones(8, int), weights=np.arange(8.0))
    task = make_task(str(path))
    assert (task.inputs, task.readout, task._weights.tolist()) == (2, "last", [*range(8)])
    np.savez(path, x=np.array([*X, None], object), y=y)
    with refused("need what np.savez.* without arrays of objects"):
        make_task(str(path))
    np.save(tmp_path / "a.npy", y)
    archive = path.read_bytes()
    for other in (b"no archive", (tmp_path / "a.npy").read_bytes(), archive[:-9], archive[300:]):
        path.write_bytes(other)
        with refused(r"a\.npz is damaged, or not an archive of plain arrays; need what np.savez"):
            make_task(str(path))
    with refused("there is no file .*b.npz; name one that exists", FileNotFoundError):
        make_task(str(tmp_path / "b.npz"))


def test_a_text_by_characters(tmp_path):
    """Every target is the next character; the last pieces are held out."""
    path = tmp_path / "a.txt"
    text = "".join(RNG.choice(list("abcdé\n"), 1005))
    path.write_text(text, "utf-8")
    task = make_task(str(path), length=10, validation=0.1, test=0.2)
    words = task.encoding.words
    assert words == task.encoding.classes == sorted(set(text))
    (batch,) = task.evaluation(0, 0, "test")
    got = {"".join(words[i] for i in batch.x[:, b]) for b in range(batch.x.shape[1])}
    assert got == {text[at : at + 10] for at in range(800, 1000, 10)}
    assert (batch.y[:-1] == batch.x[1:]).all() and batch.y.shape == (10, 20)
    figures = task.metrics(task.score(np.zeros((10, 20, 6)), batch))
    assert abs(figures["bpc"] - np.log2(6)) < 1e-9 and task.metric == "bpc"
    with refused("has 1005 characters, 0 pieces of length 2000"):
        make_task(str(path), length=2000)
    path.write_text("\ufeff" + text, "utf-8")
    assert make_task(str(path), length=10, validation=0.1, test=0.2).record() == task.record()
    for data, end in ((b"\xff\xfe\x00", ".txt"), (b"ab\0cd", ".txt"), (b"id,\0", ".csv")):
        path.with_suffix(end).write_bytes(data)
        with refused(f"a{end}: .*need a text"):
            make_task(str(path.with_suffix(end)))


def test_a_short_text_in_short_pieces(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("to be or not to be. " * 7)
    run = train(str(path), length=10, hidden=4, iterations=2, backend="reference")
    assert run.task.batch(0, 4, 0).x.shape == (10, 4)
    with refused("140 characters, 1 piece of length 100"):
        train(str(path), hidden=4, iterations=2)


def test_every_reader_is_known_as_a_file():
    assert set(READERS) == set(DATA)


def test_options_are_checked_as_of_any_task(tmp_path):
    assert options("a.csv")["target"] == "target" and "path" not in options("a.npz")
    with refused("task a.txt has no option 'id'"):
        make_task("a.txt", id="a")
    with refused("task 'a.xls' is unknown"):
        make_task("a.xls")
    Path(tmp_path / "a.txt").write_text("abc" * 99)
    for held in ({"validation": -0.1}, {"validation": 0.5, "test": 0.5}, {"test": np.nan}):
        with refused(f"a.txt: validation is .*{[*held.values()][0]}.*; need two fractions"):
            make_task(str(tmp_path / "a.txt"), length=5, **held)


def test_the_command_trains_and_resumes_and_the_run_keeps_the_scaling(
    tmp_path, capsys, monkeypatch
):
    path = write(tmp_path / "a.csv", [("ID", "T", "a", "b", "L"), *rows()[1:]])
    folder = tmp_path / "run"
    flags = "--id ID --time T --target L --hidden 4 --iterations 20 --backend reference".split()
    monkeypatch.chdir(tmp_path)
    assert main(["train", "a.csv", *flags, "--out", str(folder), "--quiet"]) == 0
    run = load(folder)
    record = json.loads((folder / "task.json").read_text())
    assert record == run.task.record() and len(record["mean"]) == 2
    assert run.config.task == f"{path}:id=ID,time=T,target=L" and Path(path).is_absolute()
    assert (run.config.patience, run.config.optimizer) == (20, "adam")
    assert "No part is held out" not in (folder / "summary.md").read_text()
    train(f"{path}:id=ID,time=T,target=L,validation=0.0,test=0.0", tmp_path / "all", iterations=2)
    assert "No part is held out" in (tmp_path / "all" / "summary.md").read_text()
    config = Config(**{**vars(run.config), "iterations": 40})
    resume(config, folder)
    whole = tmp_path / "whole"
    train(config, whole)
    assert all(
        value.tobytes() == load(whole).params[name].tobytes()
        for name, value in load(folder).params.items()
    )
    write(path, [("ID", "T", "a", "b", "L"), *rows()[1:-1]])
    capsys.readouterr()
    assert main(["train", "--resume", str(folder), "--iterations", "60"]) == 2
    assert "the run began with other data than a.csv has now" in capsys.readouterr().err
    assert main(["train", "--id", "ID"]) == 2
    assert "--id is for a CSV file; name one" in capsys.readouterr().err


def test_symbols_need_no_setting(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("abcab" * 100)
    config = configure({"task": f"{path}:length=5", "iterations": 20, "hidden": 4})
    for name in ("dropout_inputs", "noise_inputs"):
        with refused(f"{name} is 0.5, and the inputs of task a.txt are sy"):
            build(Config(**{**vars(config), name: 0.5}))
    for backend in ("reference", "compiled"):
        summary = train(Config(**{**vars(config), "backend": backend}), tmp_path / backend)
        assert summary.state == "finished" and summary.best["bpc"] < 2


def test_the_page_on_your_own_data_runs(tmp_path, monkeypatch, capsys):
    """Its command and its Python, on two classes that a mean tells apart."""
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    table = [("ID", "T", "a", "b", "LABEL")]
    for n in range(80):
        for t in range(RNG.integers(5, 12)):
            table.append((n, t, *RNG.standard_normal(2) + (n % 2, 0), "xy"[n % 2]))
    write(tmp_path / "series.csv", table)
    page = (Path(refnet.__file__).parent / "training" / "DATA.md").read_text()
    (command,) = re.findall(r"```sh\nrefnet (.*)\n```", page)
    assert main([*command.split(), "--quiet", "--iterations", "100"]) == 0
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, scope)
    score, labels, chances = capsys.readouterr().out.splitlines()[-3:]
    assert float(score) > 0.6 and labels == "['y' 'y']"
    assert abs(sum(map(float, chances.strip("[]").split())) - 1) < 1e-6
