"""Under which names results are taken, what none of them fits, and the parts that are constant."""

import json

import numpy as np
import pytest

from refnet import cli, loss_and_gradients
from refnet.check import judge, vectors
from refnet.check.cases import reference_results
from refnet.check.given import constant
from refnet.check.userfunction import Described, example
from refnet.check.verdict import NOT_ROUNDING, UNJUDGED
from refnet.exact import certify
from refnet.matrices.transitions import TRANSITIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from support.arguments import refused
from support.judged import Judged
from support.vectors import small

pytestmark = pytest.mark.needs("flint")


@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(2, 4, 3, learn_h0=True),
        RecurrentNet(2, 4, 3, cell="gru", clip_step=1e-3),
        StackedNet(2, 4, 3, layers=2),
        FeedforwardNet((3, 4, 4, 3)),
    ],
    ids=str,
)
def test_refnets_own_names_are_taken(net):
    """Of gradients; states and the loss have one name. A count of clipped entries is no result."""
    case = Judged(net, T=5, dtype=np.float64)
    certified, ours = case.certified, loss_and_gradients(net, *case.given)
    theirs = {**ours.gradients, "loss": ours.loss, "outputs": ours.outputs}
    assert ("clipped" in theirs) == bool(getattr(net, "clip_step", None))
    verdict = case(theirs)
    assert verdict.passed and {part.name for part in verdict.parts} == {
        "loss",
        "outputs",
        *(f"d{name}" for name in certified.gradients),
    }
    assert case.judge(theirs).passed
    mixed = {
        "d" + name if n % 2 else name: ours.gradients[name]
        for n, name in enumerate(certified.gradients)
    }
    assert case(mixed).passed
    for name in certified.gradients:
        verdict = case({**theirs, name: theirs[name] * 1.01})
        assert [part.name for part in verdict.parts if part.verdict == NOT_ROUNDING] == [f"d{name}"]
    twice = case({**theirs, "dx": theirs["x"]})
    assert [part.name for part in twice.parts if part.note] == ["x"]


def test_a_functions_arguments_are_taken():
    x = np.array([1.0, 2.0])
    assert judge(lambda x: (x * x).sum(), {"x": 2 * x, "value": 5.0}, x).passed
    assert judge(lambda dx: (dx * dx).sum(), lambda dx: {"dx": 2 * dx}, x).passed


def test_names_of_which_none_fits_are_an_error(tmp_path, capsys):
    case = Judged(RecurrentNet(2, 4, 3), T=5, dtype=np.float64)
    theirs = {f"grad_{name}": value for name, value in case.right.items()}
    for call, given in ((case, theirs), (case.judge, theirs), (case.judge, lambda p, b: theirs)):
        with refused(
            "no name fits: theirs has grad_loss, .*; need names of results, which are loss, "
            "outputs, h, d"
        ):
            call(given)
    assert case({**theirs, "loss": case.right["loss"]}).verdict == NOT_ROUNDING
    file = tmp_path / "mine.py"
    file.write_text(
        example("numpy") + "\n\ndef other(p, x, y):\n"
        "    return {f'grad_{k}': v for k, v in gradients(p, x, y).items()}\n"
    )
    assert cli.main(["check", "function", f"{file}:other", "--sizes", "4,3,2"]) == 2
    assert "no name fits: theirs has grad_" in capsys.readouterr().err


@pytest.mark.parametrize("others", [True, False])
def test_a_file_of_results_of_which_no_name_fits_is_an_error(tmp_path, capsys, others):
    golden, out = tmp_path / "golden", tmp_path / "out"
    out.mkdir()
    cases = list(small("rnn-last", "lstm-last"))
    vectors.write(golden, cases)
    for name, net, params, batch in cases:
        entries = {
            key: {"shape": np.shape(value), "data": np.ravel(value).tolist()}
            for key, value in reference_results(net, params, batch).items()
        }
        if name == "rnn-last" or not others:
            entries = {f"grad_{key}": value for key, value in entries.items()}
        (out / f"{name}.json").write_text(json.dumps({"dtype": "float32", "arrays": entries}))
    assert cli.main(["vectors", "judge", str(golden), str(out)]) == 2
    printed = capsys.readouterr().out
    assert "rnn-last.json: no name fits" in printed
    assert f"{int(others)} of 2 cases are explained" in printed
    assert vectors.judge(golden, out)["rnn-last"].verdict == UNJUDGED


@pytest.mark.parametrize("name", TRANSITIONS)
def test_the_constant_parts_are_those_whose_gradient_is_always_zero(name):
    described = Described(transition=name)
    net = described.net(4)
    params, batch = described.arrays(net, np.float64, 6, 3, 0)
    certified = certify(net, params, batch)
    zero = {f"d{part}" for part, ball in certified.gradients.items() if not ball.value.any()}
    assert zero == {f"d{part}" for part in certified.gradients if constant(f"d{part}")}
    right = reference_results(net, params, batch)
    verdict = judge(net, right, params, batch)
    assert verdict.passed and not verdict.note
    for part in zero:
        verdict = judge(net, {**right, part: right[part] + 1e-3}, params, batch)
        assert verdict.verdict == NOT_ROUNDING and verdict.worst.name == part
        assert verdict.note == (
            "belongs to a part that is constant, so that its gradient is 0; "
            "detach that part (.detach(), jax.lax.stop_gradient)"
        )
