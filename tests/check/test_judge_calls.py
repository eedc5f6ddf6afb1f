"""The judge in one call: what is kept and what is not, and messages that say what to mend."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from refnet import Batch, FeedforwardNet, RecurrentNet, transitions
from refnet.check import assert_gradients, judge
from refnet.check.cases import random_batch, random_params, reference_results
from refnet.check.certificates import certificate, sigma_of
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING, SHOWS_NOTHING, SUSPICIOUS
from refnet.nets.stacked import StackedNet

pytestmark = pytest.mark.needs("flint")

NET = RecurrentNet(2, 4, 3, cell="lstm")
PARAMS = random_params(NET, np.random.default_rng(0), np.float32)
BATCH = random_batch(NET, np.random.default_rng(1), np.float32, 5, 2)
SCALE = np.float64(2)


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
    assert judge(
        NET, lambda params, batch: reference_results(NET, params, batch), PARAMS, BATCH
    ).passed


def test_what_a_function_does_to_its_copies_does_not_count():
    def spoiling(x, w):
        found = theirs(x, w)
        x[:], w[:] = 0, 0
        return found

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
    results = {name: value for name, value in results.items() if name != "loss"}
    assert after(fresh, results, params, batch) == (1, 1)
    assert after(replace(fresh), results, dict(params), Batch(batch.x.copy(), batch.y)) == (0, 0)
    assert after(fresh, results, params, batch, dtype=np.float64) == (0, 1)
    assert after(replace(fresh, reduction="sum"), results, params, batch) == (1, 1)
    assert after(fresh, results, params, batch._replace(x=2 * batch.x)) == (1, 1)
    assert after(energy, theirs, X, W) == after(energy, theirs, X, W) == (1, 1)


def test_the_message_of_a_mistake_in_a_function():
    def wrong(x, w):
        found = theirs(x, w)
        found["dw"] = found["dw"].copy()
        found["dw"][2, 1] *= 1.001
        return found

    with pytest.raises(AssertionError) as caught:
        assert_gradients(energy, wrong, X, W)
    text = str(caught.value)
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
    with pytest.raises(AssertionError, match="the mistake that explains it: .*Whh.*transpose"):
        assert_gradients(
            NET,
            {**right, "dWhh": right["dWhh"].reshape(4, 4, 4).transpose(0, 2, 1).reshape(16, 4)},
            PARAMS,
            BATCH,
        )


def smallest(text):
    return next(line for line in text.splitlines() if line.startswith("the smallest sizes"))


def test_a_net_is_shrunk_and_where_it_parts_is_said():
    """A leak at the third step: three steps, and one of everything else but the classes."""
    net = RecurrentNet(3, 5, 4, readout="every")
    params = random_params(net, np.random.default_rng(0), np.float64)
    batch = random_batch(net, np.random.default_rng(1), np.float64, 7, 3)
    batch = batch._replace(mask=np.arange(7)[:, None] < np.array([7, 6, 5]))

    def leaking(params, batch, bug=1.001):
        own = replace(
            net, inputs=batch.x.shape[2], hidden=len(params["bh"]), outputs=len(params["by"])
        )
        x = batch.x.copy()
        if len(x) > 2:
            x[2] *= bug
        found = reference_results(own, params, batch._replace(x=x))
        _, tape = own.forward(params, x, batch.mask)
        return {**found, "h": tape.cell.h}

    with pytest.raises(AssertionError) as caught:
        assert_gradients(net, leaking, params, batch)
    text = str(caught.value)
    assert smallest(text).endswith("T = 3, B = 1, H = 1, D = 1, C = 2"), text
    assert "going forward in time, h parts first at h[3], of 7 steps" in text
    assert "outputs parts first at outputs[2]" in text and "dx parts first at dx[6]" in text
    assert assert_gradients(net, lambda p, b: leaking(p, b, 1), params, batch).passed
    with pytest.raises(AssertionError) as caught:
        assert_gradients(net, leaking, params, batch, shrink=False)
    assert "smallest" not in str(caught.value)
    with pytest.raises(AssertionError) as caught:
        assert_gradients(net, leaking(params, batch), params, batch)
    assert "smallest" not in str(caught.value)


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

    with pytest.raises(AssertionError) as caught:
        assert_gradients(energy, built_in, X[:size], W)
    shown = str(caught.value).partition("the smallest sizes")[2]
    assert f"arguments of shape ({size}, 1), (1, " in shown
    assert [line.split()[0] for line in shown.splitlines() if "not rounding" in line] == ["dw"]


@pytest.mark.parametrize("T, B", [(5, 3), (7, 2)])
def test_a_nets_sizes_that_are_built_in_stay(T, B):
    net = RecurrentNet(2, 4, 3)
    params = random_params(net, np.random.default_rng(0), np.float64)
    batch = random_batch(net, np.random.default_rng(1), np.float64, T, B)

    def built_in(p, b):
        own = replace(net, inputs=b.x.shape[2], hidden=len(p["bh"]), outputs=len(p["by"]))
        found = reference_results(own, p, b)
        return {
            **found,
            "loss": found["loss"] * B / b.x.shape[1],
            "dby": found["dby"] * T / len(b.x),
            "dWhh": found["dWhh"] * 1.01,
        }

    with pytest.raises(AssertionError) as caught:
        assert_gradients(net, built_in, params, batch)
    text = str(caught.value)
    assert smallest(text).endswith(f"T = {T}, B = {B}, H = 1, D = 1, C = 2"), text
    assert [
        line.split()[0]
        for line in text.partition("the smallest sizes")[2].splitlines()
        if "not rounding" in line
    ] == ["dWhh"]


def test_a_function_of_fixed_width_is_shrunk_in_time_alone():
    right = reference_results(NET, PARAMS, BATCH)

    def fixed(params, batch):
        assert params["Whh"].shape == (16, 4) and batch.x.shape[2] == 2
        found = reference_results(NET, params, batch)
        return {**found, "dWhh": found["dWhh"] * 1.01}

    with pytest.raises(AssertionError) as caught:
        assert_gradients(NET, fixed, PARAMS, BATCH)
    assert smallest(str(caught.value)).endswith("T = 2, B = 1, H = 4, D = 2, C = 3")
    assert right["dWhh"].any()


def test_a_function_is_shrunk():
    def wrong(x, w):
        found = theirs(x, w)
        if len(x) > 1:
            found["dw"] = found["dw"] * 1.001
        return found

    with pytest.raises(AssertionError) as caught:
        assert_gradients(energy, wrong, X, W)
    assert smallest(str(caught.value)).endswith("arguments of shape (2, 1), (1, 1)")


def test_a_function_with_a_cotangent_is_shrunk_where_the_cotangent_is_whole():
    """Theirs has it from elsewhere, uncut."""

    def rows(x):
        return (x * x).sum(axis=1)

    x, cotangent = np.arange(1.0, 25).reshape(4, 6), np.array([1.0, -2, 3, 4])

    def wrong(x):
        return {"dx": 2.001 * x * cotangent[:, None]}

    with pytest.raises(AssertionError) as caught:
        assert_gradients(rows, wrong, x, cotangent=cotangent)
    assert smallest(str(caught.value)).endswith("arguments of shape (4, 1)")
    assert "has shape" not in str(caught.value)


def test_another_shape_at_other_sizes_is_not_the_mistake():
    def wrong(x, w):
        return {
            name: value * 1.001
            for name, value in theirs(
                *(np.resize(one, first.shape) for one, first in zip((x, w), (X, W)))
            ).items()
        }

    with pytest.raises(AssertionError) as caught:
        assert_gradients(energy, wrong, X, W)
    assert "smallest" not in str(caught.value)


@pytest.mark.parametrize(
    "net, widths",
    [
        (FeedforwardNet((3, 6, 6, 4)), "B = 1, D = 1, H = 1, C = 2, layers = 1"),
        (
            StackedNet(
                3,
                4,
                8,
                "gru",
                layers=3,
                bidirectional=True,
                readout="none",
                loss="none",
                reduction="sum",
            ),
            "T = 1, B = 1, H = 1, D = 1, layers = 2",
        ),
        (
            RecurrentNet(3, 4, 2, "lstm", loss="squared_error", learn_h0=True),
            "T = 1, B = 1, H = 1, D = 1, C = 1",
        ),
    ],
)
def test_every_net_is_shrunk(net, widths):
    from refnet.check.certificates import case_of
    from refnet.check.shrink import NetCut, shrunk

    rng = np.random.default_rng(0)
    params = random_params(net, rng, np.float64)
    batch = random_batch(net, rng, np.float64, 5, 3)
    case = case_of(net, (params, batch), None, None)
    cut = NetCut(case)

    def wrong(params, batch):
        if isinstance(net, FeedforwardNet):
            depth = sum(name.startswith("W") for name in params) - 1
            own = cut._narrower(
                {
                    "H": len(params["b1"]),
                    "D": batch.x.shape[1],
                    "layers": depth,
                    "C": len(params[f"b{depth + 1}"]),
                }
            )
        else:
            H = next(value.shape[1] for name, value in params.items() if "Whh" in name)
            layers = len({name for name in params if name.startswith("Whh") and "rev" not in name})
            if isinstance(net, StackedNet) and layers < 2:
                raise ValueError("no less than two layers")
            own = cut._narrower(
                {
                    "H": H,
                    "D": batch.x.shape[2],
                    **({"C": len(params["by"])} if "by" in params else {"layers": layers}),
                }
            )
        found = reference_results(own, params, batch)
        return {**found, "dx": found["dx"] * 1.01}

    verdict = judge(net, wrong(params, batch), params, batch)
    found = shrunk(case, wrong, verdict, {EXPLAINED, SHOWS_NOTHING})
    assert found.sizes == widths and found.verdict.verdict == NOT_ROUNDING


def test_the_frame_of_the_assertion_is_hidden(tmp_path):
    """pytest shows the line of the test, and no plug-in is needed."""
    import subprocess
    import sys

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


def test_a_long_case_is_named_at_its_first_steps(monkeypatch, tmp_path):
    monkeypatch.setenv("REFNET_JUDGE_CACHE", str(tmp_path))  # one certificate for both
    net = RecurrentNet(2, 10, 3, "lstm")
    params = random_params(net, np.random.default_rng(0), np.float32)
    batch = random_batch(net, np.random.default_rng(1), np.float32, 260, 4)
    steps = []

    def wrong(params, batch):
        steps.append(batch.x.shape[:2])
        found = reference_results(net, params, batch)
        return {**found, "dWhh": found["dWhh"] * np.float32(1.5)}

    verdict = judge(net, wrong, params, batch)
    assert verdict.convention.endswith(" (at T = 19, B = 3)") and "dWhh" in verdict.convention
    assert steps == [(260, 4), (19, 3)]
    assert "dWhh" in judge(net, wrong(params, batch), params, batch).convention


def test_the_message_says_what_is_missing_or_misshapen():
    found = theirs(X, W)
    with pytest.raises(AssertionError, match="dw .*: is missing"):
        assert_gradients(energy, {"dx": found["dx"]}, X, W)
    with pytest.raises(AssertionError, match=r"dw .*: has shape \(2, 4\); need \(4, 2\)"):
        assert_gradients(energy, {**found, "dw": found["dw"].T}, X, W)


@pytest.mark.parametrize(
    "dx", [[[1, 2], [3]], "text", np.full((4, 2, 2), "a"), np.ones((4, 2, 2), complex)]
)
def test_the_message_says_what_is_no_array_of_numbers(dx):
    net = RecurrentNet(2, 3, 4)
    rng = np.random.default_rng(0)
    params, batch = random_params(net, rng, np.float32), random_batch(net, rng, np.float32, 4, 2)
    with pytest.raises(AssertionError, match="dx .* holds no array of real numbers"):
        assert_gradients(net, {**reference_results(net, params, batch), "dx": dx}, params, batch)


def test_a_mistake_in_a_linear_net_is_shrunk():
    net = FeedforwardNet((3, 2))
    rng = np.random.default_rng(0)
    params, batch = random_params(net, rng, np.float32), random_batch(net, rng, np.float32, 1, 4)

    def theirs(params, batch):
        found = reference_results(net, params, batch)
        return {**found, "dW1": found["dW1"] * np.float32(1.5)}

    with pytest.raises(AssertionError, match="still shows, of [0-9]+ tried: B = 1, D = [123], C"):
        assert_gradients(net, theirs, params, batch)


def test_suspicious_results_may_be_allowed():
    found = theirs(X, W)
    case = judge(energy, found, X, W)
    sigma = next(part.sigma for part in case.parts if part.name == "value")
    found["value"] = np.float64(found["value"] + 9 * sigma)
    assert judge(energy, found, X, W).verdict == SUSPICIOUS
    assert assert_gradients(energy, found, X, W, allow_suspicious=True).verdict == SUSPICIOUS
    with pytest.raises(AssertionError, match="suspicious"):
        assert_gradients(energy, found, X, W)
    assert assert_gradients(energy, theirs, X, W).verdict == EXPLAINED
    assert judge(energy, {**found, "dx": found["dx"] + 1}, X, W).verdict == NOT_ROUNDING


def test_gradients_that_show_nothing_are_no_pass():
    """A chaotic net, of whose dWhh float32 keeps no digit over 60 steps."""
    net, rng = RecurrentNet(2, 8, 3), np.random.default_rng(0)
    params = net.init(rng) | {"Whh": (1.8 * rng.standard_normal((8, 8))).astype(np.float32)}
    batch = Batch(rng.standard_normal((60, 1, 2)).astype(np.float32), np.array([1]))
    with pytest.raises(AssertionError, match="gradients in float32 cannot be judged(.|\n)*shows"):
        assert_gradients(
            net,
            lambda params, batch: {"dWhh": reference_results(net, params, batch)["dWhh"]},
            params,
            batch,
            required=(),
        )


@dataclass
class Power:
    """A callable object that has no hash, as it can be changed."""

    factor: float

    def __call__(self, x):
        return (self.factor * x * x).sum()


def test_a_callable_object_without_a_hash_is_judged():
    x = np.array([1.0, 2.0])
    power = Power(2.0)
    assert judge(power, {"dx": 4 * x}, x).passed
    assert not judge(Power(3.0), {"dx": 4 * x}, x).passed
    power.factor = 3.0
    assert judge(power, {"dx": 6 * x}, x).passed


def test_a_batch_of_no_sequences_is_said():
    with pytest.raises(ValueError, match=r"judge: the batch's x has shape \(5, 0, 2\); need at "):
        judge(NET, {}, PARAMS, Batch(BATCH.x[:, :0], BATCH.y[:0]))


def test_tensors_that_numpy_does_not_read_are_said():
    torch = pytest.importorskip("torch")
    for dx in (torch.tensor(X, requires_grad=True), torch.tensor(X).bfloat16()):
        with pytest.raises(TypeError, match=r"theirs\['dx'\] is Tensor, .*pass t.detach\(\)"):
            judge(energy, {**theirs(X, W), "dx": dx}, X, W)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ((NET, {}, PARAMS), r"judge\(net, theirs, params, batch\)"),
        ((3, {}), "int is neither a net"),
        (
            (energy, lambda x, w: 3, X, W),
            "theirs is int; need a dict of arrays by name, such as value",
        ),
    ],
)
def test_refusals(arguments, says):
    with pytest.raises(TypeError, match=says):
        judge(*arguments)
