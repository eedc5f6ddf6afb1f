"""MNIST: small synthetic files in its format always, the real ones where they are."""

import struct
from collections import Counter
from hashlib import sha256
from itertools import islice
from zlib import crc32

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.tasks import make_task, mnist
from support.arguments import refused
from support.realdata import real_data

NAMES = ("mnist", "sequential-mnist", "permuted-mnist")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """23 training and 9 test images in MNIST's format, under MNIST's names."""
    rng = np.random.default_rng(0)
    arrays = {}
    for prefix, count in (("train", 23), ("t10k", 9)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        images[:, 0, :3] = 0, 7, 255  # pixels that never change
        arrays[f"{prefix}-images-idx3-ubyte"] = images
        arrays[f"{prefix}-labels-idx1-ubyte"] = rng.integers(0, 10, count, dtype=np.uint8)
    table = {}
    (tmp_path / "mnist").mkdir()
    for name, array in arrays.items():
        header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
        (tmp_path / "mnist" / name).write_bytes(header + array.tobytes())
        table[name] = array.shape, sha256(header + array.tobytes()).hexdigest()
    monkeypatch.setattr(mnist, "FILES", table)
    monkeypatch.setattr(mnist, "MIRRORS", ())
    monkeypatch.setenv("REFNET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    images, labels = (
        {
            "train": arrays[f"train-{part}"].reshape(23, *shape),
            "test": arrays[f"t10k-{part}"].reshape(9, *shape),
        }
        for part, shape in (("images-idx3-ubyte", (784,)), ("labels-idx1-ubyte", ()))
    )
    return images, labels


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setenv("REFNET_DATA", str(real_data("mnist")))


def flat(task, x):
    """A batch's x as (B, 784), pixels row by row, undoing the sequence and the permutation."""
    if task.name == "mnist":
        return x
    assert x.shape[0] == 784 and x.shape[2] == 1
    shown = x[:, :, 0].T
    if task.name == "sequential-mnist":
        return shown
    restored = np.empty_like(shown)
    for step, pixel in enumerate(mnist.permutation(task.permutation)):
        restored[:, pixel] = shown[:, step]
    return restored


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_read_back(small, name, dtype):
    images, labels = small
    task = make_task(name, dtype=dtype)
    for index in (0, 1, 7):
        x, y, mask = task.batch(index, 5, 3)[:3]
        rows = mnist.examples(23, index, 5, 3)
        assert (flat(task, x) == images["train"][rows].astype(dtype) / 255).all()
        assert (y == labels["train"][rows]).all() and y.dtype == np.int64 and mask is None
        assert x.dtype == dtype and x.flags.c_contiguous
    assert x.shape[-1] == task.inputs and task.readout == ("none" if name == "mnist" else "last")
    assert task.batch(0, 0, 0).y.shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_is_the_whole_split_in_order(small, name):
    images, labels = small
    task = make_task(name)
    for index in (0, 5):
        batches = list(task.evaluation(index, seed=index))
        assert (np.concatenate([b.y for b in batches]) == labels["test"]).all()
        assert (
            np.concatenate([flat(task, b.x) for b in batches])
            == images["test"].astype("float32") / 255
        ).all()
    with refused(f"{name}: split 'validation' is unknown; choose one of test"):
        next(task.evaluation(0, 0, "validation"))


def test_validation_is_held_out(small):
    images, labels = small
    task = make_task("mnist", validation=6)
    assert task.splits == ("validation", "test")
    (held,) = task.evaluation(0, 0, "validation")
    assert (held.y == labels["train"][17:]).all()
    assert (held.x == images["train"][17:].astype("float32") / 255).all()
    (raw,) = make_task("mnist", validation=6, scaling="bytes").evaluation(0, 0, "validation")
    assert (raw.x == images["train"][17:]).all()
    trained = np.concatenate([b.x for b in islice(task.batches(17, 0), 3)])
    counts = Counter(row.tobytes() for row in trained)
    assert set(counts.values()) == {3} and len(counts) == 17
    assert not counts.keys() & {row.tobytes() for row in held.x}
    assert not task.solved({"accuracy": 1.0, "errors": 0})


@pytest.mark.parametrize("scaling", ["standard", "code"])
@pytest.mark.parametrize("name", NAMES)
def test_standardised_pixels(small, name, scaling):
    """Against the textbook's two passes in float64; the tolerance is a few roundings of
    numbers below 5 (four standard deviations and some)."""
    images, _ = small
    task = make_task(name, scaling=scaling, validation=5, dtype="float64")
    source = {"validation": images["train"][18:], "test": images["test"]}
    for split, pixels in source.items():
        basis = (pixels if scaling == "code" else images["train"][:18]).astype(float)
        mean = basis.sum(axis=0) / len(basis)
        spread = (((basis - mean) ** 2).sum(axis=0) / len(basis)) ** 0.5
        (batch,) = task.evaluation(0, 0, split)
        x = flat(task, batch.x)
        moving = spread > 1e-9
        expected = (pixels - mean)[:, moving] / spread[moving]
        assert abs(x[:, moving] - expected).max() < 32 * 5 * np.finfo(float).eps
        assert abs(x[:, ~moving]).max() < 32 * 255 * np.finfo(float).eps
        assert (~moving).sum() >= 3


@pytest.mark.parametrize(
    "name, options, message",
    [
        (
            "mnist",
            {"scaling": "zscore"},
            "scaling 'zscore' is unknown; choose one of unit, standard",
        ),
        ("mnist", {"dtype": "half"}, "dtype 'half' is unknown; choose one of float32, float64"),
        ("mnist", {"validation": -1}, "validation is -1; need 0 to 22 of the "),
        ("mnist", {"validation": 23}, "validation is 23; need 0 to 22 of the "),
        *(
            (name, {"order": "mixed"}, "order 'mixed' is unknown; choose one of sh")
            for name in NAMES
        ),
    ],
)
def test_options_are_checked(small, name, options, message):
    with refused(f"{name}: {message}"):
        make_task(name, **options)


def test_a_missing_file_is_known_at_once(small, tmp_path):
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with refused(
        "t10k-labels-idx1-ubyte is not in .*Get MNIST's four IDX files", FileNotFoundError
    ):
        make_task("mnist")


def test_a_damaged_file_is_known_at_once(small, tmp_path):
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x0b")
    with refused("t10k-labels-idx1-ubyte: sha256 of the unpacked bytes"):
        make_task("mnist")


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**33), st.integers(1, 4))
def test_every_epoch_has_every_example_once(count, size, seed, epochs):
    batches = -(-count * epochs // size)
    rows = np.concatenate([mnist.examples(count, i, size, seed) for i in range(batches)])
    for epoch in range(epochs):
        assert sorted(rows[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_epochs_and_seeds_have_their_own_order():
    first = mnist.order(1000, 0, 0)
    for seed, epoch in ((0, 1), (1, 0), (0, 2**32), (2**32, 0)):
        assert (mnist.order(1000, seed, epoch) != first).any()
    with refused("read-only"):
        first[0] = 1
    assert mnist.examples(1000, 10**9, 3, 0).shape == (3,)


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**33), st.integers(0, 50))
def test_as_they_lie_in_the_file_and_drawn_anew(count, size, seed, index):
    lying = mnist.examples(count, index, size, seed, "file").tolist()
    assert lying == [number % count for number in range(index * size, (index + 1) * size)]
    rows = mnist.examples(count, index, size, seed, "drawn")
    assert rows.shape == (size,) and {*rows.tolist()} <= {*range(count)}
    assert len({*rows.tolist()}) == min(size, count)


def test_every_example_is_drawn_as_often():
    """Of ten examples four a batch: each in .4 of 1,000 batches, within five deviations."""
    rows = [mnist.examples(10, index, 4, 0, "drawn") for index in range(1000)]
    shares = np.bincount(np.concatenate(rows), minlength=10) / 1000
    assert (abs(shares - 0.4) < 5 * (0.4 * 0.6 / 1000) ** 0.5).all()
    assert len({tuple(row) for row in rows}) > 800  # of 5,040


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_examples(small, name):
    _, labels = small
    for order in mnist.ORDERS:
        task = make_task(name, order=order)
        for index in (0, 4, 5):
            rows = mnist.examples(23, index, 5, 3, order)
            assert (task.batch(index, 5, 3).y == labels["train"][rows]).all()


def test_named_permutations():
    default = mnist.permutation("randomstate-0")
    assert sorted(default) == list(range(784))
    assert (mnist.permutation("randomstate-1") != default).any()
    # the legacy generator is frozen: this number holds for every version of NumPy
    assert crc32(default.astype("<i8").tobytes()) == 2213757313
    wrong_numbers = ("", "-", "--1", "-x", f"-{2**32}")
    for wrong in ("0", *(f"randomstate{number}" for number in wrong_numbers)):
        with refused(f"permutation '{wrong}' is unknown"):
            mnist.permutation(wrong)


def test_undoing_tells_a_permutation_from_its_inverse(small):
    """A planted bug: showing step t where pixel t should be shown."""
    task = make_task("permuted-mnist")
    x = make_task("sequential-mnist").batch(0, 5, 0).x
    assert (flat(task, x[task.pixels]) == x[:, :, 0].T).all()
    assert (flat(task, x[np.argsort(task.pixels)]) != x[:, :, 0].T).any()


def test_the_permutation_is_the_tasks_own(small):
    first, second = (
        make_task("permuted-mnist"),
        make_task("permuted-mnist", permutation="randomstate-92916"),
    )
    a, b = first.batch(0, 5, 0).x, second.batch(0, 5, 0).x
    assert (a != b).any() and (flat(first, a) == flat(second, b)).all()


def test_real_files_are_mnist(real):
    """Known of it: the digits' counts, the mean and spread of its pixels."""
    labels = mnist.read("train-labels-idx1-ubyte")
    counts = "5923 6742 5958 6131 5842 5421 5918 6265 5851 5949"
    assert " ".join(map(str, np.bincount(labels))) == counts
    pixels = mnist.read("train-images-idx3-ubyte") / np.float64(255)
    assert round(pixels.mean(), 4) == 0.1307 and round(pixels.std(), 4) == 0.3081


def test_real_standardised_training_images(real):
    """The whole set has mean 0 and variance 1 (or 0) in each pixel. In float32 each entry is
    off by eps times at most 255, the largest when N - 1 pixels agree, and the mean by no more."""
    task = make_task("mnist", scaling="standard")
    x = np.concatenate([b.x for b in islice(task.batches(10_000, 0), 6)]).astype(np.float64)
    assert x.shape == (60_000, 784)
    assert abs(x.mean(axis=0)).max() < 255 * np.finfo(np.float32).eps
    variance = x.var(axis=0)
    assert (variance == 0).sum() == 67 and abs(variance[variance > 0] - 1).max() < 1e-4
