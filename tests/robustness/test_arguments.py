"""What enters is checked once, by name, kind and shape, and refused in one clear line."""

import ctypes
from dataclasses import fields, replace
from fractions import Fraction as F
from functools import partial

import numpy as np
import pytest

import refnet
from refnet.batch import Batch
from refnet.common.arguments import number
from refnet.exact.convert import lift, lift_all
from refnet.maths import linalg
from refnet.maths.activations import ACTIVATIONS, activation
from refnet.matrices.transitions import SVD, TRANSITIONS, transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import hvp, jvp, loss_and_gradients, per_example_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_jacobians
from refnet.training.optimizers import OPTIMIZERS, RULES
from support.arguments import NAMES, REFUSED, B, C, D, H, T, W, problem, refused, rng, said_well


def label(net):
    parts = [
        str(getattr(net, "widths", getattr(net, "cell", ""))),
        net.activation.name,
        type(net.transition).__name__,
        net.loss,
        getattr(net, "backend", ""),
    ]
    return "-".join(parts)


NETS = (
    [RecurrentNet(D, H, C, cell=cell) for cell in ("rnn", "lstm", "gru", "gru_before")]
    + [RecurrentNet(D, H, C, activation=name) for name in ACTIVATIONS]
    + [FeedforwardNet((D, H, H, C), activation=name) for name in ACTIVATIONS]
    + [RecurrentNet(D, H, C, transition=name) for name in TRANSITIONS]
    + [FeedforwardNet((D, H, H, C), transition=name) for name in TRANSITIONS]
    + [RecurrentNet(D, H, C, cell="lstm", transition="cayley", learn_h0=True)]
    + [StackedNet(D, H, C, cell=cell, layers=2, bidirectional=True) for cell in ("rnn", "lstm")]
)


@pytest.mark.parametrize("net", NETS, ids=label)
def test_declared_shapes_are_those_of_the_start(net):
    """For the cells, their optional parameters, the activations and the transitions."""
    options = {"peepholes": True} if getattr(net, "cell", "") == "lstm" else {}
    start = net.init(rng(), np.float64, weights="orthogonal", **options)
    assert {name: value.shape for name, value in start.items()} == {
        name: net.shapes[name][0] for name in start
    }
    assert net.required <= start.keys() <= net.shapes.keys()


@pytest.mark.parametrize("kind", ["orthogonal", "product", "svd", "expm", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (1, 3)])
def test_declared_shapes_of_rectangular_matrices(kind, shape):
    matrix = transition(kind)
    start = matrix.init(np.eye(*shape))
    assert {name: value.shape for name, value in start.items()} == matrix.shapes(*shape)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_numbers_of_numpys_types_are_taken_without_a_warning(dtype):
    """A warning is an error here; what no float64 holds is refused."""
    assert number("rate", dtype(0.5)) == 0.5
    assert number("limit", dtype(np.inf), "(0, inf]") == np.inf
    with refused("rate is inf; need a number in"):
        number("rate", dtype(np.inf), "[0, inf)")
    for huge in (np.longdouble("1e400"), F(10) ** 400):
        with refused("need a number that a float64 can hold"):
            number("rate", huge)


def steps(net, params, batch):
    """Every function of a net's parameters and a batch, ready to be called."""
    direction = {"x": np.ones_like(batch.x)}
    yield partial(loss_and_gradients, net, params, batch)
    yield partial(net.forward, params, batch.x, batch.mask)
    yield partial(jvp, net, params, batch, direction)
    yield partial(hvp, net, params, batch, direction)
    yield partial(per_example_gradients, net, params, batch)
    if type(net) is RecurrentNet and batch.mask is None and net.cell != "lstm":
        yield partial(state_jacobians, net, params, batch.x)


def wrong_arrays(value):
    """What may stand for an array and must not pass, with the exception that it deserves."""
    yield np.concatenate([value[None], value[None]]), ValueError
    yield value[None], ValueError
    yield value[..., None], ValueError
    if value.ndim:
        yield np.concatenate([value, value]), ValueError
        yield value[:0], ValueError
        yield value[..., :1] if value.shape[-1] > 1 else value[..., [0, 0]], ValueError
    if value.ndim == 2 and value.shape[0] != value.shape[1]:
        yield value.T, ValueError
    yield value.tolist(), TypeError
    yield value.astype(str), TypeError
    yield value > 0, TypeError
    yield np.ma.MaskedArray(value, value > 0), TypeError
    yield None, TypeError
    yield "text", TypeError


@pytest.mark.parametrize(
    "net", [net for net in NETS if net.activation.name in ("tanh", "prelu", "modrelu")], ids=label
)
def test_wrong_parameters_are_named(net):
    params, batch = problem(net)
    for name, value in params.items():
        for wrong, error in wrong_arrays(value):
            if getattr(wrong, "shape", None) in net.shapes[name] and error is ValueError:
                continue  # a slope a unit is as good as one for all
            with refused(f": {name} ", error):
                loss_and_gradients(net, {**params, name: wrong}, batch)
        rest = {key: other for key, other in params.items() if key != name}
        for call in steps(net, rest, batch):
            with refused(f"missing {name}"):
                call()
    for call in steps(net, {**params, "Wyh": np.zeros(2)}, batch):
        with refused("Wyh is unknown"):
            call()


@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(D, H, C),
        RecurrentNet(D, H, C, cell="lstm", readout="every"),
        RecurrentNet(D, H, C, loss="squared_error", checkpoint="sqrt"),
        RecurrentNet(D, H, C, backend="compiled"),
        FeedforwardNet((D, H, C)),
        FeedforwardNet((D, C), loss="squared_error"),
    ],
    ids=label,
)
def test_wrong_batches_are_named(net):
    params, batch = problem(net)
    for name in ("x", "y"):
        for wrong, error in wrong_arrays(getattr(batch, name)):
            if getattr(wrong, "shape", ())[:2] == (2 * T, B) and name == "x":
                continue  # T is free
            wrong_batch = batch._replace(**{name: wrong})
            if name == "x" and getattr(wrong, "shape", ())[1:] == batch.x.shape[1:]:
                continue  # so is B
            with refused(f": {name} ", error):
                loss_and_gradients(net, params, wrong_batch)
    if net.loss == "squared_error":
        with refused("y.real", TypeError):
            loss_and_gradients(net, params, batch._replace(y=batch.y + 1j))
    if isinstance(net, RecurrentNet):
        good = np.ones((T, B), bool)
        for wrong in (
            good[1:],
            good.T,
            good[..., None],
            np.full((T, B), 0.5),
            np.full((T, B), np.nan),
            good * 2,
            good.tolist(),
            "text",
            np.ma.MaskedArray(good),
            good.astype(str),
        ):
            for call in steps(net, params, batch._replace(mask=wrong)):
                with refused("mask", REFUSED):
                    call()
        first, *others = (
            loss_and_gradients(net, params, batch._replace(mask=good.astype(kind))).loss
            for kind in (bool, float, np.uint8)
        )
        assert others == [first] * 2
    else:
        with refused("mask is for sequences"):
            loss_and_gradients(net, params, batch._replace(mask=np.ones((B, 1))))
    outputs, tape = net.forward(params, batch.x)
    for wrong, error in wrong_arrays(outputs):
        with refused("doutputs", error):
            net.backward(params, tape, wrong)
    for extra in ({"by" if "by" in params else "b1": np.zeros((1, C))}, {"Wyh": np.zeros(2)}):
        with refused("extra", REFUSED):
            net.backward(params, tape, outputs, extra=extra)


@pytest.mark.parametrize("function", [jvp, hvp])
def test_directions_are_of_the_computation_s_kind(function):
    """Integers are lifted; floats among exact numbers, and the reverse, are refused."""
    net = RecurrentNet(2, 2, 1, activation="softsign", loss="squared_error")
    params = net.init(rng(), np.float64)
    batch = Batch(np.ones((2, 1, 2)), np.ones((1, 1)))
    exact = (
        lift_all(params, "fraction"),
        Batch(lift(batch.x, "fraction"), lift(batch.y, "fraction")),
    )
    whole = np.eye(2, dtype=int)

    def along(direction, params, batch):
        result = function(net, params, batch, {"Whh": direction})
        return result[1] if function is jvp else result["Whh"]

    assert np.all(along(whole, *exact) == along(lift(whole, "fraction"), *exact))
    assert np.all(along(whole, params, batch) == along(np.eye(2), params, batch))
    for wrong in (np.eye(2), np.eye(2) * 1j, whole > 0):
        with refused("Whh", REFUSED):
            along(wrong, *exact)
    for wrong in (lift(whole, "fraction"), np.eye(2) * 1j, whole * (2**53 + 1), whole > 0):
        with refused("Whh", REFUSED):
            along(wrong, params, batch)


def test_directions_are_checked():
    net = RecurrentNet(D, H, C, activation="prelu")
    params, batch = problem(net)
    for function in (jvp, hvp):
        for direction in (
            {"Wrong": np.ones(2)},
            {"by": np.ones((1, C))},
            {"by": np.ones(1)},
            {"Whh": np.ones(H)},
            {"x": np.ones((T, B, 1))},
            {"by": [1.0, 2.0]},
            {"slope": np.ones(H)},
            {"y": np.ones(B)},
        ):
            with refused(*direction, REFUSED):
                function(net, params, batch, direction)
        with refused("direction", TypeError):
            function(net, params, batch, [1])
        with refused("batch", TypeError):
            function(net, params, tuple(batch), {})
        with refused("net", TypeError):
            function("net", params, batch, {})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x": (3, 2)}, r"need \(T, B, D\) with D = 3.*pass x\[:, None, :\]"),
        (
            {"Wxh": (13, 2)},
            r"Wxh has shape \(13, 2\); need \(16, 3\).*gates of lstm are i, f, g, o",
        ),
        ({"Whh": (4, 16)}, r"Whh has shape \(4, 16\); need \(16, 4\).*: pass Whh.T"),
        ({"Wpo": (2,)}, r"Wpo has shape \(2,\); need \(4,\)"),
        ({"bh": (16, 1)}, r"pass bh.reshape\(16,\)"),
        ({"h0": (2, 3)}, r"h0 has shape \(2, 3\); need \(2, 4\) or \(2, B, 4\) with B = 6"),
        ({"wxh": (2, 3)}, r"wxh is unknown \(did you mean Wxh\?\)"),
    ],
)
def test_the_likely_repair_is_said(change, message):
    net = RecurrentNet(D, H, C, cell="lstm")
    params, batch = problem(net)
    arrays = {**params, "x": batch.x} | {key: np.zeros(shape) for key, shape in change.items()}
    x = arrays.pop("x")
    with refused(message):
        net.forward(arrays, x)


def test_names_and_lists_are_taken_for_what_they_name():
    by_name = RecurrentNet(D, H, C, activation="relu", transition="orthogonal")
    assert by_name.activation is ACTIVATIONS["relu"]
    assert type(by_name.transition).__name__ == "Orthogonal"
    assert replace(by_name, activation="tanh", transition=None) == RecurrentNet(D, H, C)
    assert RecurrentNet(D, H, C, transition="dense").transition is None
    by_spec = RecurrentNet(D, H, C, activation="elu:alpha=0.5", transition="svd:margin=0.1")
    assert by_spec == RecurrentNet(
        D, H, C, activation=activation("elu", alpha=0.5), transition=SVD(margin=0.1)
    )
    assert FeedforwardNet([D, C]).widths == (D, C)
    assert RecurrentNet(D, H, C).init(rng(), recurrent="orthogonal")["Whh"].shape == (H, H)
    hash(FeedforwardNet([D, C])), hash(by_name)


NET_FIELDS = {
    "inputs": (5.5, "5", None, True, 0, -1, [3]),
    "hidden": (5.5, "5", None, True, 0, -1),
    "outputs": (5.5, "5", None, True, 0),
    "cell": NAMES,
    "readout": NAMES,
    "loss": NAMES,
    "activation": ("rellu", 5, None, np.tanh, "leaky_relu:alpha=x", "elu:beta=1", "elu:1"),
    "transition": ("orthogonl", 5, SVD, "svd:margin=x", "svd:wide=1", "svd:.1", "svd:margin=-1"),
    "reduction": NAMES,
    "backend": NAMES,
    "checkpoint": NAMES,
    "gain": ("x", None, float("nan"), float("inf"), True),
    "embedding": (5.5, "5", None, True, -1),
    "projection": (5.5, "5", None, True, -1),
    "learn_h0": (None, "yes", 1),
    "clip_step": (0, -1, "x", float("nan"), True),
    "gate": ("sigmid", 5, None, np.tanh, "prelu"),
    "clip_forward": (0, -1, "x", float("nan"), True),
    "smoothing": (-1, 1, "x", None, float("nan"), True),
    "zoneout": (-1, 1, "x", None, float("nan"), True),
    "noise": ("x", 5, {}),
}


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        *(
            (call, *given)
            for call, given in (
                (refnet.train, ((refnet.Config("adding"), 3), "folder")),
                (refnet.resume, ((None, "run"), "config")),
                (refnet.resume, (("adding", "run"), "config")),
                (refnet.resume, ((refnet.Config("adding"), 3), "folder")),
            )
        ),
        *((refnet.load, (folder,), "folder") for folder in (None, 3, [], b"run")),
        (refnet.check.compare, ({}, None), "certified"),
        (refnet.check.compare, (None, None), "theirs"),
        (refnet.check.compare, ({}, {"dWhh": W}), "certified"),
    ],
)
def test_runs_folders_and_certificates_are_refused_by_name(function, arguments, message):
    with refused(message, TypeError):
        function(*arguments)


def test_names_that_cannot_be_looked_up_are_unknown():
    for wrong in ([], {}, W):  # not even hashable
        for kind, function in (("task", refnet.make_task), ("transition", transition)):
            with refused(f"{kind} .* is unknown"):
                function(wrong)


def refuses_all(function, name, values):
    """Each value is refused as the argument ``name``, which the error names."""
    for value in values:
        with pytest.raises(REFUSED) as raised:
            function(**{name: value})
        said_well(raised.value, name)


def test_fields_of_a_net():
    assert set(NET_FIELDS) == {entry.name for entry in fields(RecurrentNet)}
    for name, wrong in NET_FIELDS.items():
        refuses_all(partial(RecurrentNet, inputs=D, hidden=H, outputs=C), name, wrong)
    refuses_all(
        FeedforwardNet, "widths", (None, 5, (3,), (3, 2.5), (3, 0), "ab", (3, "2"), (3, True))
    )
    net = RecurrentNet(D, H, C)
    wrong = (int, object, "U3", bool, "float33", complex, 5)
    refuses_all(partial(net.init, rng()), "dtype", wrong)
    refuses_all(net.init, "rng", (None, 0, np.random))
    with refused("what weights draws has shape"):
        net.init(rng(), weights=lambda shape, draw: np.ones(3), recurrent="orthogonal", inputs="he")


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_fields_of_optimizers(kind):
    rule = OPTIMIZERS[kind]
    names = {entry.name for entry in fields(rule)}
    for name in names:
        wrong = RULES[name].wrong if name in RULES else (None, 5, "text")
        refuses_all(partial(rule, rate=0.1), name, wrong)
    for name, value in (("beta1", 1), ("momentum", 1.5), ("decay", 1.01)):
        if name in names:
            with refused(r"need a number in \[0, 1"):
                rule(rate=0.1, **{name: value})


@pytest.mark.parametrize("kind", sorted(TRANSITIONS))
def test_fields_of_transitions(kind):
    for entry in fields(TRANSITIONS[kind]):
        wrong = [None, "no such", float("nan"), float("inf"), -1, [1]]
        refuses_all(partial(transition, kind), entry.name, wrong + [True] * (entry.name != "hard"))


def test_c_prototypes_of_python_are_left_alone():
    """``ctypes.pythonapi``'s functions are shared by all libraries of the process."""
    linalg._lapack.cache_clear()
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    before = [(f.argtypes, f.restype) for f in (name, pointer)]
    linalg.solve(np.eye(2), np.eye(2))
    assert before == [(f.argtypes, f.restype) for f in (name, pointer)]
    assert before[0] == (None, ctypes.c_int)
