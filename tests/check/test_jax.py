"""JAX for real: scans, functions and the layers of other packages judged, refnet inside it."""

import os
from dataclasses import replace
from importlib import import_module

import jax
import numpy as np
import pytest

from refnet.check import layers, survey
from refnet.check.adapters import jax_nets
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from support.arguments import refused

pytestmark = pytest.mark.needs("jax", "flint")

os.environ.setdefault("KERAS_BACKEND", "jax")  # read when Keras is first imported
FLAX, _, EQUINOX, KERAS, _ = layers.TABLES[1:]


def few(table, *kinds, **options):
    """A part of a table."""
    return replace(table, layers={name: table.layers[name] for name in kinds}, **options)


def needs(*tables):
    return [
        pytest.param(table, marks=pytest.mark.needs(table.package), id=table.framework)
        for table in tables
    ]


def test_scans_are_judged():
    rows = list(survey.jax_rows(((4, 5, 2),)))
    assert {(row["what"], row["dtype"]) for row in rows} == {
        (f"lax.scan {cell}", dtype)
        for cell in ("rnn", "lstm", "gru")
        for dtype in ("float32", "float64")
    }
    assert {row["verdict"] for row in rows} == {EXPLAINED}


def test_jax_computes_on_the_device_that_is_named():
    assert jax_nets.use_device("cpu") == "cpu"
    with refused("JAX cannot use the device abacus: "):
        jax_nets.use_device("abacus")


@pytest.mark.parametrize("table", needs(FLAX, EQUINOX, KERAS))
def test_layers_are_judged(table):
    kinds, variants = {
        "Flax": (("nnx.SimpleCell tanh", "nnx.GRUCell"), ("lengths",)),
        "Equinox": (("nn.LSTMCell",), ("h0",)),
        "Keras": (("GRU reset before",), ("lengths",)),
    }[table.framework]
    part = few(table, *kinds, depths=(2,), variants=variants)
    rows = list(layers.rows(part, (4, 3, 2), (np.float32,)))
    assert len(rows) == len(kinds) * len(variants) * table.directions
    assert {row["verdict"] for row in rows} == {EXPLAINED}


def casting(monkeypatch, kind):
    """Keras takes float64 for this type."""
    types = import_module("keras.src.backend.common.dtypes").BIT64_TO_BIT32_DTYPE
    monkeypatch.setitem(types, "float64", kind)


@pytest.mark.needs("keras")
@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_what_keras_computes_in_float32_is_seen(kind, monkeypatch):
    """The table of types by which Keras casts float64 is the whole cause. A scan over steps whose
    state is tanh(a) itself refuses the change of type."""
    casting(monkeypatch, kind)
    names = ("SimpleRNN tanh", "GRU reset_after")
    part = few(KERAS, *names, depths=(1,), directions=1, variants=("h0",))
    simple, gated = layers.rows(part, (4, 3, 2), (np.float64,))
    if kind == "float64":
        assert simple["verdict"] == gated["verdict"] == EXPLAINED
    else:
        assert simple["verdict"] == "refused" and "carry" in simple["note"]
        assert gated["verdict"] == NOT_ROUNDING


@pytest.mark.needs("keras")
def test_both_directions_of_keras_are_judged_in_float64():
    part = few(KERAS, "SimpleRNN relu", depths=(1,), variants=("h0",))
    rows = layers.rows(part, (4, 3, 2), (np.float64,))
    assert [row["verdict"] for row in rows] == [EXPLAINED] * 2


@pytest.mark.slow
@pytest.mark.parametrize("table", needs(*layers.TABLES[1:]))
def test_the_whole_table_is_judged(table, monkeypatch):
    if table.framework == "Keras":  # which computes in float32, as the test above shows
        casting(monkeypatch, "float64")
    assert {row["verdict"] for row in layers.rows(table)} == {EXPLAINED}


@pytest.mark.needs("keras")
@pytest.mark.usefixtures("unnamed")
def test_a_wrong_layer_is_rejected(monkeypatch):
    """The second direction's states are not turned back."""
    right = jax_nets.LAYERS["Keras"]

    def wrong(net, cells, x, lengths, variant):
        h, ends = right(net, cells, x, lengths, variant)
        H = net.hidden
        return jax.numpy.concatenate([h[..., :H], h[::-1, :, H:]], axis=2), ends

    monkeypatch.setitem(jax_nets.LAYERS, "Keras", wrong)
    part = few(KERAS, "LSTM", depths=(1,), variants=("h0",))
    rows = layers.rows(part, (4, 3, 2), (np.float32,))
    assert [row["verdict"] for row in rows] == [EXPLAINED, NOT_ROUNDING]
