"""Flax, Equinox and Keras on JAX before the judge."""

import os
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from refnet.check import layers
from refnet.check.adapters import jax_nets

pytestmark = pytest.mark.needs("jax", "flint")

os.environ.setdefault("KERAS_BACKEND", "jax")  # read when Keras is first imported


def installed(package):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


FLAX, CELL, EQUINOX, KERAS, BACKWARDS = layers.TABLES[1:]


@pytest.mark.parametrize(
    "table, kinds, variants",
    [
        (FLAX, ("nnx.SimpleCell tanh", "nnx.GRUCell"), ("", "lengths")),
        (EQUINOX, ("nn.LSTMCell",), ("h0",)),
        (KERAS, ("GRU reset_after", "GRU reset before"), ("lengths",)),
    ],
    ids=["Flax", "Equinox", "Keras"],
)
def test_layers_are_judged(table, kinds, variants):
    installed(table.package)
    few = replace(
        table, depths=(2,), variants=variants, layers={name: table.layers[name] for name in kinds}
    )
    rows = list(layers.rows(few, (4, 3, 2), (np.float32,)))
    assert len(rows) == len(kinds) * len(variants) * table.directions
    assert {row["verdict"] for row in rows} == {"explained by rounding"}


@pytest.mark.parametrize("mended", [False, True])
def test_what_keras_computes_in_float32_is_seen(mended, monkeypatch):
    """The table of types by which Keras casts float64 is the whole cause. A scan over steps whose
    state is tanh(a) itself refuses the change of type."""
    installed("keras")
    types = pytest.importorskip("keras.src.backend.common.dtypes").BIT64_TO_BIT32_DTYPE
    monkeypatch.setitem(types, "float64", "float64" if mended else "float32")
    few = replace(
        KERAS,
        depths=(1,),
        directions=1,
        variants=("h0",),
        layers={name: KERAS.layers[name] for name in ("SimpleRNN tanh", "LSTM", "GRU reset_after")},
    )
    simple, *gated = layers.rows(few, (4, 3, 2), (np.float64,))
    if mended:
        assert {row["verdict"] for row in (simple, *gated)} == {"explained by rounding"}
    else:
        assert simple["verdict"] == "refused" and "carry" in simple["note"]
        assert {row["verdict"] for row in gated} == {"not rounding"}


def test_both_directions_of_keras_are_judged_in_float64():
    installed("keras")
    few = replace(
        KERAS,
        depths=(1,),
        variants=("h0",),
        layers={"SimpleRNN relu": KERAS.layers["SimpleRNN relu"]},
    )
    rows = list(layers.rows(few, (4, 3, 2), (np.float64,)))
    assert [row["verdict"] for row in rows] == ["explained by rounding"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("table", layers.TABLES[1:], ids=lambda table: table.framework)
def test_the_whole_table_is_judged(table, monkeypatch):
    installed(table.package)
    if table.framework == "Keras":  # which computes in float32, as the test above shows
        types = pytest.importorskip("keras.src.backend.common.dtypes").BIT64_TO_BIT32_DTYPE
        monkeypatch.setitem(types, "float64", "float64")
    assert {row["verdict"] for row in layers.rows(table)} == {"explained by rounding"}


def test_a_wrong_layer_is_rejected(monkeypatch):
    """The second direction's states are not turned back."""
    installed("keras")
    right = jax_nets.LAYERS["Keras"]

    def wrong(net, cells, x, lengths, variant):
        h, ends = right(net, cells, x, lengths, variant)
        H = net.hidden
        return jax_nets._jax().numpy.concatenate([h[..., :H], h[::-1, :, H:]], axis=2), ends

    monkeypatch.setitem(jax_nets.LAYERS, "Keras", wrong)
    few = replace(KERAS, depths=(1,), variants=("h0",), layers={"LSTM": {"cell": "lstm"}})
    one, both = layers.rows(few, (4, 3, 2), (np.float32,))
    assert one["verdict"] == "explained by rounding" and both["verdict"] == "not rounding"
