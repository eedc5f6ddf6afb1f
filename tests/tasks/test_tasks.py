"""The generated tasks: what PROTOCOLS of the papers say, read back by naive readers."""

from fractions import Fraction
from itertools import islice
from zlib import crc32

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.tasks import make_task
from refnet.tasks.base import evaluation_size, stream
from refnet.training.specs import read_spec
from support.arguments import refused

GENERATED = ("temporal-order", "temporal-order-3bit", "adding", "random-permutation", "copy")
TEXT, CODE = "manchev-spratling", "manchev-spratling-code"
PROTOCOLS = (TEXT, CODE, "manchev-spratling-hs97", "vorontsov", "vorontsov-code", "orhan-pitkow")
STARTS = {
    "temporal-order": (Fraction(1, 10), Fraction(1, 2)),
    "temporal-order-3bit": (Fraction(1, 10), Fraction(3, 10), Fraction(6, 10)),
}
lengths, sizes, seeds = st.integers(10, 130), st.integers(0, 5), st.integers(0, 2**40)


def symbols_of(x):
    """One-hot (T, B, D) as symbols, one position at a time; raises unless it is one-hot."""
    T, B, D = x.shape
    symbols = [[-1] * B for _ in range(T)]
    for t in range(T):
        for b in range(B):
            (hot,) = [d for d in range(D) if x[t, b, d] == 1]
            assert sum(x[t, b, d] == 0 for d in range(D)) == D - 1
            symbols[t][b] = hot
    return symbols


def same_bits(first, second):
    return first.x.tobytes() == second.x.tobytes() and first.y.tobytes() == second.y.tobytes()


def read_temporal_order(x, starts):
    """The classes, and where the symbols were found; raises on a sequence against the rules."""
    T, B, _ = x.shape
    q, symbols, classes = T // 10, symbols_of(x), []
    for b in range(B):
        places = [t for t in range(T) if symbols[t][b] in (0, 1)]
        assert len(places) == len(starts)
        for t, start in zip(places, starts):
            assert int(start * T) <= t < int(start * T) + q
        classes.append(sum(symbols[t][b] * 2**k for k, t in enumerate(places)))
    return classes


def read_adding(x, protocol):
    """The targets; raises on a sequence against the rules of the protocol."""
    T, B, _ = x.shape
    value, marker = (0, 1) if protocol.startswith("vorontsov") else (1, 0)
    classic = protocol.startswith("manchev")
    first = (0, T // 10) if classic else (0, T // 2)
    second = (T // 10, T // 10 + 4 * T // 10) if classic else (T // 2, T)
    targets = []
    for b in range(B):
        marked = [t for t in range(T) if x[t, b, marker] == 1]
        assert sum(x[t, b, marker] == 0 for t in range(T)) == T - 2
        assert first[0] <= marked[0] < first[1] and second[0] <= marked[1] < second[1]
        assert all(0 <= x[t, b, value] < 1 for t in range(T))
        total = sum(Fraction(float(x[t, b, value])) for t in marked)
        targets.append([float(total / 2 if protocol.endswith(("code", "hs97")) else total)])
    return targets


def read_copy(x, encoding, length):
    """The targets; raises on a sequence against the rules."""
    T, B = x.shape[:2]
    assert T == length + 20
    delimiter = -1 if encoding == "scalar" else 9
    symbols = x[:, :, 0].tolist() if encoding == "scalar" else symbols_of(x)
    targets = [[0] * B for _ in range(T)]
    for b in range(B):
        column = [symbols[t][b] for t in range(T)]
        assert all(1 <= s <= 8 for s in column[:10])
        assert column[10:] == [0] * (length - 1) + [delimiter] + [0] * 10
        for k in range(10):
            targets[T - 10 + k][b] = column[k]
    return targets


@given(st.sampled_from(sorted(STARTS)), lengths, sizes, seeds)
def test_temporal_order_reads_back(name, length, size, seed):
    batch = make_task(name, length=length).batch(3, size, seed)
    assert read_temporal_order(batch.x, STARTS[name]) == batch.y.tolist()
    assert batch.x.shape == (length, size, 6) and batch.y.dtype == np.int64


@given(st.integers(2, 60), sizes, seeds)
def test_random_permutation_reads_back(length, size, seed):
    batch = make_task("random-permutation", length=length).batch(0, size, seed)
    symbols = symbols_of(batch.x)
    assert symbols[0] == batch.y.tolist() and set(symbols[0]) <= {0, 1}
    assert all(2 <= s < 100 for row in symbols[1:] for s in row)


@given(st.sampled_from(PROTOCOLS), lengths, sizes, seeds, st.sampled_from(["float32", "float64"]))
def test_adding_reads_back(protocol, length, size, seed, dtype):
    batch = make_task("adding", length=length, protocol=protocol, dtype=dtype).batch(1, size, seed)
    targets = np.array(read_adding(batch.x, protocol)).reshape(size, 1)
    assert (batch.y == targets.astype(dtype)).all()
    assert batch.x.dtype == batch.y.dtype == dtype


@given(st.sampled_from(["scalar", "one-hot"]), st.integers(1, 50), sizes, seeds)
def test_copy_reads_back(encoding, length, size, seed):
    task = make_task("copy", length=length, encoding=encoding)
    batch = task.batch(0, size, seed)
    assert read_copy(batch.x, encoding, length) == batch.y.tolist()
    assert batch.x.shape[2] == task.inputs == (1 if encoding == "scalar" else 10)


@pytest.mark.parametrize("shift", [-1, 1])
def test_readers_reject_planted_bugs(shift):
    """A sequence moved by a step, swapped channels, bits weighed backwards."""
    for name, starts in STARTS.items():
        batch = make_task(name, length=30).batch(0, 200, 0)
        with pytest.raises(AssertionError):
            read_temporal_order(np.roll(batch.x, shift, axis=0), starts)
        backwards = [int(f"{y:0{len(starts)}b}"[::-1], 2) for y in batch.y]
        assert read_temporal_order(batch.x, starts) != backwards
    for protocol in PROTOCOLS:
        batch = make_task("adding", length=30, protocol=protocol).batch(0, 200, 0)
        with pytest.raises(AssertionError):
            read_adding(np.roll(batch.x, shift, axis=0), protocol)
        with pytest.raises(AssertionError):
            read_adding(batch.x[..., ::-1], protocol)
    batch = make_task("copy", length=30).batch(0, 20, 0)
    with pytest.raises(AssertionError):
        read_copy(np.roll(batch.x, shift, axis=0), "one-hot", 30)


def test_every_position_and_symbol_comes_up_equally_often():
    """Counts of N draws over k places stay within 6 sigma of N / k, sigma^2 = N / k."""

    def uniform(counts, places):
        assert len(counts) == places
        expected = sum(counts.values()) / places
        assert all(abs(n - expected) < 6 * expected**0.5 for n in counts.values()), counts

    def tally(values):
        return dict(zip(*np.unique(values, return_counts=True)))

    N = 20_000
    for name, starts in STARTS.items():
        batch = make_task(name, length=50).batch(0, N, 1)
        symbols = batch.x.argmax(axis=2)
        uniform(tally(batch.y), 2 ** len(starts))
        uniform(tally(symbols[symbols > 1]), 4)
        hits = np.nonzero(symbols < 2)[0]
        uniform(tally(hits), 5 * len(starts))
    for protocol in PROTOCOLS:
        batch = make_task("adding", length=20, protocol=protocol).batch(0, N, 1)
        marker = 1 if protocol.startswith("vorontsov") else 0
        first, second = np.nonzero(batch.x[..., marker].T)[1].reshape(N, 2).T
        uniform(tally(first), 2 if protocol.startswith("manchev") else 10)
        uniform(tally(second), 8 if protocol.startswith("manchev") else 10)
        uniform(tally((batch.x[..., 1 - marker] * 10).astype(int)), 10)
    symbols = make_task("random-permutation", length=5).batch(0, N, 1).x.argmax(axis=2)
    uniform(tally(symbols[0]), 2)
    uniform(tally(symbols[1:]), 98)
    uniform(tally(make_task("copy", length=1).batch(0, N, 1).y[-10:]), 8)


@pytest.mark.parametrize("name", GENERATED)
def test_same_seed_same_bits_other_index_other_batch(name):
    task, again = make_task(name), make_task(name)
    first, second = task.batch(7, 20, 5), again.batch(7, 20, 5)
    assert same_bits(first, second) and same_bits(first, next(again.batches(20, 5, start=7)))
    assert first.x.flags.c_contiguous and first.mask is None
    others = [task.batch(8, 20, 5), task.batch(7, 20, 6), task.batch(0, 20, 5)]
    assert all(first.x.tobytes() != other.x.tobytes() for other in others)
    wide = make_task(name, dtype="float64").batch(7, 20, 5)
    assert (wide.x == first.x).all() and wide.x.dtype == np.float64


def test_evaluations_share_nothing_with_training_or_each_other():
    """Random sequences of 60 symbols out of 98 never repeat by chance (98^-59)."""
    task = make_task("random-permutation", samples=500)
    seen = [batch.x[1:].argmax(axis=2).T for batch in islice(task.batches(20, seed=0), 100)]
    for index in range(4):
        seen += [batch.x[1:].argmax(axis=2).T for batch in task.evaluation(index, seed=0)]
    rows = np.concatenate(seen)
    assert len(rows) == 4000 == len({row.tobytes() for row in rows})


def test_streams_of_neighbouring_numbers_differ():
    """Zeros and carries in seed and key must not make two streams one."""
    zeros, fives = [(0,), (0, 0), (0, 0, 0)], [(5, 0), (5, 0, 1), (5, 1, 0), (5, 1)]
    keys = [*zeros, *fives, (5 + 2**32, 0), (5 + 2**33, 0, 1), (2**32, 5)]
    assert len({stream(*key).random() for key in keys}) == len(keys)


@pytest.mark.parametrize("name", GENERATED)
def test_an_evaluation_is_ten_thousand_sequences_in_bounded_batches(name):
    task = make_task(name)
    sizes = [batch.x.shape[1] for batch in make_task(name).evaluation(0, seed=0)]
    assert sum(sizes) == 10_000 and max(sizes) == evaluation_size(task.steps) <= 1000
    assert [evaluation_size(T) for T in (0, 60, 784, 20_000, 10**6)] == [1000, 666, 128, 10, 1]


CHECKSUMS = dict(zip(GENERATED, (1333609515, 1092136160, 2543742327, 155324943, 4027144626)))
SHORTEST = dict(zip(GENERATED, (10, 10, 10, 2, 1)))


@pytest.mark.parametrize("name", GENERATED)
def test_the_data_of_a_seed_are_the_same_on_every_machine(name):
    """A change here means that no earlier run can be repeated: say so in the release notes."""
    x, y, *_ = make_task(name).batch(3, 20, 1)
    assert crc32(y.astype("<f4").tobytes(), crc32(x.astype("<f4").tobytes())) == CHECKSUMS[name]


@pytest.mark.parametrize(
    "name, given, message",
    [
        ("order", {}, "task 'order' is unknown; choose one of temporal-order"),
        (
            "copy",
            {"lenght": 3},
            "copy has no option 'lenght'; its options are length, samples, dtype",
        ),
        ("copy", {"length": 20.0}, "task copy: length is 20.0; need int, such as 200"),
        ("adding", {"protocol": "book"}, "protocol 'book' is unknown; choose one of manchev"),
        ("adding", {"dtype": "int32"}, "dtype 'int32' is unknown; choose one of float32, float64"),
        ("copy", {"samples": 0}, "samples is 0; need at least 1"),
        *(
            (name, {"length": least - 1}, f"{name}: length is {least - 1}; need at least {least}: ")
            for name, least in SHORTEST.items()
        ),
    ],
)
def test_a_task_that_cannot_be_is_refused(name, given, message):
    with refused(message):
        make_task(name, **given)


@pytest.mark.parametrize("name", GENERATED)
def test_the_shortest_length_and_the_splits(name):
    task = make_task(name, length=SHORTEST[name])
    assert task.batch(0, 2, 0).x.shape[1] == 2
    with refused(f"{name}: split 'validation' is unknown; choose one of test"):
        next(task.evaluation(0, 0, "validation"))


def test_options_as_the_command_line_has_them():
    for protocol, halved in (("vorontsov", False), (CODE, True)):
        name, chosen = read_spec("task", f"adding:protocol={protocol}")
        assert make_task(name, length=20, **chosen).halved == halved
    name, chosen = read_spec("task", "copy:encoding=scalar,samples=50")
    assert make_task(name, **chosen).inputs == 1


@pytest.mark.parametrize(
    "index, size, seed, says",
    [
        (0, -3, 0, "size is -3; need at least 0"),
        (-1, 2, 0, "index is -1"),
        (0, 2, -1, "seed is -1"),
        (0, 2.5, 0, "size is 2.5; need a whole number"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(index, size, seed, says):
    with refused(f"batch: {says}", (ValueError, TypeError)):
        make_task("copy", length=10).batch(index, size, seed)
