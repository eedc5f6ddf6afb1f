"""The judge where numbers end: closed gates, overflow, gradients that can only be zero, programs
that keep something between calls; and names that no more than what they say is true."""

from copy import deepcopy
from dataclasses import replace
from re import match

import numpy as np
import pytest
from scipy.special import expit

from refnet.batch import Batch
from refnet.check import judge
from refnet.check.cases import reference_results
from refnet.check.userfunction import Described
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING, SHOWS_NOTHING, UNJUDGED, judgement
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.drawn import drawn, times
from support.judged import Judged

pytestmark = pytest.mark.needs("flint")


def small(*sizes):
    return Judged(RecurrentNet(2, 3, 4), *sizes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", ["lstm", "cifg", "gru", "gru_before"])
def test_gates_that_are_closed_beyond_the_range_of_exp(cell, dtype):
    """exp(1000) is infinite, and 1 / (1 + exp(1000)) is right: nothing overflows that matters."""
    case = Judged(RecurrentNet(2, 3, 3, cell=cell), dtype=dtype)
    case.params["bh"][:6:2] = -1000
    assert case.changed().passed
    wrong = {"dWhy": case.right["dWhy"] * dtype(1.01)}
    assert case.changed(**wrong).verdict == NOT_ROUNDING


def test_a_function_beyond_the_range_of_exp():
    x = np.array([-800.0, 0.5])
    right = {"value": expit(x).sum(), "dx": expit(x) * expit(-x)}
    verdict = judge(lambda x: expit(x).sum(), right, x)
    assert verdict.verdict == EXPLAINED
    assert not judge(lambda x: expit(x).sum(), {**right, "dx": 2 * right["dx"]}, x).passed


def test_logits_that_differ_by_more_than_the_range_of_exp_from_run_to_run():
    case = Judged(RecurrentNet(2, 16, 5, activation="identity", readout="every"), 40, 4)
    case.params["Whh"] *= 1.5
    assert abs(case.right["outputs"]).max() > 1e5
    verdict = case(case.right, dtype="bfloat16")
    assert verdict.verdict in (EXPLAINED, UNJUDGED) and "shows nothing" in verdict.note


def test_entries_whose_runs_overflow_show_nothing_and_the_others_do():
    true, sigma = np.array([1.0, 2.0]), np.array([np.nan, 1e-3])
    assert judgement("dx", true + [1e9, 0], true, sigma).verdict == EXPLAINED
    assert judgement("dx", true + [1e9, 0], true, sigma).hidden == 0.5
    assert judgement("dx", true + [0, 1], true, sigma).verdict == NOT_ROUNDING
    assert judgement("dx", true + 1, true, sigma * np.inf).verdict == SHOWS_NOTHING
    assert judgement("dx", true + [1e9, 0], true, sigma).overflow == (0,)
    assert judgement("dx", true, true, sigma).overflow is None


def softplus(x):
    return np.log1p(np.exp(x)).sum()


def test_no_number_passes_where_the_reference_itself_overflows():
    """Certified is 1 there; a run in float64 has infinity over infinity."""
    x = np.random.default_rng(0).normal(size=100)
    x[[3, 50]] = 800

    def theirs(x, there=1.0):
        return {"dx": np.where(x > 700, there, 1 / (1 + np.exp(-x)))}

    assert judge(softplus, theirs, x).passed
    verdict = judge(softplus, lambda x: theirs(x, -1e6), x)
    assert verdict.verdict == UNJUDGED and not verdict.passed
    assert verdict.note.startswith("of dx[3] this shows nothing: the reference, computed as it is")
    wrong = {"dx": theirs(x, -1e6)["dx"] * np.where(np.arange(100) == 7, 1.01, 1)}
    assert judge(softplus, wrong, x).verdict == NOT_ROUNDING


def total_exp(x):
    return np.exp(x).sum()


def energy(x):
    return (x * x).sum()


@pytest.mark.parametrize(
    "f, x, theirs, verdict",
    [
        (total_exp, [100.0], (np.inf, [np.inf]), UNJUDGED),
        (total_exp, [1000.0], (np.inf, [np.inf]), UNJUDGED),
        (energy, [1e20, 2], (np.inf, [2e20, 4]), EXPLAINED),
        (energy, [1e20, 2], (np.inf, [2e20, 4.1]), NOT_ROUNDING),
        (energy, [1.0, 2], (np.inf, [2, 4]), NOT_ROUNDING),
        (total_exp, [100.0, 1], (np.inf, [np.inf, np.inf]), NOT_ROUNDING),
    ],
)
def test_an_infinity_shows_nothing_where_the_right_result_has_no_number(f, x, theirs, verdict):
    """Of a function, in the type of its results; elsewhere it is wrong."""
    value, dx = (np.asarray(part, np.float32) for part in theirs)
    outcome = judge(f, {"value": value, "dx": dx}, np.array(x, np.float32))
    assert outcome.verdict == verdict
    assert (SHOWS_NOTHING == outcome.parts[0].verdict) == (x[0] != 1)


def test_a_cotangent_for_a_net_is_refused():
    with pytest.raises(TypeError, match="cotangent would have no effect; give the cotangents as y"):
        small().judge({}, cotangent=np.ones(17))


def test_gradients_that_can_only_be_zero_are_no_pass():
    """One class: the cross-entropy is 0 whatever the net does. One step from no state: dWhh is."""
    case = Judged(FeedforwardNet((3, 4, 4, 1)))
    verdict = case({name: 0 * value for name, value in case.right.items() if name != "outputs"})
    assert verdict.verdict == UNJUDGED and not verdict.passed
    case = small(1)
    verdict = case.changed()
    assert verdict.passed and verdict.note.startswith("of dWhh this shows nothing: zero is right")
    assert case.changed(dWhh=np.full((3, 3), 1e-20, np.float32)).verdict == NOT_ROUNDING


def test_what_a_function_keeps_between_calls():
    case, sums, fresh = small(), {}, []

    def accumulating(params, batch):
        for name, value in reference_results(case.net, params, batch).items():
            sums[name] = sums.get(name, 0) + value
        return dict(sums)

    def without_state(params, batch):
        fresh.append(1)
        return reference_results(case.net, params, batch)

    verdict = case.judge(accumulating)
    assert verdict.verdict == NOT_ROUNDING and "a second call" in verdict.convention
    assert case.judge(without_state).passed and len(fresh) == 4


def test_an_early_name_concerns_what_is_wrong_at_full_size():
    """Its divisor is right for four sequences alone; its mistake is one of long sequences."""
    case = Judged(RecurrentNet(3, 32, 5), 100, 4)
    mean = times(replace(case.net, reduction="sum"), 1 / 4)

    def theirs(params, batch):
        results = mean(params, batch)
        return {**results, "dWhh": results["dWhh"].T if len(batch.x) > 50 else results["dWhh"]}

    assert case.judge(theirs).convention == "dWhh is transposed"


@pytest.mark.parametrize("factor", [2, 0.5, 20, 0.05])
def test_an_early_name_takes_no_factor_for_a_size(factor):
    net = RecurrentNet(2, 40, 5)
    name = f"the loss and every gradient are {factor} times the right ones"
    verdict = judge(net, times(net, factor), *drawn(net, 40, 8))
    assert verdict.convention.startswith(name)


def test_readings_that_are_alike_at_these_sizes_are_all_named():
    case = Judged(RecurrentNet(3, 4, 2, loss="squared_error"), 6, 5)

    def convention(factor, *names):
        return case(times(case.net, factor, *names)(*case.given)).convention

    assert convention(1 / 2) == (
        "perhaps the squared error has a factor 1/2, or the loss is divided by the outputs C, too"
    )
    for factor, name in (
        (2, "C = 2 times"),
        (1 + 3e-6, r"\(1 \+ (3|2.9)e-06\) times"),
        (6, "T = 6 times"),
    ):
        gradients = [name for name in case.right if name[0] == "d"]
        assert match(f"every gradient is {name} the right one", convention(factor, *gradients))
    assert convention(2, "dby") == "dby is doubled"


def test_a_softmax_that_would_overflow_is_named_only_if_it_could_be_the_cause():
    case = small()
    case.params["by"][:] = [120, 100, 90, 110]
    right = case.right
    right["dWhh"][1, 1] = np.nan  # its loss and all else is right
    assert case(right).convention == ""
    everything = {name: value * np.nan for name, value in right.items() if name != "outputs"}
    assert "overflows here" in case(everything).convention


def test_results_beyond_the_range_of_their_type_are_said():
    net = RecurrentNet(1, 2, 2, activation=ACTIVATIONS["identity"])
    params = net.init(np.random.default_rng(0)) | {
        "Whh": np.array([[3, 1], [0, 2]], np.float32),
        "Wxh": np.ones((2, 1), np.float32),
    }
    batch = Batch(np.ones((100, 1, 1), np.float32), np.array([0]))
    with np.errstate(all="ignore"):
        theirs = reference_results(net, params, batch)
    verdict = judge(net, theirs, params, batch)
    assert verdict.convention == "the right result is beyond the range of float32 here"
    assert verdict.verdict == UNJUDGED and "any number would do" in verdict.note
    theirs["dby"] = np.array([1, 2], np.float32)  # a number, but a wrong one
    assert judge(net, theirs, params, batch).verdict == NOT_ROUNDING


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_only_what_overflows_in_the_reference_is_excused():
    """Gates without bounds and large inputs: some entries are beyond the range, others are not."""
    described = Described(cell="lstm", gate="leaky_relu")
    case = Judged(described.net(16))
    case.params, case.batch = described.arrays(case.net, np.float32, 20, 4, 0, at="large")
    right = case.right
    assert np.isfinite(right["dWhy"]).all()
    assert 0 < np.isfinite(right["dx"]).mean() < 1
    assert case.changed().verdict == UNJUDGED
    for name in ("dx", "dWhy"):
        wrong = {name: np.full_like(right[name], np.nan)}
        assert case.changed(**wrong).verdict == NOT_ROUNDING, name


def test_a_smooth_mistake_of_the_size_of_a_coarser_types_rounding_is_not_taken_for_one():
    case = Judged(RecurrentNet(3, 8, 5), 20, 4, np.float64)
    shifted = case.batch._replace(x=case.batch.x + 1e-7)
    said = case(reference_results(case.net, case.params, shifted)).convention
    perhaps = "perhaps part of the computation is"
    assert "part of the computation is" not in said.removeprefix(perhaps)
    assert "computation" not in case.changed(loss=case.right["loss"] * (1 + 1e-7)).convention


@pytest.mark.parametrize(
    "masked, readout, loss",
    [
        (False, "last", "cross_entropy"),
        (True, "every", "cross_entropy"),
        (True, "last", "squared_error"),
        (True, "none", "none"),
    ],
)
def test_what_a_function_keeps_of_its_first_targets_or_lengths(masked, readout, loss):
    """As one does that plans by the shapes alone; a single label is another one, too."""
    described = Described(
        readout=readout, loss=loss, mask=masked, reduction="sum" if loss == "none" else "mean"
    )
    net = described.net(4)
    params, batch = described.arrays(net, np.float32, T=5, B=3 if masked else 1, seed=0)

    def keeping(*names):
        first = {}

        def function(p, b):
            held = first.setdefault(0, deepcopy(b))
            old = {name: getattr(held, name) for name in names}
            return reference_results(net, p, b._replace(**old))

        return function

    assert judge(net, keeping(), params, batch).passed
    for name in ("y", "mask")[: 1 + masked]:
        verdict = judge(net, keeping(name), params, batch)
        assert verdict.verdict == NOT_ROUNDING and "with other targets" in verdict.convention, name


def test_a_function_may_need_labels_and_lengths_as_they_come():
    """Sequences in the order of their lengths, and a class that stands for padding."""
    case = Judged(RecurrentNet(2, 3, 4, readout="every"), 5, 3, mask=[5, 4, 2])
    mask, y = case.batch.mask, case.batch.y
    y[:] = np.where(mask, y % 3 + 1, -100)

    def packed(p, b):
        sorted_by_length = (np.diff(b.mask.sum(axis=0)) <= 0).all()
        fit = sorted_by_length and (b.y[b.mask] > 0).all() and (b.y[~mask] == -100).all()
        return times(case.net, 1 if fit else 0)(p, b)

    assert case.judge(packed).passed


def test_a_function_that_gives_nothing_for_other_inputs_is_judged_by_these():
    case = small()
    for other in (None, {"dx": [[1], [1, 2]]}, {"dx": "none"}):

        def function(p, b):
            return reference_results(case.net, p, b) if (b.x == case.batch.x).all() else other

        assert case.judge(function).passed


@pytest.mark.parametrize("T", [3, 320])
def test_a_function_may_use_its_arrays_again(T):
    """Only what is wrong is said to be: also at sizes at which a name is looked for in short."""
    case, arrays = Judged(RecurrentNet(2, 8, 4), T, 4), {}

    def function(p, b, wrong=1.0):
        results = times(case.net, wrong, "dbh")(p, b)
        for name, value in results.items():
            room = arrays.setdefault(name, np.zeros(4 * T * 32))
            flat = np.asarray(value).ravel()
            room[: flat.size] = flat
            results[name] = room[: flat.size].reshape(np.shape(value))
        return results

    assert case.judge(function, dtype="float32").passed
    verdict = case.judge(lambda p, b: function(p, b, 1.01), dtype="float32")
    assert [part.name for part in verdict.parts if part.verdict == NOT_ROUNDING] == ["dbh"]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"required": (1,)}, "an entry is 1; need a name"),
        ({"required": "dWhh"}, "need a tuple"),
        ({"dtype": type("torch.float32", (), {})()}, "none of float16, float32"),
    ],
)
def test_an_option_of_the_judge_that_is_none(options, says):
    case = small()
    with pytest.raises((TypeError, ValueError), match=says):
        case.judge(case.right, **options)


@pytest.mark.parametrize("batch", [None, (1,), "xy", (1, 2, 3, 4, 5, 6)])
def test_what_is_no_batch(batch):
    with pytest.raises(TypeError, match="judge: the batch is .*need refnet.Batch"):
        judge(RecurrentNet(2, 3, 4), {}, {}, batch)


def test_a_function_of_nothing_has_no_gradient():
    with pytest.raises(ValueError, match="no entries"):
        judge(lambda x: (x * x).sum(), {"dx": np.array([])}, np.array([]))


def test_an_entry_whose_right_value_is_zero_is_not_said_to_show_nothing():
    def f(x):
        return x[0] * x[1] + x[2] / x[2]

    x = np.array([0.5, 0.25, 0.3])
    verdict = judge(f, {"value": f(x), "dx": np.array([0.25, 0.5, 1e-17])}, x)
    assert verdict.passed and not verdict.note


def test_a_function_that_returns_no_dict_is_refused():
    with pytest.raises(TypeError, match="theirs returns tuple; need a dict of arrays by name"):
        judge(np.sum, lambda x: (x.sum(), np.ones(3)), np.ones(3))
