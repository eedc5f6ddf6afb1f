"""The Penn Treebank by characters: small made-up files always, the real ones where they are."""

from collections import Counter
from hashlib import sha256
from itertools import islice
from math import log

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.tasks import make_task, ptb
from refnet.tasks.arrays import ORDERS, batches_of
from refnet.tasks.ptb import SYMBOLS
from support.arguments import refused
from support.realdata import real_data

TEXTS = {
    "train": [
        " we 're <unk> off ",
        " a \\/ b & c # d * e ",
        " N <unk> <unk> sold for $ 3 a-piece ",
        " no ",
        " mr. quick jumps over the lazy dogs of n.v. ",
        " <unk> ",
    ],
    "valid": [" buy ", " sell and <unk> hold on until N "],
    "test": [" so it goes ", " on ", " 0123456789 "],
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    table = {}
    for split, texts in TEXTS.items():
        data = "".join(f"{text}\n" for text in texts).encode()
        (tmp_path / f"ptb.{split}.txt").write_bytes(data)
        table[split] = len(data), sha256(data).hexdigest()
    monkeypatch.setattr(ptb, "FILES", table)
    monkeypatch.setenv("REFNET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setenv("REFNET_DATA", str(real_data("ptb")))


def read(batch):
    """The lines of a batch, read from its one-hot inputs and checked step by step."""
    T, B, _ = batch.x.shape
    lines = []
    for b in range(B):
        shown = [SYMBOLS[int(np.flatnonzero(batch.x[t, b])[0])] for t in range(T)]
        assert (batch.x[:, b].sum(axis=1) == 1).all() and (batch.x[:, b].max(axis=1) == 1).all()
        end = shown.index("\n")
        assert all(symbol == "<unk>" for symbol in shown[end + 1 :])
        targets = [SYMBOLS[y] for y in batch.y[:, b]]
        assert targets == shown[1:] + ["<unk>"]
        assert batch.mask[:, b].tolist() == [t <= end + 1 for t in range(T)]
        lines.append("".join(shown[:end]))
    assert batch.mask[-1].any()  # no step that no line needs
    return lines


def test_symbols():
    assert len(SYMBOLS) == 49 == len(set(SYMBOLS))
    text = "".join(SYMBOLS)
    assert [SYMBOLS[i] for i in ptb.encode(text.encode(), "here")] == list(SYMBOLS)


@given(st.lists(st.sampled_from(SYMBOLS)))
def test_encoding_round_trip(symbols):
    codes = ptb.encode("".join(symbols).encode(), "here")
    assert [SYMBOLS[i] for i in codes] == symbols


@pytest.mark.parametrize("wrong", ["\u00e4", "A", "<", "\r", "<UNK>", "\t", "\x7f"])
def test_a_character_that_is_no_symbol(wrong):
    with refused(r"here: line 3 has .*, which is none of the 49 symbols"):
        ptb.encode(f"a <unk> line\nanother\nwrong {wrong} line\n".encode(), "here")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_read_back(small, dtype):
    task = make_task("ptb", dtype=dtype)
    seen = Counter()
    for batch in islice(task.batches(4, seed=2), 6):  # three epochs of batches of 4 and 2
        seen.update(read(batch))
        assert batch.x.dtype == dtype and batch.y.dtype == np.int64
    assert seen == Counter(dict.fromkeys(TEXTS["train"], 3))


def test_the_reader_rejects_planted_bugs(small):
    good = make_task("ptb").batch(0, 6, 0)
    read(good)
    longer = [np.concatenate([part, part[-1:]]) for part in good[:2]]
    for bad in (
        good._replace(y=np.roll(good.y, 1, axis=0)),
        good._replace(x=np.roll(good.x, 1, axis=2)),
        good._replace(x=good.x * 2),
        good._replace(mask=np.roll(good.mask, 1, axis=0)),
        good._replace(mask=np.ones_like(good.mask)),
        good._replace(
            x=longer[0], y=longer[1], mask=np.concatenate([good.mask, good.mask[:1] & False])
        ),
    ):
        with pytest.raises((AssertionError, ValueError)):
            read(bad)


def test_long_lines_are_left_out(small):
    """Counted with the newline and <unk> as five characters."""
    for limit in (6, 7, 8, 20, 21, 300):
        chosen = [text for text in TEXTS["train"] if len(text) + 1 <= limit]
        assert sorted(read(make_task("ptb", characters=limit).batch(0, 10, 0))) == sorted(chosen)
    with refused("characters is 4, and no line of the train file is that"):
        make_task("ptb", characters=4)
    with refused("ptb: dtype 'int8' is unknown; choose one of float32, float64"):
        make_task("ptb", dtype="int8")


def test_evaluation_is_the_whole_split(small):
    task = make_task("ptb")
    for split, file in (("validation", "valid"), ("test", "test")):
        (batch,) = task.evaluation(3, 5, split)
        assert read(batch) == sorted(TEXTS[file], key=len)
    with refused("ptb: split 'train' is unknown; choose one of validation, test"):
        task.evaluation(0, 0, "train")


def schedule(lengths, size, seed, epoch, order):
    return batches_of(lengths // ptb.WIDTH, size, seed, epoch, order, near=len(lengths))


@pytest.mark.parametrize("order", ORDERS)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=80),
    st.integers(1, 20),
    st.integers(0, 2**40),
    st.integers(0, 5),
)
def test_an_epoch_has_every_line_once(order, lengths, size, seed, epoch):
    """In company of its length, or, mixed, whatever the lengths are."""
    lengths = np.array(lengths)
    batches = schedule(lengths, size, seed, epoch, order)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // size) and max(map(len, batches)) <= size
    if order == "mixed":
        others = schedule(np.ones(len(lengths), int), size, seed, epoch, order)
        assert all(map(np.array_equal, batches, others))
    else:
        tens = sorted((min(tens), max(tens)) for tens in (lengths[r] // ptb.WIDTH for r in batches))
        assert all(low[1] <= high[0] for low, high in zip(tens, tens[1:]))


@pytest.mark.parametrize("order", ORDERS)
def test_epochs_differ(order):
    orders = {
        np.concatenate(schedule(np.full(50, 9), 5, seed, epoch, order)).tobytes()
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    }
    assert len(orders) == 3


def naive_figures(outputs, batch):
    """Bits and hits, prediction by prediction, from probabilities: (all, without the ends)."""
    counted = {"_with_ends": [], "": []}
    for t in range(batch.x.shape[0]):
        for b in range(batch.x.shape[1]):
            if not batch.mask[t, b]:
                continue
            p = np.exp(outputs[t, b]) / np.exp(outputs[t, b]).sum()
            shown = batch.x[: t + 1, b].argmax(axis=1)
            trivial = SYMBOLS.index("\n") in shown
            result = -log(p[batch.y[t, b]]) / log(2), p.argmax() == batch.y[t, b]
            counted["_with_ends"].append(result)
            if not trivial:
                counted[""].append(result)
    return {
        name + ends: sum(column) / len(column)
        for ends, results in counted.items()
        for name, column in zip(("bpc", "accuracy"), zip(*results))
    }


def test_figures_with_and_without_the_ends(small):
    task = make_task("ptb", dtype="float64")
    (batch,) = task.evaluation(0, 0, "test")
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(*batch.y.shape, 49)) + 2 * np.eye(49)[batch.y]
    figures, expected = task.metrics(task.score(outputs, batch)), naive_figures(outputs, batch)
    assert figures.keys() == expected.keys()
    for name, value in expected.items():  # sums of some 30 terms near 5, each a few roundings off
        assert abs(figures[name] - value) < 100 * np.finfo(float).eps * 5
    steps = sum(len(text) for text in TEXTS["test"])
    score = task.score(outputs, batch)
    assert (score["count"], score["end_count"]) == (steps, 2 * len(TEXTS["test"]))


def test_what_is_masked_does_not_count(small):
    task = make_task("ptb")
    (batch,) = task.evaluation(0, 0, "test")
    outputs = np.eye(49)[batch.y] * 50
    outputs[~batch.mask] = np.nan
    figures = task.metrics(task.score(outputs, batch))
    assert figures["accuracy"] == figures["accuracy_with_ends"] == 1 and figures["bpc"] < 1e-9
    outputs[0, 0] = np.nan
    assert task.metrics(task.score(outputs, batch))["accuracy"] < 1
    assert not task.solved(figures)


def test_missing_files_say_what_to_get(small):
    (small / "ptb.valid.txt").unlink()
    with refused(
        "ptb.valid.txt is not in .* Get the Penn Treebank "
        "as Mikolov prepared it .* licensed .* Put it, plain or gz, into .*ptb, or "
        "name its folder in REFNET_DATA",
        FileNotFoundError,
    ):
        make_task("ptb")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda data: data + b" more \n", "goes on after the"),
        (lambda data: data[:-5], "it has 26 bytes unpacked, and should have 31"),
        (
            lambda data: data[:3] + b"<",
            "line 1 has '<'.* [(]it has 4 bytes unpacked, and should have",
        ),
        (lambda data: data.replace(b" so", b" is"), "sha256 of the unpacked bytes is"),
        (lambda data: data.replace(b"\n", b"\r"), r"line 1 has '\\r', which is none of the 49"),
    ],
)
def test_a_changed_file_is_refused(small, change, message):
    path = small / "ptb.test.txt"
    path.write_bytes(change(path.read_bytes()))
    with refused(f"ptb.test.txt: {message}"):
        make_task("ptb")


def test_the_papers_numbers_of_the_real_text(real):
    """49 symbols, all of them used; 23% of the lines are within 75 characters, 99% in 300."""
    every, characters = ptb.lines("train")
    assert len(every) == len(characters) == 42_068
    assert set(np.concatenate(every)) == set(range(49))
    assert [round(100 * (characters <= limit).mean()) for limit in (75, 300)] == [23, 99]
    # <unk> counted as one character would make it 25%
    symbols = np.array([len(line) for line in every])
    assert [round(1000 * (symbols <= limit).mean()) for limit in (75, 300)] == [252, 996]
    for split, count in (("valid", 3370), ("test", 3761)):
        assert len(ptb.lines(split)[0]) == count


@pytest.mark.parametrize("limit", [75, 300])
def test_real_batches(real, limit):
    """An epoch has every line once; length buckets leave at most a tenth of padding."""
    task = make_task("ptb", characters=limit)
    batches = -(-len(task._lines["train"]) // 50)
    steps = counted = rows = 0
    for batch in islice(task.batches(50, 0), batches):
        rows += batch.x.shape[1]
        steps += batch.mask.size
        counted += batch.mask.sum()
        assert batch.x.shape[0] <= limit + 1
    assert rows == len(task._lines["train"]) and counted > 0.9 * steps
    assert read(task.batch(0, 20, 0)) == [
        "".join(SYMBOLS[i] for i in task._lines["train"][row])[:-1]
        for row in task._schedule(20, 0, 0)[0]
    ]
