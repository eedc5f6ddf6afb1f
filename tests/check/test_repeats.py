"""A function is called again: state is said only of what has it, and a coarse type only where the
errors come out anew. Families of functions, right ones and wrong ones, with and without state."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.check import assert_gradients, judge
from refnet.check.arithmetic import rounded_to
from refnet.check.cases import random_batch, random_mask, reference_results
from refnet.check.mistakes import mistakes
from refnet.check.mistakes.formulas import gradient_through, scaled, through
from refnet.check.programs.edit import Edit
from refnet.check.programs.passes import run
from refnet.check.verdict import NOT_ROUNDING
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.byhand import softmax
from support.drawn import drawn as drawn_in, times
from support.marks import slow

drawn = partial(drawn_in, T=5, dtype=np.float64)

pytestmark = pytest.mark.needs("flint")

NETS = {
    "last": RecurrentNet(2, 4, 4),
    "every": RecurrentNet(2, 4, 4, readout="every"),
    "squared": RecurrentNet(2, 4, 3, cell="gru", loss="squared_error"),
}
KEPT = "something is kept between calls"


def first_is_harmless(net, B):
    """Inputs at which much that is wrong is right: full sequences and one class."""
    params, batch = drawn(net, B=B)
    y = batch.y if batch.y.dtype.kind == "f" else np.full_like(batch.y, 2)
    return params, batch._replace(y=y, mask=np.ones(batch.x.shape[:2], bool))


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("name", NETS)
def test_no_function_without_state_is_said_to_keep_something(name, B):
    net = NETS[name]
    params, batch = first_is_harmless(net, B)
    passed, named = [], set()
    right = run(net, params, batch)
    for mistake in mistakes(net, *drawn(net, B=B, mask=True)):
        theirs = mistake.run(net, params, batch)
        if "has the label" in mistake.name:  # one label for ever is the first call's
            continue
        if not all(np.allclose(theirs[key], right[key], 1e-9, 1e-12) for key in right):
            continue
        verdict = judge(net, partial(mistake.run, net), params, batch)
        assert "kept" not in verdict.convention, mistake.name
        passed += [mistake.label] * verdict.passed
        if "it gives another result than these have" in verdict.convention:
            named.add(verdict.convention.partition("it was right")[2])
    assert len(passed) < 40
    assert any("the mask is ignored" in name for name in named)


def clipped_label(net, p, b):
    """Reads labels as truth values: right of the classes 0 and 1."""
    return reference_results(net, p, b._replace(y=np.minimum(b.y, 1)))


def class_zero_is_padding(net, p, b):
    keep = (b.y != 0) if b.mask is None or b.y.ndim == 1 else (b.y != 0) & b.mask
    return run(
        net, p, b, {"each": lambda v, s: (v[0] * keep.ravel(), v[1] * keep.ravel()[:, None])}
    )


def first_label_for_all(net, p, b):
    return reference_results(net, p, b._replace(y=np.full_like(b.y, b.y.flat[0])))


@pytest.mark.parametrize(
    "wrong, label", [(clipped_label, 1), (class_zero_is_padding, 3), (first_label_for_all, 1)]
)
@pytest.mark.parametrize("B", [1, 3])
def test_labels_that_are_misread_are_not_kept(wrong, label, B):
    net = NETS["last"]
    params, batch = drawn(net, B=B)
    batch = batch._replace(y=np.full(B, label))
    verdict = judge(net, partial(wrong, net), params, batch)
    assert "kept" not in verdict.convention
    if wrong is clipped_label:
        assert verdict.convention.startswith("with other targets it gives another result")


def first_of(*names, by_shape=True):
    """As a compiled function does: takes its first of these, of every shape or at all, for
    constants."""

    def function(net, memory, p, b):
        key = b.x.shape if by_shape else 0
        first = memory.setdefault(key, deepcopy((p, b)))
        return reference_results(
            net,
            {name: (first[0] if name in names else p)[name] for name in p},
            b._replace(**{name: getattr(first[1], name) for name in names if hasattr(b, name)}),
        )

    return function


def cached(net, memory, p, b):
    return memory.setdefault(b.x.shape, reference_results(net, p, b))


def last_of(name):
    def function(net, memory, p, b):
        last = memory.get(0, b)
        memory[0] = deepcopy(b)
        return reference_results(net, p, b._replace(**{name: getattr(last, name)}))

    return function


def momentum(net, memory, p, b):
    for name, value in reference_results(net, p, b).items():
        memory[name] = memory.get(name, value) / 2 + value / 2
    return dict(memory)


def counts(net, memory, p, b):
    memory[0] = memory.get(0, 0) + 1
    return times(net, 1 if memory[0] < 3 else 2)(p, b)


def first_gradient(net, memory, p, b):
    right = reference_results(net, p, b)
    return {**right, "dWhh": memory.setdefault(b.x.shape, right["dWhh"])}


def through_matrix(s, W):
    """The gradient is carried through this matrix, not through Whh."""
    s.program.p["old"] = W
    (n,) = (n for n, line in enumerate(s.program.lines) if line.target.name == "a.h")
    return [
        Edit(("pull", n, m), (pull._replace(terms=(pull.terms[0]._replace(matrix="old"),)),))
        for m, pull in enumerate(s.program.pulls[n])
        if pull.terms[0].matrix == "Whh0"
    ]


def turned_once(net, memory, p, b):
    """Keeps the transposed Whh of its first call with a shape for the way back."""
    W = memory.setdefault(b.x.shape, p["Whh"].copy())
    return run(net, p, b, {"pulls": lambda v, s: through_matrix(s, W)})


STATEFUL = {
    **{
        f"by shape: {names}": first_of(*names)
        for names in (("y",), ("mask",), ("x",), ("Whh",), ("Whh", "by"), ("x", "y", "mask"))
    },
    **{
        f"at all: {names}": first_of(*names, by_shape=False)
        for names in (("y",), ("x",), ("Whh",), ("by", "Why"))
    },
    "cached": cached,
    "last labels": last_of("y"),
    "last mask": last_of("mask"),
    "momentum": momentum,
    "counts": counts,
    "gradient": first_gradient,
    "turned": turned_once,
}


@pytest.mark.parametrize("name", STATEFUL)
def test_functions_that_keep_a_state_are_named_so(name):
    net = NETS["every"]
    for params, batch in (drawn(net, mask=True), first_is_harmless(net, 3)):
        function = partial(STATEFUL[name], net, {})
        verdict = judge(net, function, params, batch)
        assert verdict.verdict == NOT_ROUNDING and KEPT in verdict.convention, verdict.convention


def test_the_message_is_about_the_inputs_at_which_it_is_wrong():
    net = NETS["last"]
    params, batch = first_is_harmless(net, 2)
    with pytest.raises(AssertionError) as caught:
        assert_gradients(
            net, lambda p, b: reference_results(net, p, b._replace(mask=None)), params, batch
        )
    text = str(caught.value)
    assert "with other targets and lengths it gives another result" in text
    assert "the mask is ignored" in text
    assert "the smallest sizes at which it still shows" in text


def losses(change):
    """A net whose loss of the logits and the labels is another: (losses, gradients in them)."""

    def each(v, s):
        logits = s.outputs.reshape(-1, s.outputs.shape[-1])
        scores = change(logits.astype(float), np.eye(logits.shape[1])[s.y.ravel()])
        return tuple(np.asarray(part, logits.dtype) for part in scores)

    def function(net, p, b):
        results = run(net, p, b, {"each": each})
        return {name: results[name] for name in results if name not in ("outputs", "h")}

    return function


def tempered(t):
    return losses(
        lambda v, y: (-np.log((softmax(v / t) * y).sum(axis=1)), (softmax(v / t) - y) / t)
    )


def focal(gamma):
    def change(v, y):
        p = softmax(v)
        q = (p * y).sum(axis=1)
        slope = gamma * q * (1 - q) ** (gamma - 1) * np.log(q) - (1 - q) ** gamma
        return -((1 - q) ** gamma) * np.log(q), slope[:, None] * (y - p)

    return losses(change)


def smoothed(e):
    def change(v, y):
        soft = y * (1 - e) + e / v.shape[1]
        return -(soft * np.log(softmax(v))).sum(axis=1), softmax(v) - soft

    return losses(change)


def weighted(w):
    def change(v, y):
        p, weight = softmax(v), y @ np.linspace(1 - w, 1 + w, v.shape[1])
        return -weight * np.log((p * y).sum(axis=1)), weight[:, None] * (p - y)

    return losses(change)


def times_more(name, by):
    return with_changes({"lines": lambda v, s: scaled(s, name, lambda t: 1 + by)})


def with_changes(changes):
    """The naive net with changes, without its states."""
    return lambda net, p, b: {k: v for k, v in run(net, p, b, changes).items() if k != "h"}


SMOOTH = {
    **{f"temperature {t}": tempered(t) for t in (0.5, 0.999)},
    **{f"focal loss {g}": focal(g) for g in (0.003, 2)},
    "label smoothing 0.1": smoothed(0.1),
    **{f"{n} times 1 + {by}": times_more(n, by) for n, by in (("h", 3e-4), ("a.h", 1e-3))},
}


MORE_SMOOTH = {
    "temperature 1.01": tempered(1.01),
    "label smoothing 0.0005": smoothed(0.0005),
    "class weights 0.003": weighted(0.003),
}


@pytest.mark.parametrize("name", [*SMOOTH, *slow(*MORE_SMOOTH)])
def test_no_smooth_mistake_is_taken_for_a_coarse_type(name):
    net, wrong = RecurrentNet(3, 16, 5), {**SMOOTH, **MORE_SMOOTH}[name]
    for dtype, T, B in ((np.float32, 20, 4), (np.float64, 6, 1)):
        params, batch = drawn(net, T=T, B=B, dtype=dtype)
        verdict = judge(net, partial(wrong, net), params, batch)
        assert verdict.verdict == NOT_ROUNDING
        assert not any(kind in verdict.convention for kind in ("float", "TF32")), verdict.convention


KINDS = {
    "float16": lambda v: v.astype(np.float16).astype(v.dtype),
    "bfloat16": lambda v: rounded_to(v, 2.0**-8),
    "TF32": lambda v: rounded_to(v, 2.0**-11),
}
EDITS = {
    "h": ("lines", through, "h"),
    "a": ("lines", through, "a.h"),
    "e": ("pulls", gradient_through, "h"),
    "da": ("pulls", gradient_through, "a.h"),
}


def coarse(*places, kind):
    """The net with changes that round, without its states."""
    to = KINDS[kind]
    product = {"product": lambda f, s: lambda a, b: f(to(a), to(b))}
    changes = [product] * ("product" in places)
    for place, edit, name in (EDITS[place] for place in places if place != "product"):
        changes.append({place: lambda v, s, e=edit, n=name: [*v, e(s, n, kind)]})
    return lambda net, p, b: {k: v for k, v in run(net, p, b, *changes).items() if k != "h"}


@pytest.mark.parametrize(
    "dtype, kind, places",
    [
        (np.float32, "bfloat16", "product"),
        (np.float32, "bfloat16", "h"),
        (np.float32, "float16", "h e"),
        (np.float32, "TF32", "h e product"),
        (np.float64, "TF32", "product"),
        (np.float64, "float16", "h"),
        (np.float64, "bfloat16", "h e"),
        *slow(
            (np.float32, "float16", "product"),
            (np.float32, "TF32", "product"),
            (np.float32, "bfloat16", "product a h e da"),
        ),
    ],
)
def test_a_coarse_type_is_named(dtype, kind, places):
    """Here at sizes where one place is found to the bit, or, of several, that errors come anew."""
    net = RecurrentNet(3, 16, 5)
    params, batch = drawn(net, T=20, B=4, dtype=dtype)
    theirs = partial(coarse(*places.split(), kind=kind), net)
    verdict = judge(net, theirs, params, batch)
    assert verdict.verdict == NOT_ROUNDING and kind in verdict.convention, verdict.convention
    assert "perhaps part" not in judge(net, theirs(params, batch), params, batch).convention


def test_noise_that_is_drawn_anew_is_no_coarse_type():
    net, rng = RecurrentNet(3, 16, 5), np.random.default_rng(0)
    params, batch = drawn(net, T=20, B=4, dtype=np.float32)

    def noisy(p, b):
        return {
            name: value * (1 + 1e-3 * rng.standard_normal(np.shape(value))).astype(np.float32)
            for name, value in reference_results(net, p, b).items()
        }

    assert judge(net, noisy, params, batch).convention == ""


@pytest.mark.parametrize(
    "net",
    [RecurrentNet(3, 8, 5), RecurrentNet(3, 8, 5, readout="every"), FeedforwardNet((3, 8, 5))],
    ids=["last", "every", "feedforward"],
)
@pytest.mark.parametrize("counted", [True, False])
def test_a_class_that_is_left_out_is_named(net, counted):
    params, batch = drawn(net, T=6, B=7)
    for c in sorted({*batch.y.ravel().tolist()}):

        def theirs(p, b, c=c):
            keep = (b.y != c).ravel()
            change = {"each": lambda v, s: (v[0] * keep, v[1] * keep[:, None])}
            if not counted:
                change["divisor"] = lambda v, s: v * keep.mean()
            return run(net, p, b, change)

        name = f"class {c} is left out of the loss" + ", and not counted" * (not counted)
        assert judge(net, theirs(params, batch), params, batch).convention == name
    assert judge(net, run(net, params, batch), params, batch).passed


def test_a_class_that_is_that_of_one_place_is_named_with_it():
    net = RecurrentNet(3, 4, 5)
    params, batch = drawn(net, T=4, B=2)
    batch = Batch(batch.x, np.array([3, 0]))
    without = run(
        net, params, batch, {"each": lambda v, s: (v[0] * [1, 0], v[1] * np.array([[1], [0]]))}
    )
    assert judge(net, without, params, batch).convention == (
        "perhaps the last example of the batch, or class 0, is left out"
    )


def test_draws_set_nothing_apart_by_its_place():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        for n in range(3, 9):
            y = random_batch(RecurrentNet(2, 3, 5), rng, np.float32, 4, n).y
            assert {0, 4} <= set(y)
            assert y[0] in y[1:] and y[-1] in y[:-1]
            lengths = random_mask(rng, 6, n).sum(axis=0)
            for special in (1, 6):
                places = set(np.flatnonzero(lengths == special))
                assert places and places not in ({0}, {n - 1})
        pair = random_batch(replace(NETS["last"], outputs=5), rng, np.float32, 4, 2).y
        assert set(pair) == {0, 4}
