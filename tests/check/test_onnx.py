"""ONNX for real: its operators with every input and attribute judged, models in and out."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from refnet.check import layers, models, operators, survey
from refnet.check.adapters import onnx_nets
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.interop import onnx_graph, onnx_nodes
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import FileError
from support.arguments import refused
from support.drawn import drawn

pytestmark = pytest.mark.needs("onnx", "onnxruntime", "flint")

CASES = {case.what: case for case in operators.cases(np.float32, (4, 3, 2))}


def test_cells_are_judged():
    rows = list(survey.onnx_rows(((4, 5, 2),)))
    assert len(rows) == 16
    judged = [row for row in rows if row["verdict"] != "refused"]
    assert {row["verdict"] for row in judged} == {EXPLAINED}
    assert {row["framework"] for row in judged} == set(onnx_nets.RUNTIMES)
    assert all(row["note"] for row in rows if row["verdict"] == "refused")


def other_activation(proto, folder):
    proto.graph.node[0].attribute[0].strings[1] = b"Relu"  # of the candidate alone


def kept_elsewhere(proto, folder):
    onnx.save(proto, folder / "model.onnx", save_as_external_data=True, size_threshold=0)
    proto.CopyFrom(onnx.load(folder / "model.onnx", load_external_data=False))
    proto.graph.initializer[0].external_data[0].value = "../weights"


def unknown_operator(proto, folder):
    proto.graph.node.append(onnx.helper.make_node("Conv", ["X", "W"], ["conv"]))


def of_integers(proto, folder):
    proto.graph.initializer[0].data_type = onnx.TensorProto.INT32


def not_finite(proto, folder):
    proto.graph.initializer[1].raw_data = b"\xff" * len(proto.graph.initializer[1].raw_data)


def flat(proto, folder):
    dims = proto.graph.initializer[0].dims
    dims[0:] = [dims[1] * dims[2]]


def another_size(proto, folder):
    proto.graph.node[0].attribute[1].i = 7


@pytest.mark.parametrize(
    "change, message",
    [
        (other_activation, "the activations Sigmoid, Relu, Tanh cannot be judged; need g, f, f"),
        (kept_elsewhere, "keeps W in the file '../weights'; need one beside the model"),
        (unknown_operator, "has the operator Conv; need Add, "),
        (of_integers, "W is of type int32; need float32"),
        (not_finite, "R has entries that are not finite"),
        (flat, "W has shape"),
        (another_size, "with H = 7"),
    ],
)
def test_files_are_refused_in_one_line(tmp_path, change, message):
    proto = onnx_nodes.model(net := RecurrentNet(2, 3, 1, cell="lstm"), drawn(net)[0])
    change(proto, tmp_path)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with refused(f"model.onnx: .*{message}.*; export the model again", FileError):
        onnx_graph.load(tmp_path / "model.onnx")
    (tmp_path / "model.onnx").write_bytes(b"garbage")
    with refused("not a valid ONNX model", FileError):
        list(models.rows(tmp_path / "model.onnx", 2, 2))


def test_a_tensor_of_any_size_is_not_made(tmp_path):
    proto = onnx_nodes.model(net := RecurrentNet(2, 3, 1), drawn(net)[0])
    shape = onnx.numpy_helper.from_array(np.array([10**15]), "shape")
    proto.graph.initializer.append(shape)
    proto.graph.node.append(onnx.helper.make_node("ConstantOfShape", ["shape"], ["huge"]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("huge", 1, ["n"]))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with refused("need at most 67,108,864 entries", FileError):
        list(models.rows(tmp_path / "model.onnx", 3, 2))


def judged(monkeypatch, *names, change=lambda results: results):
    right = onnx_nets.session_run

    def session_run(proto, outputs, feeds, runtime):
        results = change(dict(zip(outputs, right(proto, outputs, feeds, runtime))))
        return [results[name] for name in outputs]

    monkeypatch.setattr(operators, "cases", lambda *_: [CASES[name] for name in names])
    monkeypatch.setattr(onnx_nets, "session_run", session_run)
    return [row for row in layers.onnx_rows() if row["framework"] == "onnxruntime"]


def test_every_input_and_attribute_is_used():
    seen = {
        name
        for case in CASES.values()
        for name in onnx_nodes.to_onnx(case.net, case.params, case.batch)
    }
    assert seen == {"W", "R", "B", "initial_h", "initial_c", "P", "sequence_lens"}
    attributes = {
        a.name
        for case in CASES.values()
        for a in onnx_nets.layer_model(case).graph.node[0].attribute
    }
    assert attributes == {
        "hidden_size",
        "direction",
        "activations",
        "layout",
        "clip",
        "input_forget",
        "linear_before_reset",
        "activation_alpha",
        "activation_beta",
    }


def test_operators_are_judged(monkeypatch):
    rows = judged(
        monkeypatch,
        "RNN, bidirectional, sequence_lens",
        "LSTM, reverse, initial states",
        "LSTM, bidirectional, peepholes",
        "GRU, reverse, sequence_lens",
        "RNN HardSigmoid, forward",
        "RNN LeakyRelu, forward",
    )
    assert {row["verdict"] for row in rows} == {EXPLAINED}, rows


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda results: {**results, "Y": results["Y"][:, ::-1]}, "change places"),
        (lambda results: {**results, "Y_h": results["Y"][-1]}, "right: Y, Y_c"),
        (lambda results: {**results, "Y_c": results["Y_h"]}, "right: Y, Y_h"),
    ],
)
def test_a_wrong_operator_is_rejected_and_located(change, says, monkeypatch):
    (row,) = judged(monkeypatch, "LSTM, bidirectional, sequence_lens", change=change)
    assert row["verdict"] == NOT_ROUNDING
    assert says in "\n".join(row["where"])


@pytest.mark.parametrize(
    "what, says",
    [
        ("GRU, forward, clip", "clip is ignored"),
        ("GRU linear_before_reset=1, reverse", ""),
        ("LSTM input_forget, forward", "the layers are computed as lstm"),
        ("RNN, bidirectional, sequence_lens", "sequence_lens is ignored"),
    ],
)
def test_what_a_runtime_ignores_is_named(what, says, monkeypatch):
    """The evaluator of the onnx package ignores some attributes and inputs without a word."""
    monkeypatch.setattr(operators, "cases", lambda *_: [CASES[what]])
    rows = {row["framework"]: row for row in layers.onnx_rows()}
    assert rows["onnxruntime"]["verdict"] == EXPLAINED
    assert rows["onnx reference"]["convention"] == says


def test_another_direction_is_rejected(monkeypatch):
    """The direction counts: the same weights the other way round are another result."""
    case = CASES["RNN, reverse, sequence_lens"]
    monkeypatch.setitem(CASES, "turned", replace(case, direction="forward"))
    certify_model, wrong = models.certify_model, onnx_nets.layer_model(case)
    monkeypatch.setattr(models, "certify_model", lambda _, *args: certify_model(wrong, *args))
    (row,) = judged(monkeypatch, "turned")
    assert row["verdict"] == NOT_ROUNDING
