"""What all frameworks have in common: sums of biases, and errors that say whose they are."""

import sys
from operator import methodcaller

import pytest

from refnet.check import layers, survey
from refnet.check.adapters import jax_nets, torch_nets
from refnet.interop import onnx_nodes
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.drawn import drawn

TINY = ((1, 2, 1),)


@pytest.mark.parametrize(
    "extra, use",
    [
        ("torch", torch_nets.results),
        ("jax", jax_nets.results),
        ("onnx", lambda net, params, batch: onnx_nodes.model(net, params)),
    ],
)
def test_missing_extra_is_named(monkeypatch, extra, use):
    monkeypatch.setitem(sys.modules, extra, None)
    net = RecurrentNet(2, 3, 1)
    with refused(rf"refnet\[{extra}\]", ImportError):
        use(net, *drawn(net))


def needs(place, rows, *packages):
    return pytest.param(place, rows, marks=pytest.mark.needs("flint", *packages), id=place)


@pytest.mark.parametrize(
    "place, rows",
    [
        needs("torch_nets.layer_state_dict", methodcaller("torch_rows", TINY), "torch"),
        needs("torch_nets._scored", methodcaller("torch_rows", TINY), "torch"),
        needs("jax_nets._loss", methodcaller("jax_rows", TINY), "jax"),
        needs("jax_nets.layer_weights", lambda _: layers.rows(layers.TABLES[-1]), "jax", "keras"),
        needs("onnx_nets.onnx_package", methodcaller("onnx_rows", TINY), "onnx", "onnxruntime"),
    ],
)
def test_a_fault_of_an_adapter_is_no_refusal(place, rows, monkeypatch):
    """Only what the framework itself says becomes a row."""

    def fault(*_):
        raise KeyError("planted")

    monkeypatch.setattr(f"refnet.check.adapters.{place}", fault)
    with refused("planted", KeyError):
        list(rows(survey))
