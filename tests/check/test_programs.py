"""Programs of elementary lines: as the reference, edited, and named."""

from functools import partial

import numpy as np
import pytest

from refnet.check import compare, judge
from refnet.check.cases import random_batch, random_params, reference_results
from refnet.check.conventions import Readings
from refnet.check.mistakes.base import mistake
from refnet.check.mistakes.formulas import counted
from refnet.check.naive.nets import Recurrent
from refnet.check.noise import spread
from refnet.check.programs.candidates import approximated, backward_edits, forward_edits
from refnet.check.programs.cells import Factor, Line, Term
from refnet.check.programs.edit import Candidate, Edit
from refnet.check.programs.functions import FUNCTIONS, WITH_A_CONSTANT, function
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.least_squares import improved
from refnet.check.programs.notation import formula
from refnet.check.programs.passes import run
from refnet.check.programs.program import Program
from refnet.check.programs.runs import Runs
from refnet.exact import certify
from refnet.matrices.transitions import transition
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.drawn import drawn

ROUGH = ("hard", "at most", "relu", "rounded", "absolute", "inverted", "by unit", "all rows")
CELLS = ("rnn", "lstm", "gru", "gru_before")


def test_a_formula_is_read_as_it_is_written():
    a, b = np.array([[0.5, 2.0, -1.0]]), np.array([[3.0, 1.0, 2.0]])
    for text, expected in (
        ("2 a^2 (1 - a)", 2 * a**2 * (1 - a)),
        ("sum(a b) b[:, ::-1] / norm(a)", (a * b).sum() * b[:, ::-1] / np.sqrt((a * a).sum())),
        ("where(a > 0, -a, b + 1)", np.where(a > 0, -a, b + 1)),
    ):
        assert np.array_equal(formula(text, "a, b")(a, b), expected), text


@pytest.mark.parametrize(
    "name",
    [
        *FUNCTIONS,
        *(f"{name}|0.7" for name in WITH_A_CONSTANT),
        "tanh then at most K|0.9",
        "sin plus a wave 4.0 0.1 -0.2 0.3",
    ],
)
def test_a_function_has_its_slope(name):
    a = np.linspace(-2.93, 3.1, 40)[:, None] * np.ones((1, 2))
    value, slope = function(name)
    along = (value(a + 1e-6) - value(a - 1e-6)) / 2e-6
    assert "scaled" in name or abs(along - slope(a)).max() < 1e-6


def test_constants_are_found_by_least_squares():
    """From far off, with steps that overshoot; where nothing is left, nothing is changed."""
    x = np.linspace(0, 2, 30)
    truth = np.array([1.7, -0.4])

    def error(w):
        return 1e6 * (np.exp(truth[0] * x) - np.exp(w[0] * x) + (truth[1] - w[1]) * x)

    w, left = improved(error, np.array([1.0, 3.0]))
    assert abs(w - truth).max() < 1e-7
    assert left == np.linalg.norm(error(w)) <= len(x) ** 0.5
    stays, left = improved(error, truth)
    assert np.array_equal(stays, truth) and left == 0


def program_of(net, params, batch):
    return Program(Recurrent(net, params, batch, ()))


def results(program, *edits):
    ((_, outcome),) = Runs(program, [Candidate("", edits)]).gradients()
    return outcome


def assert_as_reference(net, params, batch):
    right = reference_results(net, params, batch)
    ours = results(program_of(net, params, batch))
    assert set(ours) - {"h", "c"} == set(right) - {"h", "c"}
    for name, value in right.items():
        assert abs(ours[name] - value).max() < 1e4 * np.finfo(float).eps, name


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"readout": "every", "learn_h0": True, "gain": 1.5, "clip_step": 0.01},
        {"loss": "squared_error", "transition": transition("cayley")},
        {"embedding": 3, "readout": "every"},
    ],
)
def test_a_program_without_edits_is_the_reference(cell, options):
    net = RecurrentNet(2, 4, 3, cell=cell, **options)
    mask = "embedding" in options
    params, batch = drawn(net, 6, 3, float, mask=mask, peepholes=cell == "lstm" and not options)
    assert_as_reference(net, params, batch)


@pytest.mark.parametrize("cell", CELLS)
def test_cotangents_of_the_final_states_enter_at_the_last_step(cell):
    net = RecurrentNet(2, 4, 3, cell=cell)
    params, batch = drawn(net, 5, 2, float)
    shape = (2, 2, 4) if cell == "lstm" else (2, 4)
    batch = batch._replace(final={"h0": np.random.default_rng(0).normal(size=shape)})
    assert_as_reference(net, params, batch)


@pytest.mark.parametrize("cell", CELLS)
def test_a_backward_pass_that_follows_is_the_derivative(cell):
    """Of every fifth edit of the forward pass, along a random direction."""
    net = RecurrentNet(2, 3, 3, cell=cell)
    params, batch = drawn(net, 4, 2, float)
    program = program_of(net, params, batch)
    rng = np.random.default_rng(0)
    way = {name: rng.normal(size=value.shape) for name, value in params.items()}
    grammar = Grammar(program, net.gates)
    every = (c for c in forward_edits(grammar) if "alone" not in c.name)
    edited = [c for c in every if "all gates" not in c.name and " order " not in c.name][::4]
    step = 1e-5
    sides = []
    for by in (-step, step):
        shifted = {name: value + by * way[name] for name, value in params.items()}
        runs = Runs(program_of(net, shifted, batch), edited).gradients()
        sides.append([outcome["loss"] for _, outcome in runs])
    tried = 0
    for (candidate, outcome), below, above in zip(Runs(program, edited).gradients(), *sides):
        slope = sum((outcome[f"d{name}"] * way[name]).sum() for name in params)
        smooth = not any(word in candidate.name for word in ROUGH)
        if smooth and np.isfinite(slope):
            assert abs((above - below) / 2 / step - slope) < 1e-5 * (1 + abs(slope)), candidate.name
            tried += 1
    assert tried > 10


@np.errstate(all="ignore")
@pytest.mark.needs("flint")
@pytest.mark.parametrize("cell", CELLS)
def test_edits_are_named(cell):
    """By their own name, or by that of another one with the same results; none by a third."""
    net = RecurrentNet(2, 5, 3, cell=cell)
    params, batch = drawn(net, 6, 3, float)
    certified = certify(net, params, batch)
    how = {"sigma": spread(certified, np.float64), "readings": Readings(certified, pairs=False)}
    program = program_of(net, params, batch)
    grammar = Grammar(program, net.gates)
    every = [
        *backward_edits(grammar, True, True), *forward_edits(grammar),
        *list(approximated(grammar))[::20],
    ]  # fmt: skip
    right = results(program)
    rng = np.random.default_rng(CELLS.index(cell))
    chosen = [every[n] for n in rng.choice(len(every), 12, replace=False)]
    known = {}
    for candidate in every:
        known.setdefault(candidate.name, candidate)
    for candidate in chosen:
        theirs = results(program, *candidate.edits)
        if not all(np.isfinite(value).all() for value in theirs.values()):
            continue
        if all(np.allclose(theirs[name], right[name], 1e-12, 1e-14) for name in right):
            continue
        said = compare(theirs, certified, required=(), **how).convention
        assert said, candidate.name
        other = known.get(said.removeprefix("perhaps ").split(", or ")[0])
        if other is not None:
            same = results(program, *other.edits)
            assert all(np.allclose(theirs[n], same[n], 1e-9, 1e-12) for n in theirs), said


def cell(line, pull):
    return pull.target == ("d c", -1, "", "")


def test_a_line_that_is_dropped_changes_its_pulls():
    """The edit of a place is that of its place alone."""
    net = RecurrentNet(2, 4, 3, "lstm")
    params, batch = drawn(net, 5, 2, float)
    program = program_of(net, params, batch)
    n = program.index["c"]
    (m,) = (m for m, pull in enumerate(program.pulls[n]) if pull.target.name == "d s")
    without = program.pulls[n][m]._replace(terms=())
    cut = results(program, Edit(("pull", n, m), (without,)))
    expected = run(net, params, batch, {"pulls": lambda v, s: counted(s, cell, lambda t: 0 * t)})
    assert all(np.allclose(cut[name], expected[name], 1e-12) for name in expected)


def test_what_every_step_takes_of_the_first_has_its_gradient_there():
    net = RecurrentNet(2, 4, 3)
    params, batch = drawn(net, 5, 2, float)
    program = program_of(net, params, batch)
    candidate = next(c for c in Grammar(program, net.gates).forward()
                     if "x[0]" in c.name and "alone" not in c.name)  # fmt: skip
    dx = results(program, *candidate.edits)["dx"]
    assert dx[0].all() and not dx[1:].any()


def first(candidates, *words):
    return next(c for c in candidates if all(word in c.name for word in words))


def dropped(program, weight, more=True):
    n = program.index["h"]
    old = Line(Factor("h"), (Term((Factor("h", -1),)),))
    return (Edit(("line", n, 0), (program.lines[n] if more else old,), weight, more),)


def thinned(program, drawn):
    n = program.index["a.h"]
    program.p["Whh0|thinned"] = program.p["Whh0"] * (drawn.random((5, 5)) < 0.7)
    term = Term((Factor("y"),), 1.0, "Whh0|thinned")
    terms = [term if t.matrix == "Whh0" else t for t in program.lines[n].terms]
    return (Edit(("line", n, 0), (program.lines[n]._replace(terms=tuple(terms)),)),)


@pytest.mark.needs("flint")
@pytest.mark.parametrize(
    "said, edits",
    [
        ("elements", lambda p, g, r: dropped(p, -1.0 * (r.random((6, 3, 5)) < 0.2))),
        (
            "keeps 1 of the step before",
            lambda p, g, r: dropped(p, 1.0 * (r.random((6, 3, 5)) < 0.2), False),
        ),
        ("of 25 entries", lambda p, g, r: thinned(p, r)),
        (
            "; ",
            lambda p, g, r: (
                first(g.forward(), "h[t-1]", "alone").edits
                + first(g.backward(False), "the slope", "(1 - h[t+1])^2").edits
            ),
        ),
        (
            "; ",
            lambda p, g, r: (
                first(g.backward(True), "the gradient of Whh", "one more").edits
                + first(g.backward(True), "the gradient of bh", "twice").edits
            ),
        ),
    ],
    ids=["dropout", "zoneout", "dropped weights", "two passes", "two sums"],
)
def test_what_is_fitted_or_paired_is_named(said, edits):
    net = RecurrentNet(2, 5, 3)
    params, batch = drawn(net, 6, 3, float)
    program = program_of(net, params, batch)
    planted = edits(program, Grammar(program, net.gates), np.random.default_rng(0))
    verdict = judge(net, results(program, *planted), params, batch)
    assert said in verdict.convention


@pytest.mark.needs("flint")
@pytest.mark.parametrize(
    ("cell", "edits", "said"),
    [
        ("lstm", forward_edits, "every gate takes Wxh of gate g"),
        ("lstm", forward_edits, "every gate but g takes Whh of gate f, in the forward pass alone"),
        ("gru", forward_edits, "Whh h in gate z takes Whh with all rows rolled by one"),
        (
            "lstm",
            partial(backward_edits, in_sums=False, in_the_loop=True),
            "the gradient of h[t+1] has that of one step later added: it is not cleared",
        ),
        (
            "lstm",
            partial(backward_edits, in_sums=False, in_the_loop=True),
            "the slope of tanh(c[t+1]) lacks the brackets of (1 - tanh(c[t+1])^2)",
        ),
    ],
)
def test_slips_of_ports_are_named(cell, edits, said):
    """Tied gates, a slice that is off by one, a buffer that is not cleared, lost brackets."""
    net = RecurrentNet(2, 5, 3, cell=cell)
    params, batch = drawn(net, 6, 3, float)
    program = program_of(net, params, batch)
    planted = next(c for c in edits(Grammar(program, net.gates)) if c.name == said)
    assert judge(net, results(program, *planted.edits), params, batch).convention == said


@pytest.mark.needs("flint")
@pytest.mark.parametrize(
    ("activation", "slope", "said"),
    [
        ("softsign", "(1 - abs(h)) * dh", "(1 - |h[t+1]|), not softsign'(a_h)"),
        ("elu", "np.where(a > 0, 1, h) * dh", "h[t+1], not elu'(a_h), where a_h is negative"),
    ],
)
def test_slopes_of_kinked_activations_are_named(activation, slope, said):
    net = RecurrentNet(2, 5, 3, activation=activation)
    params, batch = drawn(net, 6, 3, float)
    theirs = mistake("", act_pull=slope).run(net, params, batch)
    assert judge(net, theirs, params, batch).convention == f"the slope of h is {said}"


def test_a_sum_that_keeps_a_step_alone():
    """The weight of the others is rounding, and no number to divide by."""
    net = RecurrentNet(3, 5, 4, readout="every")
    rng = np.random.default_rng(0)
    params = random_params(net, rng, np.float64)
    batch = random_batch(net, rng, np.float64, 6, 3)
    first = batch._replace(mask=np.arange(6)[:, None] < np.ones(3))
    alone = reference_results(net, params, first)["dWhy"] / 6
    theirs = {**reference_results(net, params, batch), "dWhy": alone}
    assert judge(net, theirs, params, batch).convention == "only step 0 counts in dWhy"


def test_what_no_mistake_gives_has_no_name():
    """A free function of 22 numbers explains dWhh alone, but not that the rest is right."""
    net = RecurrentNet(5, 8, 4, "lstm")
    params, batch = drawn(net, 10, 4, np.float32)
    right = loss_and_gradients(net, params, batch)
    theirs = {f"d{name}": value for name, value in right.gradients.items()}
    theirs["dWhh"] = theirs["dWhh"] ** 3
    assert not judge(net, {"loss": right.loss, **theirs}, params, batch).convention
