"""Recorded arrays: values and gradients of every function they know, in every kind of numbers;
views and assignments as in NumPy; everything else is refused by name."""

from copy import copy, deepcopy

import numpy as np
import pytest
import scipy.special

from refnet.check.noise import spread
from refnet.exact import certify_function, stop, surface
from refnet.exact.recorder import Node, Recorded

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(3)
X = RNG.permutation(np.arange(1, 13)).reshape(3, 4) / 16
Y = RNG.permutation(np.arange(-6, 6)).reshape(3, 4) / 8 + 1 / 32
ROWS = np.array([0, 2, 0])
OTHER = np.array([[0.3, 0.9], [0.5, 0.1]])
ORDER = np.array([[3, 0, 1, 2], [1, 1, 0, 3], [2, 3, 1, 0]])


def written_to(x, y):
    sums, clipped = np.zeros_like(x[0]), y.copy()
    np.sum(x * x, axis=0, out=sums)
    clipped.clip(-0.5, 0.5, out=clipped)
    return (sums * clipped).sum()


def assigned(x, y):
    out = np.zeros_like(x)
    out[0] = x[1] * y[0]
    out[1:] += y[1:]
    out[:, 1] *= 2
    out.T[2][1:] = x[:2, 0]  # a view of a view
    flat = out.reshape(-1)
    flat[-1] = 3
    return (out * out).sum()


CASES = {
    "ufuncs": {
        **{
            name: lambda x, y, name=name: (getattr(np, name)(x) * y).sum()
            for name in (
                "negative exp expm1 log log1p sqrt tanh sin cos sinh cosh arctan absolute fabs "
                "positive conjugate square reciprocal"
            ).split()
        },
        "expit": lambda x, y: (scipy.special.expit(y) * x).sum(),
        "erf": lambda x, y: (scipy.special.erf(y) * x).sum(),
        "sign": lambda x, y: (np.sign(y) * x).sum(),
        **{
            name: lambda x, y, name=name: (getattr(np, name)(x, y) * x).sum()
            for name in (
                "add subtract multiply divide power float_power maximum minimum logaddexp hypot"
            ).split()
        },
        "matmul": lambda x, y: (x @ y.T @ x[:, 0]) @ y[:, 1] + (x[0] @ y[:, :, None]).sum(),
    },
    "functions": {
        **{
            name: lambda x, y, name=name: (getattr(np, name)(x * y, axis=0) * x[0]).sum()
            for name in "sum mean var std prod max min amax amin cumsum".split()
        },
        "argmax": lambda x, y: x.sum() * np.argmax(x) + (y * np.argmax(y, axis=1)[:, None]).sum(),
        "argmin": lambda x, y: x.sum() * np.argmin(y),
        "reshape": lambda x, y: (np.reshape(x, (2, 6)) * y.reshape(2, -1)).sum(),
        "ravel": lambda x, y: (np.ravel(x) * y.flatten()).sum(),
        "transpose": lambda x, y: np.transpose(x) @ y * 0.5 @ x[0] @ y.transpose(1, 0)[:, 0],
        "dot": lambda x, y: np.dot(x[0], y[0]) * np.dot(x, y.T).sum() + np.dot(2, x).sum(),
        "clip": lambda x, y: (np.clip(y, -0.3, 0.4) * x).sum() + y.clip(None, x).sum(),
        "swapaxes": lambda x, y: (np.swapaxes(x, 0, 1) * y.T).sum(),
        "squeeze": lambda x, y: (np.squeeze(x[None]) * y).sum(),
        "repeat": lambda x, y: (np.repeat(x, 2, axis=0)[1:4] * y).sum(),
        "take": lambda x, y: (np.take(x, ROWS, axis=0) * y).sum(),
        "diagonal": lambda x, y: (np.diagonal(x) * y[0, :3]).sum(),
        "trace": lambda x, y: np.trace(x @ y.T),
        "copy": lambda x, y: (np.copy(x) * y).sum(),
        "where": lambda x, y: np.where(y > 0, x * x, np.where(x == x[0, 0], 1, y)).sum(),
        "einsum": lambda x, y: np.einsum("ab,cb,ad->cd", x, y, x)[1, 2] + np.einsum("ab->", y),
        "tensordot": lambda x, y: np.tensordot(x, y, 2) + np.tensordot(x, y, ((0,), (0,)))[1, 0],
        "concatenate": lambda x, y: (np.concatenate([x, np.ones((1, 4)), y])[2:5] * x).sum(),
        "stack": lambda x, y: (np.stack([x, y, x * y], axis=1)[:, 1:] ** 2).sum(),
        "split": lambda x, y: (np.split(x, 2, axis=1)[0] * np.split(y, [2], axis=1)[1]).sum(),
        "vstack": lambda x, y: (np.vstack([x[0], y])[:3] * x).sum(),
        "hstack": lambda x, y: (np.hstack([x, y])[:, 2:6] * x).sum(),
        "outer": lambda x, y: np.outer(x[0], y)[1, 2:5].sum(),
        "inner": lambda x, y: np.inner(x, y)[0, 1],
        "linalg.norm": lambda x, y: np.linalg.norm(x) * (np.linalg.norm(y, axis=0)).sum(),
        "broadcast_to": lambda x, y: (np.broadcast_to(x[0], (3, 4)) * y).sum(),
        "tril": lambda x, y: (np.tril(x) * y).sum(),
        "triu": lambda x, y: (np.triu(x, 1) * y).sum(),
        "zeros_like": lambda x, y: (np.zeros_like(x) + x * y).sum(),
        "ones_like": lambda x, y: (np.ones_like(x, shape=(2, 1, 1)) * x * y).sum(),
        "empty_like": assigned,
        "full_like": lambda x, y: (np.full_like(x, 0.25) * y * x).sum(),
        "shape": lambda x, y: (x * y).sum() * np.shape(x)[0] * np.ndim(y) * np.size(x),
        "moveaxis": lambda x, y: (np.moveaxis(x[None], 0, -1)[..., 0] * y).sum(),
        "expand_dims": lambda x, y: (np.expand_dims(x, 1) * y).sum(),
        "atleast_1d": lambda x, y: (np.atleast_1d(x.sum()) * np.atleast_2d(y)).sum(),
        "flip": lambda x, y: (np.flip(x, 1) * y).sum(),
        "roll": lambda x, y: (np.roll(x, 1) * y).sum(),
        "diff": lambda x, y: (np.diff(x, axis=0) * np.diff(y, axis=0)).sum(),
        "take_along_axis": lambda x, y: (np.take_along_axis(x, ORDER, 1) * y).sum(),
        "tile": lambda x, y: (np.tile(x, (2, 1))[1:4] * y).sum(),
        "rot90": lambda x, y: (np.rot90(x) * y.T).sum(),
    },
    "indices": {
        "slices": lambda x, y: (x[1:, ::2] * y[:2, -2:]).sum(),
        "repeated": lambda x, y: (x[ROWS][:, [1, 1, 3, 1]] * y).sum(),
        "bool": lambda x, y: (x[y > 0] ** 2).sum(),
        "entries": lambda x, y: x[0, 1] * y[2, 2] - x[..., -1].sum(),
        "assigned": assigned,
        "iterated": lambda x, y: sum(row[0] * other[1] for row, other in zip(x, y)),
        "reduced": lambda x, y: np.add.reduce(x * y, axis=None),
        "differences": lambda x, y: (np.diff(x, 2) * y[:, 2:]).sum(),
        "column-major": lambda x, y: (x.ravel(order="F") * y.flatten(order="F")[::-1]).sum(),
        "out": written_to,
        "largest": lambda x, y: (
            np.take_along_axis(x, np.argmax(x, 1, keepdims=True), 1) * y
        ).sum(),
        "plain zeros": lambda x, y: (x * y)[np.zeros_like(x, shape=2, dtype=int)].sum(),
        "empty": lambda x, y: (x * y).sum() + np.prod(x[:0]) + np.cumsum(x[:0]).sum(),
        "numbers joined": lambda x, y: (
            (np.hstack([1.0, x.sum(), y[0]]) ** 2).sum() * np.inner(x[0, 0], y.sum())
        ),
        "triangle of a row": lambda x, y: (np.tril(x[0])[:3] * y).sum() * np.triu(y[0], 1).sum(),
        "powers": lambda x, y: (x**3 + x**-2 + x**0.5 + x**1.5 + x**0 + y**2 + x**0.3 + 2**x).sum(),
        "large and negative": lambda x, y: (
            ((-x) ** 65 + (-x) ** 66 + x**64.5 + x**-100).sum() / 1e9
        ),
        "powers of each column": lambda x, y: (
            (-x) ** np.array([1, 2, 0, -3.0])
            + y[:, :1] ** np.array([[2, 3, 3, 70]])
            + x ** np.array([0.5, 1, 2, 0.3])
        ).sum(),
    },
}


@pytest.mark.parametrize(
    "f", [pytest.param(f, id=name) for group in CASES.values() for name, f in group.items()]
)
def test_every_function(f):
    """certify_function itself compares the value with NumPy's and the gradient with
    difference; the perturbed floats compute the same to a rounding or a few."""
    certified = certify_function(f, X, Y)
    for name, sigma in spread(certified, np.float64, runs=4).items():
        value = certified.named()[name].value
        assert (sigma <= 1e4 * np.finfo(float).eps * max(abs(value).max(), 1)).all(), name


def test_the_cases_leave_no_function_out():
    tested = {name for group in CASES.values() for name in group}
    assert set(surface.FULL) <= tested
    assert set(surface.FUNCTIONS) - tested == {"ndim", "size", "atleast_2d"}  # in other cases
    assert set(surface.METHODS) - set(surface.FUNCTIONS) == {"astype", "flatten"}


@pytest.mark.parametrize("name", "exp tanh multiply divide maximum".split())
def test_a_wrong_derivative_is_rejected(name, monkeypatch):
    """The self-check takes part in no rule of differentiation."""
    right = surface.FULL[name]

    def wrong(*inputs):
        y = right(*inputs)
        if y.node.pullbacks:
            (node, pull), *others = y.node.pullbacks
            y.node.pullbacks = ((node, lambda g: pull(g) * 1000001 / 1000000), *others)
        return y

    monkeypatch.setitem(surface.FULL, name, wrong)
    with pytest.raises(ArithmeticError, match="differences to both sides"):
        certify_function(CASES["ufuncs"][name], X, Y)


def test_a_wrong_value_is_rejected(monkeypatch):
    monkeypatch.setitem(surface.FULL, "exp", surface.FULL["expm1"])
    with pytest.raises(ArithmeticError, match="on NumPy's own arrays f is off by"):
        certify_function(CASES["ufuncs"]["exp"], X, Y)


@pytest.mark.parametrize(
    "f",
    [CASES["functions"][name] for name in ("einsum", "prod", "max", "var", "tensordot", "repeat")]
    + list(CASES["indices"].values())[:6],
)
def test_rationals_lie_in_the_balls(f):
    exact = certify_function(f, X, Y, kind="rational")
    balls = certify_function(f, X, Y)
    for name, one in exact.named().items():
        assert np.array_equal(one.value, balls.named()[name].value), name


def recorded(values):
    return Recorded(Node(np.array(values, float), "x", live=True), lambda a, name: np.asarray(a))


def test_views_share_their_entries():
    x, plain = recorded(X), X.copy()
    views = [
        lambda v: v[1:],
        lambda v: v[1:].T,
        lambda v: v.reshape(4, 3)[::2],
        lambda v: np.swapaxes(v, 0, 1)[2],
        lambda v: v[None, :, 1],
    ]
    kept = [(view(x), view(plain)) for view in views]
    for n, (mine, numpys) in enumerate(kept):
        mine[...] = n
        numpys[...] = n
        for one, other in [*kept, (x, plain)]:
            assert np.array_equal(one.raw, other)
    x[ROWS[:2]].raw[...] = 7  # a copy
    assert np.array_equal(x.raw, plain)


LAYOUTS = {
    "rows": lambda v: v[:2, :2],
    "columns": lambda v: v[:2, :2].T,
    "whole": lambda v: v,
    "transposed": lambda v: v.T,
    "every second": lambda v: v[::2, ::2],
    "backwards": lambda v: v[::-1],
    "row": lambda v: v[1],
    "column": lambda v: v[:, 1],
    "axes turned": lambda v: v.reshape(2, 2, 2, 2).transpose(2, 0, 3, 1),
    "no axes": lambda v: v[1, 1, ...],
    "number": lambda v: v[1, 1],
}
FURTHER = {  # arguments after the first
    "reshape": [(-1,), ((4, -1),), ((),)],
    "clip": [(None, None), (0.2, None)],
    "repeat": [(1,)],
    "take": [([0, 1], 0), (0,)],
    "swapaxes": [(0, 1), (0, 0)],
    "moveaxis": [(0, 1)],
    "expand_dims": [(0,)],
    "roll": [(0,)],
    "tile": [(1,)],
    "rot90": [(0,), (1,)],
    "diff": [(0,), (1,)],
    "broadcast_to": [((2, 4, 4),)],
    "full_like": [(2,)],
    "split": [(1,), (2, -1), ([1, 2],)],
    "astype": [(float,), (float, "K", "unsafe", True, False)],
    **{name: [(), (0,), (-1,)] for name in "sum mean max prod var cumsum linalg.norm".split()},
    **{name: [(), ("F",)] for name in "ravel flatten copy".split()},
    "power": [(1,), (0.5,), (2,)],
    "float_power": [(1,)],
    "transpose": [(), ((1, 0),)],
    "take_along_axis": [(np.zeros((2, 2), int), 1)],
    "tensordot": [(OTHER, 1), (OTHER, 2)],
    **{
        name: [(OTHER,)]
        for name in "inner outer dot matmul add subtract multiply divide maximum "
        "minimum logaddexp hypot".split()
    },
}


def calls():
    for table, of in (
        (surface.FUNCTIONS, lambda name: lambda *args: eval(f"np.{name}")(*args)),
        (
            surface.FULL,
            lambda name: (
                lambda *args: getattr(np if hasattr(np, name) else scipy.special, name)(*args)
            ),
        ),
        (surface.METHODS, lambda name: lambda x, *args: getattr(x, name)(*args)),
    ):
        for name in table:
            for further in FURTHER.get(name, [()]):
                yield of(name), name, further
    for name in ("concatenate", "stack", "vstack", "hstack"):
        yield lambda x, name=name: getattr(np, name)([x]), name, ()
    yield lambda x: np.where(True, x, 0), "where", ()
    yield lambda x: np.where(x > 0.5, x, OTHER), "where", ()
    for rule in ("ab->ba", "ab->ab", "ab->", "ab,bc->ca", "ab,ab->ba"):
        yield lambda x, rule=rule: np.einsum(rule, *[x] * (1 + rule.count(","))), "einsum", ()
    yield lambda x: x, "iterated", ()
    for copied in (copy, deepcopy, lambda x: deepcopy({"x": [x]})["x"]):
        yield copied, "copy", ()
    for index in (0, (0, 0), ..., (0, 0, ...), ([0, 1],), None, slice(None)):
        yield lambda x, index=index: x[index], "an index", ()


def written_through(call, layout, base, plain):
    """What base, the result and its entries in a row hold after each is assigned to."""
    y = call(layout(base))
    y = y[0] if isinstance(y, list) else y
    seen = []
    for n, array in enumerate((y, y.reshape(-1), y.ravel(), layout(base), base)):
        try:
            array[...] = n
        except TypeError:
            seen.append("a number")
        seen += [plain(one).copy() for one in (base, y, array)]
    return seen


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_an_assignment_changes(layout):
    """As in NumPy for every function: what is a view is, what is a copy is, and numbers stay."""
    compared = 0
    for call, name, further in calls():
        plain = np.arange(1, 17).reshape(4, 4) / 20
        base = recorded(plain)
        try:
            with np.errstate(all="ignore"):
                numpys = written_through(lambda x: call(x, *further), layout, plain, np.asarray)
            mine = written_through(
                lambda x: call(x, *further),
                layout,
                base,
                lambda one: np.asarray(getattr(one, "raw", one)),
            )
        except Exception:  # no such axes, an array that cannot be written to, or not recorded
            continue
        for one, other in zip(mine, numpys, strict=True):
            assert np.array_equal(one, other) or np.allclose(one, other), (name, further)
        compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    "f, says",
    [
        (lambda x: np.linalg.svd(x)[1].sum(), "np.linalg.svd is not recorded; known: .*einsum"),
        (lambda x: scipy.special.gammaln(x).sum(), "np.gammaln is not recorded; known: .*tanh"),
        (lambda x: np.sort(x).sum(), "np.sort is not recorded"),
        (lambda x: x.argsort().sum(), "argsort of a recorded array is not recorded; its methods"),
        (lambda x: np.add.accumulate(x).sum(), "np.add.accumulate"),
        (lambda x: np.einsum("aa", x[:, :3]), "np.einsum 'aa' of the shapes .* is not recorded"),
        (
            lambda x: np.einsum("ab,ab->a", x, x[:, :1]).sum(),
            "'ab,ab->a' of the shapes .*of one size",
        ),
        (lambda x: np.einsum("ab->abc", x).sum(), "'ab->abc'"),
        (lambda x: np.einsum("abc->a", x).sum(), "'abc->a'"),
        (lambda x: np.linalg.norm(x, ord=1), "ord = 1"),
        (lambda x: np.linalg.norm(x, 2, axis=(0, 1)), "ord = 2"),
        (lambda x: np.sum(x, where=X > 0), "np.sum as called .*'where'.*known: axis"),
        (lambda x: np.max(x, initial=3.0), "initial"),
        (lambda x: np.var(x, correction=1), "correct"),
        (lambda x: np.add.reduce(x, axis=None, initial=3.0), "np.add.reduce as called .*initial"),
        (lambda x: np.trace(x, offset=1), "no option"),
        (lambda x: np.sum(x, out=np.ones(())), "plain"),
        (lambda x: np.einsum(x, [0, 1], [0]).sum(), "as a rule"),
        (lambda x: np.array([x[0], x[1]]).sum(), r"write\s+np.stack"),
        (lambda x: float(x.sum()), "plain numbers"),
        (lambda x: x.astype(int).sum(), "int64"),
        (lambda x: (x.astype(np.float32) ** 2).sum(), "astype of a recorded array in float32"),
        (lambda x: np.zeros_like(x, np.float32).sum() + x.sum(), "like another in float32"),
        (lambda x: x[x].sum(), "an index is of integers"),
        (lambda x: (x * 1j).sum(), "real numbers"),
        (lambda x: np.zeros(3).sum(), "f gave float64"),
        (lambda x: None, "f gave NoneType"),
    ],
)
def test_the_rest_is_refused_by_name(f, says):
    with pytest.raises(TypeError, match=says):
        certify_function(f, X)


def test_targets_of_assignments_are_recorded_too():
    def lost(x):
        out = np.zeros(x.shape)
        out[0] = x[0]
        return out.sum()

    def added(x):
        out = np.zeros(x.shape)
        out += x
        return out.sum()

    for f in (lost, added):
        with pytest.raises(TypeError, match="start from np.zeros_like"):
            certify_function(f, X)
    with pytest.raises(ValueError, match="same entry twice"):
        certify_function(lambda x: x.__setitem__([0, 0], 1), X)


def test_a_constants_logarithm_is_no_constant():
    """It would be rounded."""
    assert certify_function(lambda x: (3**x).sum(), X).constants == ()


def test_ties():
    def softmax(x, top):
        e = np.exp(x - top(x))
        return (e / e.sum())[0]

    tied = np.array([1.0, 1, 0.5])
    once = certify_function(lambda x: softmax(x, np.max), tied).gradients["x"].value
    assert np.array_equal(
        once,
        certify_function(lambda x: softmax(x, lambda v: stop(np.max(v))), tied)
        .gradients["x"]
        .value,
    )
    with pytest.raises(ArithmeticError, match="not narrow enough.* more will not help.*a tie for"):
        certify_function(lambda x: x.max() ** 2, tied)
    with pytest.raises(ArithmeticError, match="two entries tie"):
        certify_function(lambda x: x.max() ** 2, tied, kind="rational")


def test_where_does_not_hide_what_is_not_finite():
    x = np.array([0.0, 1, 2])
    with pytest.raises(ArithmeticError, match=r"np.log is not finite at entry \[0\]"):
        certify_function(lambda x: np.where(x > 0, np.log(x), 0).sum(), x)
    with pytest.raises(ArithmeticError, match="derivative of np.sqrt is not finite"):
        certify_function(lambda x: np.where(x > 0, np.sqrt(x), 0).sum(), x)


def test_gradients_that_are_exactly_zero():
    """A shift of all keys changes no attention: its gradient is 0, which 2048 bits decide."""

    def shifted(x, b):
        e = np.exp(X @ (x + b).T)
        return ((e / e.sum(axis=1, keepdims=True))[:, 0] * Y[:, 0]).sum()

    certified = certify_function(shifted, Y, X[0])
    assert certified.bits == 2048 and not certified.gradients["b"].value.any()
    assert certified.gradients["x"].value.all()


def test_stop_leaves_plain_arrays():
    assert stop(X) is X
