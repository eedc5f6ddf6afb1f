"""Recorded arrays: values and gradients of every function they know, in every kind of numbers;
views and assignments as in NumPy; everything else is refused by name."""

from copy import copy, deepcopy

import numpy as np
import pytest
import scipy.special

from refnet.exact import certify_function, stop, surface
from refnet.exact.recorder import Node, Recorded
from support.arguments import refused
from support.balls import assert_rounding_is_small

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


LINEAR_ALGEBRA = {
    "solve": "(np.linalg.solve(y[:, :3], x) * y).sum() + np.linalg.solve(y[:, 1:], x[:, 0])[1]",
    "inv": "(np.linalg.inv(np.stack([x[:, :3], y[:, 1:]])) * y[:, :3]).sum()",
    "det": "np.linalg.det(y[:, :3]) * np.linalg.det(x[:, 1:] @ y[:, :3])",
    "slogdet": "np.linalg.slogdet(y[:, :3])[0] * x[0, 0] + np.linalg.slogdet(x[:, :3]).logabsdet",
    "cholesky": "(np.linalg.cholesky(y @ y.T + np.eye(3)) @ x).sum()"
    "+ np.linalg.cholesky(x @ x.T + np.eye(3) * y[0, 0] ** 2, upper=True)[0, 2]",
    "matrix_power": "np.linalg.matrix_power(y[:, :3], 5)[0, 1]"
    "+ np.linalg.matrix_power(y[:, :3], -2)[1, 2] + np.linalg.matrix_power(x[:, 1:], 0)[0, 0]",
    "qr": "(np.linalg.qr(y)[0] @ x).sum() + (np.linalg.qr(y, 'r') * x).sum()"
    "+ np.linalg.qr(x.T).Q[3, 2]",
    "eigh": "sum((part * x[:, :3]).sum() for part in np.linalg.eigh(y[:, 1:]))"
    "+ np.linalg.eigh(y[:, :3], 'U')[1][0, 2]",
    "eigvalsh": "np.linalg.eigvalsh(y[:, :3]) @ x[:, 0]",
    "svd": "sum((part * x[:, :3]).sum() for part in np.linalg.svd(y[:, 1:]))"
    "+ sum((part[0] * part[-1]).sum() for part in np.linalg.svd(y, full_matrices=False))"
    "+ sum(part.sum() ** 2 for part in np.linalg.svd(y.T, False))",
    "svdvals": "np.linalg.svdvals(y) @ x[0, :3] + np.linalg.svd(x, compute_uv=False)[1]",
}

CASES = {
    "ufuncs": {
        **{
            name: f"(np.{name}(x) * y).sum()"
            for name in (
                "negative exp expm1 log log1p sqrt tanh sin cos sinh cosh arctan absolute fabs "
                "positive conjugate square reciprocal"
            ).split()
        },
        **{name: f"(np.{name}(x) * y).sum()" for name in ("log2", "log10", "exp2")},
        "arctan2": "(np.arctan2(y, x) * x).sum() + np.arctan2(y, -x)[1, 2]",
        "expit": "(scipy.special.expit(y) * x).sum()",
        "erf": "(scipy.special.erf(y) * x).sum()",
        "gammaln": "(scipy.special.gammaln(x * x + y * y) * x).sum()",
        "sign": "(np.sign(y) * x).sum()",
        **{
            name: f"(np.{name}(x, y) * x).sum()"
            for name in (
                "add subtract multiply divide power float_power maximum minimum logaddexp hypot"
            ).split()
        },
        "matmul": "x @ y.T @ x[:, 0] @ y[:, 1] + (x[0] @ y[:, :, None]).sum()",
    },
    "functions": {
        **{
            name: f"(np.{name}(x * y, axis=0) * x[0]).sum()"
            for name in "sum mean var std prod max min amax amin cumsum".split()
        },
        "argmax": "x.sum() * np.argmax(x) + (y * np.argmax(y, axis=1)[:, None]).sum()",
        "argmin": "x.sum() * np.argmin(y)",
        "reshape": "(np.reshape(x, (2, 6)) * y.reshape(2, -1)).sum()",
        "ravel": "(np.ravel(x) * y.flatten()).sum()",
        "transpose": "np.transpose(x) @ y * 0.5 @ x[0] @ y.transpose(1, 0)[:, 0]",
        "dot": "np.dot(x[0], y[0]) * np.dot(x, y.T).sum() + np.dot(2, x).sum()",
        "clip": "(np.clip(y, -0.3, 0.4) * x).sum() + y.clip(None, x).sum()",
        "swapaxes": "(np.swapaxes(x, 0, 1) * y.T).sum()",
        "squeeze": "(np.squeeze(x[None]) * y).sum()",
        "repeat": "(np.repeat(x, 2, axis=0)[1:4] * y).sum()",
        "take": "(np.take(x, ROWS, axis=0) * y).sum()",
        "diagonal": "(np.diagonal(x) * y[0, :3]).sum()",
        "trace": "np.trace(x @ y.T)",
        "copy": "(np.copy(x) * y).sum()",
        "where": "np.where(y > 0, x * x, np.where(x == x[0, 0], 1, y)).sum()",
        "einsum": "np.einsum('ab,cb,ad->cd', x, y, x)[1, 2] + np.einsum('ab->', y)"
        "+ np.einsum('...a,ba->...b', x, y)[2, 1] * np.einsum('aa', x[:, :3])"
        "+ (np.einsum('aab->ba', np.stack([x[:, :3], y[:, 1:], x[:, 1:]])) * y[:, :3]).sum()"
        "+ np.einsum('...a,...a', x, y)[1]",
        "tensordot": "np.tensordot(x, y, 2) + np.tensordot(x, y, ((0,), (0,)))[1, 0]",
        "concatenate": "(np.concatenate([x, np.ones((1, 4)), y])[2:5] * x).sum()",
        "stack": "(np.stack([x, y, x * y], axis=1)[:, 1:] ** 2).sum()",
        "split": "(np.split(x, 2, axis=1)[0] * np.split(y, [2], axis=1)[1]).sum()",
        "vstack": "(np.vstack([x[0], y])[:3] * x).sum()",
        "hstack": "(np.hstack([x, y])[:, 2:6] * x).sum()",
        "outer": "np.outer(x[0], y)[1, 2:5].sum()",
        "inner": "np.inner(x, y)[0, 1]",
        "linalg.norm": "np.linalg.norm(x) * np.linalg.norm(y, axis=0).sum() + sum("
        "np.linalg.norm(y * x[0], order, (1, 0)) for order in (2, -2, 'nuc', 'fro', 1, -1, np.inf)"
        ") + sum((np.linalg.norm(x, order, 1) * y[:, 0]).sum() for order in (1, 2, 3.5, -np.inf))"
        "+ np.linalg.norm(y, 2, axis=(0, 1), keepdims=True)[0, 0]",
        "broadcast_to": "(np.broadcast_to(x[0], (3, 4)) * y).sum()",
        "tril": "(np.tril(x) * y).sum()",
        "triu": "(np.triu(x, 1) * y).sum()",
        "zeros_like": "(np.zeros_like(x) + x * y).sum()",
        "ones_like": "(np.ones_like(x, shape=(2, 1, 1)) * x * y).sum()",
        "empty_like": "assigned(x, y)",
        "full_like": "(np.full_like(x, 0.25) * y * x).sum()",
        "shape": "(x * y).sum() * np.shape(x)[0] * np.ndim(y) * np.size(x)",
        "moveaxis": "(np.moveaxis(x[None], 0, -1)[..., 0] * y).sum()",
        "expand_dims": "(np.expand_dims(x, 1) * y).sum()",
        "atleast_1d": "(np.atleast_1d(x.sum()) * np.atleast_2d(y)).sum()",
        "flip": "(np.flip(x, 1) * y).sum()",
        "roll": "(np.roll(x, 1) * y).sum()",
        "diff": "(np.diff(x, axis=0) * np.diff(y, axis=0)).sum()",
        "take_along_axis": "(np.take_along_axis(x, ORDER, 1) * y).sum()",
        "tile": "(np.tile(x, (2, 1))[1:4] * y).sum()",
        "rot90": "(np.rot90(x) * y.T).sum()",
        "diag": "(np.diag(x[0]) @ y.T).sum() * np.diag(x[:, 1:], -1)[1] + np.diag(x[0], 2)[1, 3]",
        "pad": "(np.pad(x, ((0, 0), (1, 0)))[:, :-1] * y).sum() + np.pad(x, 1).sum()",
        "block": "(np.block([[x, y], [y, x]])[1:4, 3:7] * x).sum()"
        "+ np.block([x[0], 1.0])[1:].sum()",
        "kron": "(np.kron(x[:2], y)[1:4, 3:7] * x).sum()",
        "column_stack": "(np.column_stack([x[0], y.T])[:, 1:].T * x).sum()",
        "append": "(np.append(x, y, axis=0)[2:5] * x).sum() + np.append(x, 1)[3]",
        "real": "(np.real(x) * x.real * np.conj(y) * x.conj() * y.conjugate()).sum()",
        "imag": "np.imag(x).sum() + x.imag.sum() + x.sum()",
        **{f"linalg.{name}": text for name, text in LINEAR_ALGEBRA.items()},
    },
    "indices": {
        "slices": "(x[1:, ::2] * y[:2, -2:]).sum()",
        "repeated": "(x[ROWS][:, [1, 1, 3, 1]] * y).sum()",
        "bool": "(x[y > 0] ** 2).sum()",
        "entries": "x[0, 1] * y[2, 2] - x[..., -1].sum()",
        "assigned": "assigned(x, y)",
        "iterated": "sum(row[0] * other[1] for row, other in zip(x, y))",
        "reduced": "np.add.reduce(x * y, axis=None)",
        "differences": "(np.diff(x, 2) * y[:, 2:]).sum()",
        "column-major": "(x.ravel(order='F') * y.flatten(order='F')[::-1]).sum()",
        "out": "written_to(x, y)",
        "largest": "(np.take_along_axis(x, np.argmax(x, 1, keepdims=True), 1) * y).sum()",
        "plain zeros": "(x * y)[np.zeros_like(x, shape=2, dtype=int)].sum()",
        "empty": "(x * y).sum() + np.prod(x[:0]) + np.cumsum(x[:0]).sum()",
        "numbers joined": "(np.hstack([1.0, x.sum(), y[0]]) ** 2).sum()"
        "* np.inner(x[0, 0], y.sum())",
        "triangle of a row": "(np.tril(x[0])[:3] * y).sum() * np.triu(y[0], 1).sum()",
        "powers": "(x**3 + x**-2 + x**0.5 + x**1.5 + x**0 + y**2 + x**0.3 + 2**x).sum()",
        "large and negative": "((-x) ** 65 + (-x) ** 66 + x**64.5 + x**-100).sum() / 1e9",
        "powers of each column": (
            "((-x) ** np.array([1, 2, 0, -3.0]) + y[:, :1] ** np.array([[2, 3, 3, 70]])"
            "+ x ** np.array([0.5, 1, 2, 0.3])).sum()"
        ),
    },
}


def of(text, arguments="x, y"):
    names = globals() | {"copy": copy, "deepcopy": deepcopy, "scipy": scipy}
    return eval(f"lambda {arguments}: {text}", names)


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=n) for group in CASES.values() for n, text in group.items()]
)
def test_every_function(text):
    """certify_function itself compares the value with NumPy's and the gradient with
    difference; the perturbed floats compute the same to a rounding or a few."""
    assert_rounding_is_small(certify_function(of(text), X, Y))


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
    with refused("differences to both sides", ArithmeticError):
        certify_function(of(CASES["ufuncs"][name]), X, Y)


def test_a_wrong_value_is_rejected(monkeypatch):
    monkeypatch.setitem(surface.FULL, "exp", surface.FULL["expm1"])
    with refused("on NumPy's own arrays f is off by", ArithmeticError):
        certify_function(of(CASES["ufuncs"]["exp"]), X, Y)


@pytest.mark.parametrize(
    "text",
    [CASES["functions"][name] for name in "einsum prod max var tensordot repeat".split()]
    + list(CASES["indices"].values())[:6],
)
def test_rationals_lie_in_the_balls(text):
    exact, balls = (certify_function(of(text), X, Y, kind=kind) for kind in ("rational", "ball"))
    for name, enclosure in exact.named().items():
        assert np.array_equal(enclosure.value, balls.named()[name].value), name


def recorded(values):
    return Recorded(Node(np.array(values, float), "x", live=True), lambda a, name: np.asarray(a))


def test_views_share_their_entries():
    x, plain = recorded(X), X.copy()
    texts = ("v[1:]", "v[1:].T", "v.reshape(4, 3)[::2]", "np.swapaxes(v, 0, 1)[2]", "v[None, :, 1]")
    views = [(of(text, "v")(x), of(text, "v")(plain)) for text in texts]
    for n, (ours, numpys) in enumerate(views):
        ours[...] = n
        numpys[...] = n
        for view, other in [*views, (x, plain)]:
            assert np.array_equal(view.raw, other)
    x[ROWS[:2]].raw[...] = 7  # a copy
    assert np.array_equal(x.raw, plain)


LAYOUTS = {
    "rows": "v[:2, :2]",
    "columns": "v[:2, :2].T",
    "whole": "v",
    "transposed": "v.T",
    "every second": "v[::2, ::2]",
    "backwards": "v[::-1]",
    "row": "v[1]",
    "column": "v[:, 1]",
    "axes turned": "v.reshape(2, 2, 2, 2).transpose(2, 0, 3, 1)",
    "no axes": "v[1, 1, ...]",
    "number": "v[1, 1]",
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
    """A function of an array, the name of what it calls, and its further arguments."""
    for table, text in (
        (surface.FUNCTIONS, "np.{}(x, *more)"),
        (surface.FULL, "(np.{0} if hasattr(np, '{0}') else scipy.special.{0})(x, *more)"),
        (surface.METHODS, "x.{}(*more)"),
    ):
        for name in table:
            for more in FURTHER.get(name, [()]):
                yield of(text.format(name), "x, *more"), name, more
    for text in (
        *(f"np.{name}([x])" for name in ("concatenate", "stack", "vstack", "hstack")),
        "np.where(True, x, 0)",
        "np.where(x > 0.5, x, OTHER)",
        *(f"np.einsum('{rule}', x)" for rule in ("ab->ba", "ab->ab", "ab->")),
        *(f"np.einsum('{rule}', x, x)" for rule in ("ab,bc->ca", "ab,ab->ba")),
        *("x", "copy(x)", "deepcopy(x)", "deepcopy({'x': [x]})['x']"),
        *("x[0]", "x[0, 0]", "x[...]", "x[0, 0, ...]", "x[[0, 1],]", "x[None]", "x[:]"),
    ):
        yield of(text, "x"), text, ()


def entries_of(array):
    return np.asarray(getattr(array, "raw", array)).copy()


def written_through(call, layout, base, more):
    """What base, the result and its entries in a row hold after each is assigned to."""
    y = call(layout(base), *more)
    y = y[0] if isinstance(y, list) else y
    seen = []
    for n, array in enumerate((y, y.reshape(-1), y.ravel(), layout(base), base)):
        try:
            array[...] = n
        except TypeError:
            seen.append("a number")
        seen += map(entries_of, (base, y, array))
    return seen


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_an_assignment_changes(layout):
    """As in NumPy for every function: what is a view is, what is a copy is, and numbers stay."""
    compared, layout = 0, of(layout, "v")
    for call, name, more in calls():
        plain = np.arange(1, 17).reshape(4, 4) / 20
        base = recorded(plain)
        try:
            with np.errstate(all="ignore"):
                numpys = written_through(call, layout, plain, more)
            ours = written_through(call, layout, base, more)
        except Exception:  # no such axes, an array that cannot be written to, or not recorded
            continue
        for a, b in zip(ours, numpys, strict=True):
            assert np.array_equal(a, b) or np.allclose(a, b), (name, more)
        compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    "text, says",
    [
        ("np.linalg.pinv(x).sum()", "np.linalg.pinv is not recorded; known: .*einsum"),
        ("np.linalg.svd(x)[1].sum()", "further vectors .* use full_matrices=False"),
        ("np.linalg.svd(x[:, :3], hermitian=True)[1].sum()", "use np.linalg.eigh"),
        ("np.linalg.qr(x, 'raw')[1].sum()", "mode = 'raw'"),
        ("np.linalg.norm(x[0], 0)", "ord = 0"),
        ("scipy.special.erfc(x).sum()", "scipy.special.erfc is not recorded; known: .*tanh"),
        ("np.sort(x).sum()", "np.sort is not recorded"),
        ("x.argsort().sum()", "argsort of a recorded array is not recorded; its methods"),
        ("np.add.accumulate(x).sum()", "np.add.accumulate"),
        ("np.einsum('aa', x)", "np.einsum 'aa' of the shapes .* is not recorded"),
        ("np.einsum('ab,ab->a', x, x[:, :1]).sum()", "'ab,ab->a' of the shapes .*of one size"),
        ("np.einsum('ab->abc', x).sum()", "'ab->abc'"),
        ("np.einsum('abc->a', x).sum()", "'abc->a'"),
        ("np.linalg.norm(x, ord=3)", "ord = 3"),
        ("np.sum(x, where=X > 0)", "np.sum as called .*'where'.*known: axis"),
        ("np.max(x, initial=3.0)", "initial"),
        ("np.var(x, correction=1)", "correct"),
        ("np.add.reduce(x, axis=None, initial=3.0)", "np.add.reduce as called .*initial"),
        ("np.trace(x, offset=1)", "no option"),
        ("np.sum(x, axis=0, out=X[0])", "plain"),
        ("np.einsum(x, [0, 1], [0]).sum()", "as a rule"),
        ("float(x.sum())", "plain numbers"),
        ("x.astype(int).sum()", "int64"),
        ("(x.astype(np.float32) ** 2).sum()", "astype of a recorded array in float32"),
        ("np.zeros_like(x, np.float32).sum() + x.sum()", "like another in float32"),
        ("x[x].sum()", "an index is of integers"),
        ("scipy.special.softmax(x * 1j).sum()", "softmax of complex numbers"),
        ("np.sort(x * 1j).sum()", "np.sort of complex numbers .*known: .*einsum"),
        ("np.log(x * 1j).sum()", "np.log of complex numbers .*known: .*exp"),
        ("np.zeros(3).sum()", "f gave float64"),
        ("None", "f gave NoneType"),
    ],
)
def test_the_rest_is_refused_by_name(text, says):
    with refused(says, TypeError):
        certify_function(of(text, "x"), X)


def test_an_entry_is_assigned_once():
    with refused("same entry twice"):
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
    with refused("not narrow enough.* more will not help.*a tie for", ArithmeticError):
        certify_function(lambda x: x.max() ** 2, tied)
    with refused("two entries tie", ArithmeticError):
        certify_function(lambda x: x.max() ** 2, tied, kind="rational")


def test_where_does_not_hide_what_is_not_finite():
    x = np.array([0.0, 1, 2])
    with refused(r"np.log is not finite at entry \[0\]", ArithmeticError):
        certify_function(lambda x: np.where(x > 0, np.log(x), 0).sum(), x)
    with refused("derivative of np.sqrt is not finite", ArithmeticError):
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
