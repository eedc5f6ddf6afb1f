"""The judge in one call: what is kept and what is not, and messages that say what to mend."""

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from traceback import extract_tb

import numpy as np
import pytest

from refnet import Batch, FeedforwardNet, RecurrentNet, transitions
from refnet.check import assert_gradients, calls, judge
from refnet.check.cases import reference_results
from refnet.check.certificates import certificate, sigma_of
from refnet.check.conventions import Readings
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING, SUSPICIOUS
from refnet.nets.stacked import StackedNet
from support.arguments import refused
from support.drawn import chaotic, drawn, times

pytestmark = pytest.mark.needs("flint")

NET = RecurrentNet(2, 4, 3, cell="lstm")
PARAMS, BATCH = drawn(NET, 5, 2)
SCALE = np.float64(2)


def message(*arguments, **options):
    """What a failed assertion says."""
    with pytest.raises(AssertionError) as caught:
        assert_gradients(*arguments, **options)
    return str(caught.value)


def smallest(text):
    """The sizes that a message names, and the quantities that are wrong there."""
    _, shown = text.split("the smallest sizes", 1)
    sizes, *lines = shown.splitlines()
    return sizes.partition("tried: ")[2], [x.split()[0] for x in lines if "not rounding" in x]


def energy(x, w):
    return SCALE * (np.tanh(x @ w) ** 2).sum()


def theirs(x, w):
    h = np.tanh(x @ w)
    da = 2 * SCALE * h * (1 - h * h)
    return {"value": SCALE * (h * h).sum(), "dx": da @ w.T, "dw": x.T @ da}


X, W = np.random.default_rng(2).normal(size=(3, 4)), np.random.default_rng(3).normal(size=(4, 2))


def test_from_arrays_and_from_a_function():
    assert judge(energy, theirs, X, W).passed
    assert judge(energy, theirs(X, W), X, W).passed
    assert judge(NET, times(NET, 1), PARAMS, BATCH).passed


def test_what_a_function_does_to_its_copies_does_not_count():
    def spoiling(x, w):
        results = theirs(x, w)
        x[:], w[:] = 0, 0
        return results

    assert judge(energy, spoiling, X, W).passed and X.all()


def computed():
    return certificate.cache_info().misses, sigma_of.cache_info().misses


def test_certificates_and_sigmas_of_nets_are_computed_once():
    def after(*arguments, **options):
        before = computed()
        judge(*arguments, **options)
        return tuple(b - a for a, b in zip(before, computed()))

    fresh = RecurrentNet(2, 3, 2, transition=transitions.transition("cayley"))
    params = fresh.init(np.random.default_rng(0), dtype=np.float32)
    batch = Batch(np.ones((3, 1, 2), np.float32), np.array([1]))
    results = reference_results(fresh, params, batch)
    del results["loss"]
    assert after(fresh, results, params, batch) == (1, 1)
    assert after(replace(fresh), results, dict(params), Batch(batch.x.copy(), batch.y)) == (0, 0)
    assert after(fresh, results, params, batch, dtype=np.float64) == (0, 1)
    assert after(energy, theirs, X, W) == after(energy, theirs, X, W) == (1, 1)


def test_the_message_of_a_mistake_in_a_function():
    def wrong(x, w):
        results = theirs(x, w)
        results["dw"] = results["dw"].copy()
        results["dw"][2, 1] *= 1.001
        return results

    text = message(energy, wrong, X, W)
    assert text.splitlines()[0] == "gradients in float64 are not rounding"
    for part in (
        r"dw     z = ",
        "worst at [2, 1]: theirs ",
        "certified ",
        "sigma ",
        "value  z = ",
        "up to 6 is rounding",
    ):
        assert part in text, text


def test_the_message_names_a_known_mistake():
    right = reference_results(NET, PARAMS, BATCH)
    turned = right["dWhh"].reshape(4, 4, 4).transpose(0, 2, 1).reshape(16, 4)
    said = message(NET, {**right, "dWhh": turned}, PARAMS, BATCH)
    assert re.search("the mistake that explains it: .*Whh.*transpose", said)


def resized(net, params, batch):
    """The net of these arrays' widths."""
    D = batch.x.shape[-1]
    if isinstance(net, FeedforwardNet):
        return replace(net, widths=(D, *(len(v) for name, v in params.items() if name[0] == "b")))
    matrices = [v for name, v in params.items() if name[:3] == "Whh" and "rev" not in name]
    H = matrices[0].shape[1]
    outputs = len(params["by"]) if "by" in params else 2 * H
    layers = {"layers": len(matrices)} if isinstance(net, StackedNet) else {}
    return replace(net, inputs=D, hidden=H, outputs=outputs, **layers)


@pytest.mark.usefixtures("unnamed")
def test_a_net_is_shrunk_and_where_it_parts_is_said():
    """A leak at the third step: three steps, and one of everything else but the classes."""
    net = RecurrentNet(3, 5, 4, readout="every")
    params, batch = drawn(net, dtype=np.float64)
    batch = batch._replace(mask=np.arange(7)[:, None] < np.array([7, 6, 5]))

    def leaking(params, batch, bug=1.001):
        narrow = resized(net, params, batch)
        x = batch.x.copy()
        x[2:3] *= bug
        results = reference_results(narrow, params, batch._replace(x=x))
        _, tape = narrow.forward(params, x, batch.mask)
        return {**results, "h": tape.cell.h}

    text = message(net, leaking, params, batch)
    assert smallest(text)[0] == "T = 3, B = 1, H = 1, D = 1, C = 2", text
    assert "going forward in time, h parts first at h[3], of 7 steps" in text
    assert "outputs parts first at outputs[2]" in text and "dx parts first at dx[6]" in text
    assert assert_gradients(net, lambda p, b: leaking(p, b, 1), params, batch).passed
    assert "smallest" not in message(net, leaking, params, batch, shrink=False)
    assert "smallest" not in message(net, leaking(params, batch), params, batch)


@pytest.mark.parametrize("size", [2, 3])
def test_at_smaller_sizes_nothing_else_is_wrong(size):
    """A batch size that is built in: at another one its value is wrong."""

    def built_in(x, w):
        h = np.zeros((size, w.shape[1])) + np.tanh(x @ w)
        da = 2 * SCALE * h * (1 - h * h)
        return {
            "value": SCALE * (h * h).sum(),
            "dx": (da @ w.T)[: len(x)],
            "dw": 1.01 * ((np.zeros((size, len(w))) + x).T @ da),
        }

    sizes, wrong = smallest(message(energy, built_in, X[:size], W))
    assert sizes.startswith(f"arguments of shape ({size}, 1), (1, ") and wrong == ["dw"]


@pytest.mark.parametrize("T, B", [(5, 3), (7, 2)])
def test_a_nets_sizes_that_are_built_in_stay(T, B):
    net = RecurrentNet(2, 4, 3)
    params, batch = drawn(net, T, B, np.float64)

    def built_in(p, b):
        results = times(resized(net, p, b), 1.01, "dWhh")(p, b)
        loss, dby = results["loss"] * B / b.x.shape[1], results["dby"] * T / len(b.x)
        return {**results, "loss": loss, "dby": dby}

    sizes = f"T = {T}, B = {B}, H = 1, D = 1, C = 2"
    assert smallest(message(net, built_in, params, batch)) == (sizes, ["dWhh"])


def test_a_function_of_fixed_width_is_shrunk_in_time_alone():
    def fixed(params, batch):
        assert params["Whh"].shape == (16, 4) and batch.x.shape[2] == 2
        return times(NET, 1.01, "dWhh")(params, batch)

    sizes, _ = smallest(message(NET, fixed, PARAMS, BATCH))
    assert sizes == "T = 2, B = 1, H = 4, D = 2, C = 3"


def test_a_function_is_shrunk():
    def wrong(x, w):
        results = theirs(x, w)
        if len(x) > 1:
            results["dw"] = results["dw"] * 1.001
        return results

    assert smallest(message(energy, wrong, X, W))[0] == "arguments of shape (2, 1), (1, 1)"


def test_a_function_with_a_cotangent_is_shrunk_where_the_cotangent_is_whole():
    """Theirs has it from elsewhere, uncut."""

    def rows(x):
        return (x * x).sum(axis=1)

    x, cotangent = np.arange(1.0, 25).reshape(4, 6), np.array([1.0, -2, 3, 4])

    def wrong(x):
        return {"dx": 2.001 * x * cotangent[:, None]}

    text = message(rows, wrong, x, cotangent=cotangent)
    assert smallest(text)[0] == "arguments of shape (4, 1)" and "has shape" not in text


def test_another_shape_at_other_sizes_is_not_the_mistake():
    def wrong(x, w):
        return {
            name: value * 1.001
            for name, value in theirs(
                *(np.resize(value, first.shape) for value, first in zip((x, w), (X, W)))
            ).items()
        }

    assert "smallest" not in message(energy, wrong, X, W)


STACK = {"readout": "none", "loss": "none", "reduction": "sum"}


@pytest.mark.parametrize(
    "net, widths",
    [
        (FeedforwardNet((3, 6, 6, 4)), "B = 1, D = 1, H = 1, C = 2, layers = 1"),
        (FeedforwardNet((3, 2)), "B = 1, D = 1, C = 2"),
        (
            StackedNet(3, 4, 8, "gru", layers=3, bidirectional=True, **STACK),
            "T = 1, B = 1, H = 1, D = 1, layers = 2",
        ),
        (
            RecurrentNet(3, 4, 2, "lstm", loss="squared_error", learn_h0=True),
            "T = 1, B = 1, H = 1, D = 1, C = 1",
        ),
    ],
)
def test_every_net_is_shrunk(net, widths):
    params, batch = drawn(net, 5, dtype=np.float64)

    def wrong(params, batch):
        narrow = resized(net, params, batch)
        if getattr(narrow, "layers", 2) < 2:
            raise ValueError("no less than two layers")
        return times(narrow, 1.01, "dx")(params, batch)

    assert smallest(message(net, wrong, params, batch)) == (widths, ["dx"])


def test_the_frame_of_the_assertion_is_hidden(tmp_path):
    """pytest shows the line of the test, and no plug-in is needed."""
    (tmp_path / "test_mine.py").write_text(
        "import numpy as np\n"
        "from refnet.check import assert_gradients\n"
        "def square(x):\n    return (x * x).sum()\n"
        "def test_it():\n"
        "    assert_gradients(square, lambda x: {'dx': 3 * x}, np.ones(3))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "E       AssertionError: gradients in float64" in done.stdout
    assert "calls.py" not in done.stdout.replace("calls.py:", "", 1), done.stdout
    assert "arguments of shape (1,)" in done.stdout


def test_a_long_case_is_named_at_its_first_steps(monkeypatch):
    monkeypatch.setattr(calls, "LONG", 1000)
    net = RecurrentNet(2, 8, 3, "lstm")
    params, batch = drawn(net, 40, 4)
    program, steps = times(net, 1.5, "dWhh"), []

    def wrong(params, batch):
        steps.append(batch.x.shape[:2])
        return program(params, batch)

    verdict = judge(net, wrong, params, batch)
    assert verdict.convention.endswith(" (at T = 19, B = 3)") and "dWhh" in verdict.convention
    assert steps[:2] == [(40, 4), (19, 3)] and sum(T for T, _ in steps[2:]) < 9
    assert "dWhh" in judge(net, wrong(params, batch), params, batch).convention


def test_suspicious_results_may_be_allowed():
    results = theirs(X, W)
    case = judge(energy, results, X, W)
    sigma = next(part.sigma for part in case.parts if part.name == "value")
    results["value"] = np.float64(results["value"] + 9 * sigma)
    assert judge(energy, results, X, W).verdict == SUSPICIOUS
    assert assert_gradients(energy, results, X, W, allow_suspicious=True).verdict == SUSPICIOUS
    with pytest.raises(AssertionError, match="suspicious"):
        assert_gradients(energy, results, X, W)
    assert assert_gradients(energy, theirs, X, W).verdict == EXPLAINED
    assert judge(energy, {**results, "dx": results["dx"] + 1}, X, W).verdict == NOT_ROUNDING


def test_gradients_that_show_nothing_are_no_pass():
    net, params, batch = chaotic()

    def recurrent(params, batch):
        return {"dWhh": reference_results(net, params, batch)["dWhh"]}

    text = message(net, recurrent, params, batch, required=())
    assert re.search("gradients in float32 cannot be judged(.|\n)*shows", text)


@dataclass
class Power:
    """A callable object that has no hash, as it can be changed."""

    factor: float

    def __call__(self, x):
        return (self.factor * x * x).sum()


def failing(x):
    return {"dx": np.ones(2) @ np.ones(3)}


@pytest.mark.parametrize(
    "f, theirs, names",
    [
        (np.sum, failing, ["failing"]),
        (lambda x: failing(x)["dx"], {"dx": X}, ["<lambda>", "failing"]),
        (np.sum, lambda x: {"dx": np.linalg.inv(x)}, ["<lambda>", "inv", "_assert_stacked_square"]),
    ],
)
def test_what_a_function_raises_has_its_own_frames(f, theirs, names):
    with pytest.raises(ValueError) as caught:
        judge(f, theirs, X)
    _, judges, *frames = extract_tb(caught.tb)
    assert judges.name == "judge" and [frame.name for frame in frames] == names
    assert caught.value.__notes__ == [calls.CALLED]


def test_what_refnet_raises_has_all_frames():
    with pytest.raises(ValueError, match="required: dz") as caught:
        judge(np.sum, failing, X, required=("dz",))
    assert [frame.name for frame in extract_tb(caught.tb)][1:] == ["judge", "serial", "_judged"]
    assert not hasattr(caught.value, "__notes__")


def test_a_callable_object_without_a_hash_is_judged():
    x = np.array([1.0, 2.0])
    power = Power(2.0)
    assert judge(power, {"dx": 4 * x}, x).passed
    assert not judge(Power(3.0), {"dx": 4 * x}, x).passed
    power.factor = 3.0
    assert judge(power, {"dx": 6 * x}, x).passed


def test_a_batch_of_no_sequences_is_said():
    with refused(r"judge: the batch's x has shape \(5, 0, 2\); need at "):
        judge(NET, {}, PARAMS, Batch(BATCH.x[:, :0], BATCH.y[:0]))


@pytest.mark.parametrize(
    "arguments, says",
    [
        ((NET, {}, PARAMS), r"judge\(net, theirs, params, batch\)"),
        ((3, {}), "int is neither a net"),
        (
            (energy, lambda x, w: 3, X, W),
            "theirs returns int; need a dict of arrays by name, such as value",
        ),
    ],
)
def test_refusals(arguments, says):
    with refused(says, TypeError):
        judge(*arguments)


@pytest.mark.parametrize("factor, looked", [(1.5, [19]), (1 + 2e-5, [19, 40])])
def test_what_has_no_name_at_its_first_steps_has_none(monkeypatch, factor, looked):
    """If it shows clearly there; what may hide in rounding there is looked for in all steps."""
    monkeypatch.setattr(calls, "LONG", 1000)
    net = RecurrentNet(2, 8, 3, "lstm")
    params, batch = drawn(net, 40, 4, np.float32)
    steps = []

    def explain(readings, *_, **__):
        steps.append(len(readings.batch.x))
        return ""

    monkeypatch.setattr(Readings, "explain", explain)
    verdict = judge(net, times(net, factor, "dWhh"), params, batch)
    assert verdict.verdict == NOT_ROUNDING and not verdict.convention and steps == looked


def standardized(x):
    return (((x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + 0.1)) ** 3).sum()


@pytest.mark.parametrize("eps, least", [(0.11, 2), (0.0, 1)])
def test_a_function_is_judged_at_no_degenerate_size(eps, least):
    """At one entry the gradient is right, 0, or no number."""

    def theirs(x):
        m, n = x - x.mean(), x.size
        s = np.sqrt((m**2).mean() + eps)
        with np.errstate(all="ignore"):
            z = m / s
        d = 3 * z**2
        return {"value": (z**3).sum(), "dx": (d - d.mean() - z * (d * z).mean()) / s * (n > 0)}

    x = np.random.default_rng(0).normal(size=6)
    said = "\n".join(judge(standardized, theirs, x, shrink=9.0).where)
    assert "nan" not in said and "the smallest sizes" in said and "shape (1,)" not in said


def test_a_function_of_float32_that_returns_float64_is_told_why():
    def f(x, W):
        return np.tanh(x @ W / np.sqrt(3)).sum()

    def theirs(x, W):
        s = np.sqrt(3)  # float64, which NumPy passes on
        d = (1 - np.tanh(x @ W / s) ** 2) / s
        return {"dx": d @ W.T, "dW": x.T @ d}

    rng = np.random.default_rng(0)
    x, W = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 3), (3, 5)))
    verdict = judge(f, theirs, x, W)
    assert "in float32, as the inputs are" in verdict.convention
    assert "dtype='float32'" in verdict.convention
    assert " 1 times" not in "\n".join(verdict.where)
    assert judge(f, theirs, x, W, dtype="float32").passed
    wrong = {name: 1.01 * value for name, value in theirs(x, W).items()}
    assert "float32" not in judge(f, wrong, x, W).convention


def test_a_function_that_changes_its_inputs_is_noted():
    def changes(x):
        d = 2 * x
        x *= 0
        return {"dx": d}

    def f(x):
        return (x * x).sum()

    verdict = judge(f, changes, np.ones(3))
    assert verdict.passed and verdict.note == "the function changes its inputs: argument 0"
    assert not judge(f, lambda x: {"dx": 2 * x}, np.ones(3)).note
    net = RecurrentNet(2, 3, 3)
    params, batch = drawn(net, 4, 2)

    def updates(params, batch):
        results = reference_results(net, params, batch)
        params["Whh"] -= results["dWhh"]
        return results

    assert judge(net, updates, params, batch).note == "the function changes its inputs: Whh"
