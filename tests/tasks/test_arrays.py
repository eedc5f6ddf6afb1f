"""A user's arrays as a task: each claim of ``Arrays`` beside a plain loop over the sequences."""

import json
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from refnet.nets.recurrent import RecurrentNet
from refnet.tasks import Arrays
from refnet.tasks.arrays import PARTS, batches_of, divide
from refnet.tasks.sequences import Encoding
from support.arguments import refused

RNG = np.random.default_rng(0)
LENGTHS = [3, 5, 4, 6, 3, 7, 2, 5, 4, 6, 1, 3]
LIST = [RNG.standard_normal((n, 2)) * 5 + 3 for n in LENGTHS]
LABELS = ["a", "b", "c"] * 4
PARTS_OF = ["train"] * 8 + ["validation"] * 2 + ["test"] * 2


def padded(arrays, fill=np.nan):
    out = np.full((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), fill)
    for row, each in zip(out, arrays):
        row[: len(each)] = each
    return out


def examples(batches):
    """What batches hold, sequence by sequence, without what is masked."""
    for batch in batches:
        for b in range(batch.x.shape[1]):
            counted = slice(None) if batch.mask is None else batch.mask[:, b]
            every = batch.y.shape[:2] == batch.x.shape[:2]
            yield batch.x[counted, b], batch.y[counted, b] if every else batch.y[b]


def epoch(task, size=3, seed=0):
    return [task.batch(i, size, seed) for i in range(-(-task.size // size))]


def test_lists_and_padded_arrays_are_the_same_task():
    first = Arrays(LIST, LABELS, splits=PARTS_OF)
    second = Arrays(padded(LIST), LABELS, lengths=np.array(LENGTHS), splits=PARTS_OF)
    assert first.record() == second.record()
    for batch, other in zip(epoch(first), epoch(second)):
        assert batch.x.tobytes() == other.x.tobytes() and batch.y.tobytes() == other.y.tobytes()


def test_an_epoch_has_every_training_sequence_once_standardized():
    """By the mean and the deviation of the training part's steps alone."""
    task = Arrays(LIST, LABELS, splits=PARTS_OF, dtype="float64")
    steps = np.concatenate(LIST[:8])
    wanted = {
        ((x - steps.mean(axis=0)) / steps.std(axis=0)).round(9).tobytes(): "abc".index(label)
        for x, label in zip(LIST[:8], LABELS)
    }
    got = {x.round(9).tobytes(): int(y) for x, y in examples(epoch(task))}
    assert got == wanted
    assert (task.inputs, task.outputs, task.splits) == (2, 3, ("validation", "test"))
    held = [y for part in PARTS[1:] for _, y in examples(task.evaluation(0, 0, part))]
    assert sorted(held) == sorted("abc".index(label) for label in LABELS[8:])
    leaking = Arrays(LIST, LABELS, splits=["train"] * 12, dtype="float64")
    assert leaking.encoding.mean != task.encoding.mean


def test_targets_at_every_step_and_steps_without_one():
    y = [RNG.standard_normal(n) for n in LENGTHS]
    y[0][1] = np.nan
    task = Arrays(LIST, y, splits=PARTS_OF, dtype="float64", standardize=False)
    assert (task.readout, task.loss, task.outputs) == ("every", "squared_error", 1)
    got = {tuple(values.ravel()) for _, values in examples(epoch(task))}
    assert got == {tuple(each[~np.isnan(each)]) for each in y[:8]}
    words = [["n" if v > 0 else "" if v < -1 else "m" for v in each] for each in y]
    task = Arrays(LIST, words, splits=PARTS_OF)
    counted = sum(len(y) for _, y in examples(epoch(task)))
    assert task.encoding.classes == ["m", "n"]
    assert counted == sum(word != "" for each in words[:8] for word in each)
    with refused("sequence 2 has no target"):
        Arrays(LIST, [*LABELS[:2], "", *LABELS[3:]])


def test_targets_choose_the_loss_and_the_classes():
    ints = np.arange(12) % 3
    assert Arrays(LIST, ints).loss == "cross_entropy"
    assert Arrays(LIST, ints.astype(float)).loss == "squared_error"
    assert Arrays(LIST, ints, targets="real").loss == "squared_error"
    assert Arrays(LIST, ints.astype(float), targets="classes").encoding.classes == [0.0, 1.0, 2.0]
    assert Arrays(LIST, ints, targets=[0, 1, 2, 3]).outputs == 4
    assert Arrays(LIST, np.ones((12, 7)) * ints[:, None], readout="last").outputs == 7
    with refused("has the class 2; need one of"):
        Arrays(LIST, ints, targets=[0, 1])


@pytest.mark.parametrize("known", [["low", "mid", "high"], [2, 0, 1], ["b", "c", "a", "d"]])
def test_listed_classes_keep_their_order(known):
    y = known[:3] * 4
    task = Arrays(LIST, y, targets=known, splits=["train"] * 12)
    assert task.encoding.classes == known
    assert task._y.tolist() == [known.index(each) for each in y]
    assert task.encoding.answers(np.eye(len(known))).tolist() == known
    with refused("need every class once"):
        Arrays(LIST, y, targets=[*known, known[0]])


def test_features_of_any_size():
    """Standardized to the same bits at any power of two; beyond the dtype, refused."""
    usual = Arrays(LIST, LABELS)
    for power in (-1000, 1000):
        task = Arrays([np.ldexp(x, power) for x in LIST], LABELS)
        assert task._x.steps.tobytes() == usual._x.steps.tobytes()
    with refused(r"sequence 0, step 0 .* as feature 0; need finite numbers that float32 can hold"):
        Arrays([x * 1e40 for x in LIST], LABELS, standardize=False)
    with refused("y has targets that are too large for float32"):
        Arrays(LIST, np.full(12, 1e40), standardize=False)


def test_symbols_are_numbers_or_words():
    numbers = [RNG.integers(0, 5, n) for n in LENGTHS]
    task = Arrays(numbers, LABELS, splits=PARTS_OF)
    assert task.symbols == task.inputs == max(map(max, numbers)) + 1
    assert {x.tobytes() for x, _ in examples(epoch(task))} == {x.tobytes() for x in numbers[:8]}
    words = [[f"w{n}" for n in x] for x in numbers]
    task = Arrays(words, LABELS, splits=PARTS_OF)
    assert task.encoding.words == sorted({w for each in words for w in each})
    assert task.batch(0, 3, 0).x.ndim == 2
    with refused(r"sequence 0, step 1 \(both from 0\) has the symbol 'new'"):
        next(task.encoding.batches([["w1", "new"]]))
    with refused("has the symbol -1; need 0 to"):
        Arrays([np.array([1, -1]), *numbers[1:]], LABELS)


def test_missing_features():
    holes = [x.copy() for x in LIST]
    holes[3][2, 1] = np.nan
    with refused(r"sequence 3, step 2 .* has nan as feature 1; need finite"):
        Arrays(holes, LABELS)
    task = Arrays(holes, LABELS, splits=PARTS_OF, missing="mean")
    assert sum((x == 0).sum() for x, _ in examples(epoch(task))) == 1
    new = [np.array([[np.nan, 1.0]])]
    assert next(task.encoding.batches(new))[1].x[0, 0, 0] == 0
    with refused(r"sequence 0, step 0 .* has nan as feature 0; need finite.*missing='mean'"):
        next(Arrays(LIST, LABELS).encoding.batches(new))
    holes[3][2, 1] = np.inf
    with refused("has inf as feature 1"):
        Arrays(holes, LABELS, missing="mean")
    with refused("has inf as feature 1"):
        next(task.encoding.batches(holes))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(5, 200),
    st.integers(0, 2**40),
    st.integers(1, 8).flatmap(
        lambda a: st.tuples(st.just(a), st.integers(0, 4), st.integers(0, 4))
    ),
)
def test_parts_are_stratified(count, seed, shares):
    """Every group has its share of every part to within one sequence; another seed, other parts."""
    fractions = np.array(shares) / sum(shares)
    groups = np.random.default_rng(seed).integers(0, 3, count)
    parts = divide(fractions, count, seed, groups)
    assert parts.tobytes() == divide(fractions, count, seed, groups).tobytes()
    for part in (1, 2):
        assert abs((parts == part).sum() - fractions[part] * count) <= 1.5
        for group in range(3):
            size = (groups == group).sum()
            assert abs((parts[groups == group] == part).sum() - fractions[part] * size) <= 3
    other = divide((0.5, 0.5, 0), 100, seed, None)
    assert (other != divide((0.5, 0.5, 0), 100, seed + 1, None)).any()


def test_batches_of_like_lengths():
    lengths = np.random.default_rng(1).integers(1, 1000, 500)
    for order in ("shuffled", "mixed"):
        batches = batches_of(lengths, 16, 0, 0, order)
        assert sorted(np.concatenate(batches)) == list(range(500))
        again, next_epoch = (batches_of(lengths, 16, 0, n, order) for n in (0, 1))
        assert all((a == b).all() for a, b in zip(batches, again))
        assert any(len(a) != len(b) or (a != b).any() for a, b in zip(batches, next_epoch))
    work = {
        order: sum(lengths[rows].max() * len(rows) for rows in batches_of(lengths, 16, 0, 0, order))
        for order in ("shuffled", "mixed")
    }
    assert work["shuffled"] < 1.15 * lengths.sum() and work["mixed"] > 1.6 * lengths.sum()


def test_scores_are_in_the_users_units():
    y = RNG.standard_normal((12, 2)) * (1, 100) + (0, 50)
    task = Arrays(LIST, y, splits=PARTS_OF, dtype="float64")
    (batch,) = task.evaluation(0, 0, "test")
    outputs = RNG.standard_normal(batch.y.shape)
    scores = task.metrics(task.score(outputs, batch))
    answers, truth = task.encoding.answers(outputs), task.encoding.answers(batch.y)
    assert {tuple(row.round(9)) for row in truth} == {tuple(row.round(9)) for row in y[10:]}
    # two dozen operations, of numbers of the size of 100
    assert abs(scores["mse"] - ((answers - truth) ** 2).mean()) < 1e-10 * scores["mse"]
    assert task.metrics(task.score(batch.y, batch))["r2"] == 1
    assert task.metrics(task.score(np.zeros_like(batch.y), batch))["r2"] == 0


def test_an_encoding_needs_no_data():
    task = Arrays(LIST, LABELS, splits=PARTS_OF)
    facts = json.loads(json.dumps(task.record()))
    assert re.fullmatch("[0-9a-f]{64}", facts.pop("sha256"))
    encoding = Encoding(**facts)
    assert encoding == task.encoding
    seen = {
        int(row): batch.x[: LENGTHS[row], b].tobytes()
        for rows, batch in encoding.batches(LIST)
        for b, row in enumerate(rows)
    }
    trained = {x.tobytes() for x, _ in examples(epoch(task))}
    assert {seen[row] for row in range(8)} == trained
    assert encoding.answers(np.eye(3)).tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("every", [False, True])
def test_predictions_are_those_of_each_sequence_by_itself(every):
    y = [["a", "b"] * 4] * 12 if every else LABELS
    y = [each[:n] for each, n in zip(y, LENGTHS)] if every else y
    task = Arrays(LIST, y, dtype="float64")
    net = RecurrentNet(2, 4, task.outputs, readout=task.readout)
    params = net.init(np.random.default_rng(1), np.float64)
    scores = task.encoding.predict(net, params, padded(LIST, 0.0), LENGTHS)
    for n, x in enumerate(LIST):
        ((_, batch),) = task.encoding.batches([x])
        outputs = net.forward(params, batch.x)[0]
        alone = task.encoding.answers(outputs[:, 0] if every else outputs[0])
        assert np.array_equal(scores[n], alone)


def test_other_data_have_another_digest():
    changed = [x.copy() for x in LIST]
    changed[9][0, 0] += 1
    records = [
        Arrays(LIST, LABELS, splits=PARTS_OF),
        Arrays(changed, LABELS, splits=PARTS_OF),
        Arrays(LIST, LABELS[::-1], splits=PARTS_OF),
        Arrays(LIST, LABELS, splits=PARTS_OF[::-1]),
        Arrays(LIST, LABELS, splits=["train"] * 8 + ["validation"] * 3 + ["test"]),
        *(Arrays(LIST, LABELS, splits=PARTS_OF, weights=[w] + [1] * 11) for w in (1, 2)),
        *(
            Arrays(LIST, [["a"] * (n - 1) + [end if n == 7 else "b"] for n in LENGTHS])
            for end in ("a", "b", "")
        ),
    ]
    assert len({task.record()["sha256"] for task in records}) == len(records)


REFUSED = {
    "x is 3; need an array": (3, LABELS),
    "x has shape (12,); need (N, T)": (np.ones(12), LABELS),
    "sequence 1 has shape (5, 3), and sequence 0 (3, 2)": ([LIST[0], np.ones((5, 3))], "ab"),
    "sequence 1 has no steps": ([LIST[0], np.ones((0, 2))], ["a", "b"]),
    "x has entries of complex128": ([x + 0j for x in LIST], LABELS),
    "y has 3 targets, and x 12 sequences": (LIST, LABELS[:3]),
    "y has 1 class; need two": (LIST, ["a"] * 12),
    "y has infinite targets": (LIST, np.full(12, np.inf)),
    "y is 'aaa'; need an array or a list": (LIST, "aaa"),
    "y has classes of shape (2,) each": (LIST, np.ones((12, 2), int)),
    "y: sequence 1 of 5 steps has": (LIST, [[0] * (n - (n == 5)) for n in LENGTHS]),
    "sequence 0 is None; need an array (T,)": ([None, *LIST[1:]], LABELS),
    "sequence 0 is 'the cat'; need an array (T,) or (T, D), or list(text)": (
        ["the cat"] * 12,
        LABELS,
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused(message):
    with refused(re.escape(message), (TypeError, ValueError)):
        Arrays(*REFUSED[message])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": (0.5, 0.6, 0)}, "need the fractions of train, validation and test"),
        ({"splits": ["test"] * 12}, "no sequence is in train"),
        ({"splits": ["trian"] * 12}, "splits: part 'trian' is unknown"),
        ({"lengths": LENGTHS}, "x is a list, whose arrays have their own lengths"),
        ({"readout": "every"}, "readout is 'every'; need an array of as many targets as steps"),
        ({"targets": "real"}, "y has strings, which are classes"),
        ({"splits": None}, "splits is None; need the fractions"),
        ({"splits": {"train": 0.7, "test": 0.3}}, "need the fractions"),
        ({"weights": [-1] * 12}, "need 12 numbers, none below 0"),
        ({"weights": [0] * 8 + [1] * 4, "splits": PARTS_OF}, "not all 0 in the training part"),
        ({"order": "file"}, "order 'file' is unknown"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with refused(re.escape(message), (TypeError, ValueError)):
        Arrays(LIST, LABELS, **options)
