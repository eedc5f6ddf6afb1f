"""The judge names mistakes: the planted one, and nothing that contradicts what is right."""

import numpy as np
import pytest

from benchmarks.judge.cases import Case, table, wide
from refnet.batch import Batch
from refnet.check import compare
from refnet.check.cases import reference_results
from refnet.check.conventions import Readings
from refnet.check.mistakes import faint, mistakes, of_the_types
from refnet.check.mistakes.formulas import scaled
from refnet.check.noise import spread
from refnet.check.programs.passes import run
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.exact import certify
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.drawn import drawn, times
from support.marks import slow

pytestmark = pytest.mark.needs("flint")


class Judge:
    """One certified case, and the judge's words on results for it."""

    def __init__(self, certified):
        self.certified, self.dtype = certified, certified.batch.x.dtype
        self.net, self.params, self.batch = certified.net, certified.params, certified.batch
        self.sigma = spread(certified, self.dtype)
        self.readings = Readings(certified)

    def __call__(self, theirs):
        how = {"sigma": self.sigma, "readings": self.readings, "required": ()}
        return compare(theirs, self.certified, dtype=self.dtype, **how)

    def mistakes(self):
        return mistakes(self.net, self.params, self.batch)

    def wrong(self, mistake, *more):
        """What a program with this mistake gives, without the states."""
        theirs = mistake.run(self.net, self.params, self.batch, *more)
        return {name: value for name, value in theirs.items() if name not in ("h", "c")}

    def right(self):
        return reference_results(self.net, self.params, self.batch)


def judge_of(net, T=6, B=3, dtype=np.float32):
    return Judge(certify(net, *drawn(net, T, B, dtype)))


R = RecurrentNet
CATALOGUE = table("""
rnn every             2  5 3  7 3
rnn h0                2  5 3  5 5
rnn relu gain         2  5 3  7 3
rnn clipped           2  5 3  7 3
rnn cayley            2  5 3  6 3
lstm every mask h0    3  4 3  6 4
lstm peepholes        3  4 3  6 4
gru                   3  4 4  8 2
gru every mask        3 12 3 10 3
gru_before mask       3  4 3  8 2
feedforward           4  5 3  2 6
feedforward relu      4  7 3  2 6
""")


@pytest.mark.parametrize("case", CATALOGUE, ids=lambda case: case.name)
def test_every_mistake_is_named(case):
    """By its own name, or by that of another one with the same results."""
    judge = Judge(case.certified(np.random.default_rng(0), np.float32))
    net, (params, batch) = judge.net, wide(judge.certified)
    right = run(net, judge.params, judge.batch)
    assert judge(right).verdict == EXPLAINED
    planted = {each.label: each for each in judge.mistakes()}
    number = CATALOGUE.index(case)
    tried = list(planted.items())[number % 4 :: 4 if len(planted) > 150 else 1]
    by_name = 0
    for label, mistake in tried:
        theirs = judge.wrong(mistake)
        if all(np.array_equal(theirs[key], right[key]) for key in theirs):
            continue
        verdict = judge(theirs)
        assert verdict.verdict == NOT_ROUNDING, label
        by_name += label in verdict.convention
        said = verdict.convention
        if said.startswith("perhaps ") and label in said:
            continue
        other = planted.get(said.removeprefix("perhaps ").split(", or ")[0])
        if other not in (None, mistake):
            first, second = (each.run(net, params, batch) for each in (mistake, other))
            for key in theirs:
                true = judge.certified.named()[key].value
                scale = abs(first[key]).max(initial=0) + abs(true).max(initial=0)
                assert abs(first[key] - second[key]).max(initial=0) <= 1e-6 * scale, (label, key)
        else:
            assert verdict.convention == label or "missing (zero)" in verdict.convention
    assert by_name >= 0.93 * len(tried) - 8


@pytest.mark.parametrize(
    "net, dtype, least",
    [
        (R(2, 5, 3, readout="every"), np.float64, 1e-11),
        (R(3, 4, 3, cell="gru"), np.float32, 1e-3),
        (FeedforwardNet((4, 5, 3)), np.float64, 1e-11),
    ],
    ids=["rnn", "gru float32", "feedforward"],
)
def test_small_constants_of_the_loss_are_named(net, dtype, least):
    judge = judge_of(net, dtype=dtype)
    names = set()
    for mistake in faint(net):
        verdict = judge(judge.wrong(mistake))
        if "1e-16" in mistake.name and verdict.verdict == EXPLAINED:
            continue  # below the unit roundoff of float64, where a form's loss looks alike
        wrong = verdict.verdict == NOT_ROUNDING
        assert verdict.convention == (mistake.name if wrong else "")
        names |= {mistake.name} if wrong else set()
    finite = f"the loss is -log(p + {least:.0e}) in place of -log p"
    assert {"label smoothing of 0.05", finite, f"{finite}, without it in the gradient"} <= names


@pytest.fixture(scope="module")
def judges():
    return {
        "rnn": judge_of(R(2, 5, 3)),
        "lstm": judge_of(R(2, 4, 3, cell="lstm")),
        "gru": judge_of(R(2, 4, 3, cell="gru", readout="every"), B=4),
    }


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize(
    "key, edit, name",
    [
        ("dby", lambda g, j: -g, "dby has the wrong sign"),
        ("dWhh", lambda g, j: -g, "dWhh has the wrong sign"),
        ("dWhh", lambda g, j: g * j.batch.x.shape[1], "dWhh is B = "),
        ("dWxh", lambda g, j: g / 6, "the sum over the steps is divided by T in dWxh"),
        ("dWhy", lambda g, j: 0 * g, "the gradient dWhy is missing (zero)"),
        ("dx", lambda g, j: g[::-1], "dx is reversed along the steps"),
        ("dbh", lambda g, j: 2 * g, "dbh is doubled: the gradients of two biases are added"),
    ],
)
def test_a_wrong_quantity_among_right_ones_is_named_alone(judges, cell, key, edit, name):
    is_named_alone(judges[cell], key, edit, name)


@pytest.mark.parametrize("cell", ["rnn", *slow("lstm", "gru")])
@pytest.mark.parametrize(
    "key, edit, name",
    [
        ("dWhy", lambda g, j: g * 0.37, "dWhy is 0.37 times the right one"),
        ("dWhh", lambda g, j: g.clip(-abs(g).max() / 2, abs(g).max() / 2), "dWhh is clipped at"),
        (
            "dWxh",
            lambda g, j: g + 1e-3 * j.params["Wxh"],
            "dWxh has 0.001 times the parameter added (weight decay)",
        ),
    ],
)
def test_a_wrong_quantity_with_a_constant_is_named_alone(judges, cell, key, edit, name):
    is_named_alone(judges[cell], key, edit, name)


def is_named_alone(judge, key, edit, name):
    right = judge.right()
    wrong = np.asarray(edit(right[key], judge), np.float32)
    verdict = judge({**right, key: wrong})
    assert verdict.verdict == NOT_ROUNDING and verdict.convention.startswith(name)
    if "B =" not in name and "divided" not in name:  # alone, another reduction is a fair name, too
        assert judge({key: wrong}).convention.startswith(name)


@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 4)])
def test_states_in_each_others_place_are_named(shape):
    """The first axis of an LSTM's h0 is h and c, not time."""
    net = R(2, 4, 3, cell="lstm")
    params, batch = drawn(net, 5)
    params["h0"] = np.random.default_rng(1).uniform(-0.5, 0.5, shape).astype(np.float32)
    right = reference_results(net, params, batch)
    h, c = right["dh0"]
    for dh0, name in (
        ([c, h], "dh0 has those of h and c swapped"),
        ([0 * h, c], "dh0 has zero for h"),
    ):
        wrong = {**right, "dh0": np.stack(dh0)}
        assert compare(wrong, certify(net, params, batch)).convention == name


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_one_sum_over_the_steps_is_named_alone(judges, cell):
    judge = judges[cell]
    known = {mistake.name: mistake for mistake in judge.mistakes()}
    last = known["only the last step counts in {}"]
    theirs = {**judge.right(), "dbh": judge.wrong(last)["dbh"]}
    assert judge(theirs).convention == "only the last step counts in dbh"


def test_all_gradients_are_named_together(judges):
    judge = judges["rnn"]
    right = judge.right()
    gradients = {name: value for name, value in right.items() if name.startswith("d")}
    norm = np.sqrt(sum((value.astype(float) ** 2).sum() for value in gradients.values()))
    for factor, name in (
        (-1, "every gradient has the wrong sign"),
        (3, "every gradient is B = C = 3 times the right one"),
        (0.1 / norm, "the gradients are clipped to the norm 0.1"),
    ):
        theirs = {**right, **{key: np.float32(factor) * v for key, v in gradients.items()}}
        assert judge(theirs).convention == name


@pytest.mark.parametrize(
    "cell, order",
    [("lstm", (1, 2, 0, 3)), ("lstm", (0, 3, 1, 2)), ("gru", (1, 2, 0)), ("gru", (2, 0, 1))],
)
def test_gates_in_a_cycle_are_named_as_they_are_stacked(judges, cell, order):
    """Their block m is the gate ``order[m]``: a cycle of three is not its own inverse."""
    judge, G = judges[cell], len(order)
    gates = ", ".join(judge.net.gates[n] for n in order)

    def stacked(arrays, order):
        return {
            name: value.reshape(G, -1)[list(order)].reshape(value.shape)
            if name.removeprefix("d") in ("Whh", "Wxh", "bh")
            else value
            for name, value in arrays.items()
        }

    shown = stacked(judge.right(), order)
    assert judge(shown).convention == f"the gradients' gates are stacked in the order {gates}"
    read = stacked(judge.params, np.argsort(order))
    theirs = stacked(reference_results(judge.net, read, judge.batch), order)
    assert judge(theirs).convention.startswith(f"the gates are read in the order {gates}")


@pytest.mark.parametrize(
    "cell, names",
    [
        ("rnn", ("tanh' is left out", "the labels are one too large")),
        ("rnn", ("time is reversed", "the labels are one too small")),
        (
            "rnn",
            (
                "the bias bh is left out (one of two biases only)",
                "the activation is relu instead of tanh",
            ),
        ),
        ("lstm", ("1 is added to the forget gate's bias", "the labels are one too large")),
        *slow(
            (
                "lstm",
                (
                    "the bias bh is left out (one of two biases only)",
                    "the softmax is applied twice",
                ),
            )
        ),
        (
            "gru",
            (
                "z and 1 - z change places: h = z n + (1 - z) h",
                "the gradient of bhn leaves out the reset gate",
            ),
        ),
    ],
)
def test_two_mistakes_at_once(judges, cell, names):
    judge = judges[cell]
    known = {each.label: each for each in judge.mistakes()}
    first, second = (known[name] for name in names)
    theirs = judge.wrong(first, *second.passes)
    formulas = {
        "h[t+1] is (1 - z) h[t] + z n, not (1 - z) n + z h[t]": names[0],
        "the gradient of bhn takes da_n for the gradient of Whn h[t] + bhn": names[1],
    }
    said = judge(theirs).convention.split("; ")
    assert {formulas.get(name, name) for name in said} == set(names)


def test_a_mistake_and_an_edit_at_once(judges):
    judge = judges["gru"]
    theirs = judge.right()
    theirs |= {"dWxh": -theirs["dWxh"], "dby": 2 * theirs["dby"]}
    assert judge(theirs).convention == "dWxh has the wrong sign; dby is doubled"


def test_a_small_part_is_named_beside_the_noise_of_the_rest():
    """Rounding makes the other gates a hundred times as wrong as a gate that is left out is large:
    neither their noise nor a factor that fits it may pass for the mistake."""
    net = RecurrentNet(inputs=3, hidden=5, outputs=4, cell="lstm")
    rng = np.random.default_rng(0)
    params = net.init(rng)
    params["Whh"] *= 6
    params["bh"][:5] += 6
    batch = Batch(rng.normal(size=(30, 2, 3)).astype(np.float32), np.array([1, 2]))
    theirs, certified = reference_results(net, params, batch), certify(net, params, batch)
    for n, gate in enumerate(net.gates):
        wrong = theirs["dbh"].copy()
        wrong[5 * n : 5 * n + 5] = 0
        verdict = compare({**theirs, "dbh": wrong}, certified)
        assert verdict.convention == f"dbh is zero for the gate {gate}"


def test_a_constant_that_fits_the_noise_is_no_explanation():
    """The rest is off by a factor, within rounding; what is wrong is far off from that."""
    net = RecurrentNet(inputs=1, hidden=2, outputs=2, cell="lstm")
    params, batch = drawn(net, 6)
    params["bh"][:2] = 6
    certified = certify(net, params, batch)
    true = certified.gradients["bh"].value
    sigma = {name: np.full_like(value.value, 1e-30) for name, value in certified.named().items()}
    small = abs(true) < np.linalg.norm(true) / 100
    sigma["dbh"] = abs(true) * np.where(small, 1e-9, 1e-3)
    wrong = true * (1 - np.where(small, 1e-6, 1e-3))
    assert 0 < small.sum() < 8
    verdict = compare({"dbh": wrong}, certified, sigma=sigma, required=())
    assert verdict.verdict == NOT_ROUNDING and "times" not in verdict.convention


@pytest.mark.parametrize("cell", ["rnn", "gru", *slow("lstm")])
def test_what_has_no_name_gets_none(judges, cell):
    """Of an lstm, test_fitted_names.py asks the same at each run."""
    judge, rng = judges[cell], np.random.default_rng(0)
    theirs = {
        key: (value * (1 + 0.01 * rng.normal(size=value.shape))).astype(np.float32)
        for key, value in judge.right().items()
    }
    verdict = judge(theirs)
    assert verdict.verdict == NOT_ROUNDING and verdict.convention == ""


def test_float32_inside_float64_is_named():
    judge = judge_of(R(2, 5, 3), dtype=np.float64)
    right = judge.right()
    narrow = {name: value.astype(np.float32) for name, value in judge.params.items()}
    theirs = reference_results(judge.net, narrow, judge.batch._replace(x=np.float32(judge.batch.x)))
    del theirs["outputs"]
    theirs = {name: value.astype(float) for name, value in theirs.items()}
    name = (
        "part of the computation is in float32: the differences have its size, and all numbers "
        "are those of float32"
    )
    assert judge(theirs).convention == name
    assert judge({**right, "dWhh": theirs["dWhh"]}).convention == name
    bug = {
        key: value * (1 + 1e-7 * np.arange(value.size).reshape(value.shape))
        for key, value in right.items()
        if key.startswith("d")
    }
    assert judge({**right, **bug}).convention == ""


@pytest.mark.parametrize("size", [2e-5, 4e-3])
def test_the_size_of_an_error_alone_names_no_type(size):
    """Not from arrays: a function that is called again shows whether errors come out anew."""
    judge = judge_of(R(2, 5, 3))
    rng = np.random.default_rng(0)
    noise = rng.uniform(-size / 2, size / 2, (7, 3, 5))
    change = {"lines": lambda v, s: scaled(s, "h", lambda t: 1 + noise)}
    theirs = run(judge.net, judge.params, judge.batch, change)
    verdict = judge({key: theirs[key] for key in theirs if key != "h"})
    assert verdict.verdict == NOT_ROUNDING and verdict.convention == ""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "net",
    [R(3, 6, 4), R(3, 5, 4, cell="lstm"), FeedforwardNet((3, 6, 4))],
    ids=["rnn", "lstm", "feedforward"],
)
def test_a_place_that_is_rounded_to_a_coarser_type_is_named(net, dtype):
    """By its own name, or by that of another place or type with the same results."""
    judge, named = judge_of(net, dtype=dtype, T=8, B=3), 0
    for mistake in of_the_types(net, judge.batch):
        verdict = judge({k: v for k, v in judge.wrong(mistake).items() if k[0] != "h"})
        assert verdict.verdict == NOT_ROUNDING
        assert any(word in verdict.convention for word in ("float", "TF32")) or (
            not verdict.convention
        ), mistake.name
        named += mistake.name in verdict.convention
    assert named >= 8


def test_a_factor_of_the_loss_is_named_with_the_loss(judges):
    for judge in judges.values():
        theirs = times(judge.net, 7)(judge.params, judge.batch)
        assert judge(theirs).convention == "the loss and every gradient are 7 times the right ones"


def test_a_transition_whose_gradient_is_projected():
    net = R(2, 4, 3, transition=transition("orthogonal"))
    judge = judge_of(net)
    theirs, M = judge.right(), judge.params["Whh.M"]
    G = theirs["dWhh.M"]
    theirs["dWhh.M"] = G - M @ (M.T @ G + G.T @ M) / 2
    assert judge(theirs).convention == (
        "dWhh.M is projected onto the tangent space: G - M sym(M'G)"
    )


def torch_results(net, params, batch, how):
    """LSTMs and GRUs as a PyTorch user writes them, with one line that is wrong: independent of
    the naive nets, which the judge takes the names from."""
    import torch

    p = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in params.items()}
    x, y = torch.from_numpy(batch.x.copy()).requires_grad_(), torch.from_numpy(batch.y)
    s, (T, B, _), H = torch.sigmoid, batch.x.shape, net.hidden
    h = c = torch.zeros(B, H, dtype=x.dtype)
    states = []
    bias = p["bh"]
    if how == "1 is added to the forget gate's bias":
        bias = bias + torch.eye(4)[1].repeat_interleave(H)
    for t in range(T):
        if how == "the gradient is truncated: the state is detached every 3 steps" and t % 3 == 0:
            h, c = h.detach(), c.detach()
        z, u = x[t] @ p["Wxh"].T + bias, h @ p["Whh"].T
        if net.cell == "rnn":
            h = torch.tanh(z + u)
        elif net.cell == "lstm":
            i, f, g, o = (z + u).chunk(4, 1)
            if how.startswith("the gates are read in the order i, o, f, g"):
                i, o, f, g = (z + u).chunk(4, 1)
            c = s(f) * c + s(i) * torch.tanh(g)
            h = s(o) * (c if how.startswith("tanh(c[t+1]) is") else torch.tanh(c))
        else:
            r, k = s(z[:, :H] + u[:, :H]), s(z[:, H : 2 * H] + u[:, H : 2 * H])
            W, b = p["Whh"][2 * H :], p["bhn"]
            n = z[:, 2 * H :] + r * (u[:, 2 * H :] + b)
            if how == "the GRU resets the state before the product, and dbhn is zero":
                n = z[:, 2 * H :] + (r * h) @ W.T + 0 * b
            if how == "bhn is added outside the reset gate":
                n = z[:, 2 * H :] + r * u[:, 2 * H :] + b
            if how == "z and 1 - z change places: h = z n + (1 - z) h":
                k = 1 - k
            h = k * h + (1 - k) * torch.tanh(n)
        states.append(h)
    v = torch.stack(states) @ p["Why"].T + p["by"]
    each = torch.nn.functional.cross_entropy(v.reshape(T * B, -1), y.reshape(-1), reduction="none")
    mask = torch.ones(T, B, dtype=torch.bool)
    if batch.mask is not None:
        mask = torch.from_numpy(batch.mask)
        if how == "the mask is shifted by one step (later)":
            mask = torch.cat([mask[:1], mask[:-1]])
    size = T * B if "T B, although" in how else mask.sum()
    loss = (each.reshape(T, B) * mask).sum() / size
    if how == "the softmax is applied twice":
        loss = torch.nn.functional.cross_entropy(
            torch.softmax(v.reshape(T * B, -1), 1), y.reshape(-1)
        )
    loss.backward()
    return {
        "loss": loss.detach().numpy(),
        **{f"d{name}": value.grad.numpy() for name, value in {**p, "x": x}.items()},
    }


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "cell, how, mask",
    [
        ("rnn", "nothing", True),
        ("lstm", "nothing", False),
        ("gru", "nothing", True),
        ("rnn", "the gradient is truncated: the state is detached every 3 steps", False),
        ("lstm", "the gradient is truncated: the state is detached every 3 steps", True),
        ("gru", "the mask is shifted by one step (later)", True),
        ("lstm", "the loss is divided by T B, although a mask leaves steps out", True),
        ("lstm", "1 is added to the forget gate's bias", False),
        ("lstm", "tanh(c[t+1]) is c[t+1], not tanh(c[t+1])", False),
        ("lstm", "the gates are read in the order i, o, f, g (as ONNX stacks them)", False),
        ("gru", "z and 1 - z change places: h = z n + (1 - z) h", False),
        ("gru", "the GRU resets the state before the product, and dbhn is zero", True),
        ("gru", "bhn is added outside the reset gate", False),
        ("rnn", "the softmax is applied twice", False),
    ],
)
def test_mistakes_written_in_pytorch(cell, how, mask):
    """Bugs that the naive nets did not make."""
    named = Case(f"{cell} every{' mask' * mask}", 2, 5, 3, 8, 4)
    judge = Judge(named.certified(np.random.default_rng(0), np.float32))
    verdict = judge(torch_results(judge.net, judge.params, judge.batch, how))
    assert verdict.convention == ("" if how == "nothing" else how)
    assert verdict.passed == (how == "nothing")


def test_large_nets_are_not_searched_for_hours():
    """What is spent on a name is bounded; the most usual mistakes come first."""
    small = judge_of(R(2, 3, 2)).readings
    assert small.passes() > 1000
    shapes = {"Whh": (2000, 2000), "Wxh": (2000, 10), "Why": (10, 2000)}
    small.params = {name: np.broadcast_to(0.0, shape) for name, shape in shapes.items()}
    small.batch = small.batch._replace(x=np.broadcast_to(0.0, (1000, 4, 10)))
    assert 1 <= small.passes() < 20
