"""The memory of a large tape serves another tape only when no array refers to it any more."""

import gc

import numpy as np
import pytest

from refnet.compiled import layout
from refnet.compiled.layout import lend
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.drawn import padded

FLOAT = np.dtype(np.float32)
SHAPE = (70, 16, 64)


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch):
    monkeypatch.setattr(layout, "_POOL", {})
    monkeypatch.setattr(layout, "LENT", 2**18)  # small tapes are lent, too


def test_memory_in_use_is_not_lent_again():
    """The tape of a net, of which only a view is left, has the same bits after other tapes."""
    net = RecurrentNet(2, 64, 3, backend="compiled")
    rng = np.random.default_rng(0)
    params, x = net.init(rng), rng.normal(size=SHAPE[:2] + (2,)).astype(np.float32)
    assert SHAPE[0] * SHAPE[1] * SHAPE[2] * 4 >= layout.LENT
    view = net.forward(params, x)[1].cell.h[5:, 3]
    before = view.copy()
    for _ in range(3):
        net.forward(params, -x)
        gc.collect()
    assert np.array_equal(view, before)


def test_a_planted_early_return_is_rejected(monkeypatch):
    """Memory in the pool while an array has it, or behind that array's back."""

    class Early(layout._Lent):
        def __init__(self, memory, shape):
            super().__init__(memory, shape)
            layout._POOL[next(layout._NUMBERS)] = memory

    monkeypatch.setattr(layout, "_Lent", Early)
    with pytest.raises(AssertionError):
        test_memory_in_use_is_not_lent_again()


def test_free_memory_is_lent_to_arrays_of_like_size():
    first = lend(SHAPE, FLOAT)
    place, second = first.ctypes.data, lend(SHAPE, FLOAT)
    assert not np.shares_memory(first, second) and place % layout.BYTES == 0
    del first
    gc.collect()
    assert lend((3, *SHAPE), FLOAT).ctypes.data != place  # too small
    assert lend(SHAPE, np.dtype(np.float64)).ctypes.data != place
    again = lend((SHAPE[0] - 5, *SHAPE[1:]), FLOAT)
    assert again.ctypes.data == place and again.flags.carray


def test_spare_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(layout, "POOLED", 2 * layout.LENT)
    arrays = [lend((layout.LENT // 4,), FLOAT) for _ in range(5)]
    newest = [array.ctypes.data for array in arrays[-2:]]
    while arrays:
        arrays.pop(0)
    assert [memory.ctypes.data for memory in layout._POOL.values()] == newest


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_what_lent_memory_held_does_not_count(cell, monkeypatch):
    """NaN in every number that a kernel does not write."""
    monkeypatch.setattr(layout, "LENT", 0)
    net = RecurrentNet(2, 5, 3, cell, backend="compiled")
    params, batch = padded(net, 7, 4, np.float32, 0)
    want = loss_and_gradients(net, params, batch)
    lent = []
    monkeypatch.setattr(layout, "aligned", lambda *rest, **k: lent.append(1) or nans(*rest, **k))
    layout._POOL.clear()
    got = loss_and_gradients(net, params, batch)
    assert lent and got.loss == want.loss
    for name, value in want.gradients.items():
        assert np.array_equal(got.gradients[name], value), name


def nans(shape, dtype, clear=True):
    return np.zeros(shape, dtype) if clear else np.full(shape, np.nan, dtype)
