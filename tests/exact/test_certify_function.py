"""Certified functions: what is certified is true, and the arguments that do not fit are refused."""

from fractions import Fraction

import numpy as np
import pytest

from refnet import Batch, RecurrentNet
from refnet.check import compare
from refnet.check.noise import spread
from refnet.exact import certify, certify_function, lift, surface
from support.arguments import refused
from support.marks import both_dtypes

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(1)


def of(text):
    return eval(f"lambda x: {text}", {"np": np})


def test_a_net_as_a_function():
    """A tanh net written out has, to the last bit, the values that the certifier gives the net."""
    net = RecurrentNet(2, 3, 2)
    params = net.init(RNG)
    batch = Batch(RNG.normal(size=(30, 2, 2)), np.array([0, 1]))
    names = list(params)

    def written(x, *arrays):
        p = dict(zip(names, arrays))
        h = np.zeros((2, 3))
        for step in x:
            h = np.tanh(step @ p["Wxh"].T + h @ p["Whh"].T + p["bh"])
        v = h @ p["Why"].T + p["by"]
        return (np.log(np.exp(v).sum(axis=1)) - v[np.arange(2), batch.y]).mean()

    of_net = certify(net, params, batch)
    written_out = certify_function(written, batch.x, *params.values())
    assert written_out.value.value == of_net.loss.value
    for n, name in enumerate(("x", *names)):
        argument = "x" if not n else f"x{n}"
        assert np.array_equal(
            written_out.gradients[argument].value, of_net.gradients[name].value
        ), name


def softsign(x, w):
    a = x @ w
    return (a / (1 + abs(a))).sum()


def test_fractions_are_computed_exactly():
    x = np.array([[Fraction(1, 3), Fraction(-2, 7)]])
    w = np.array([[Fraction(1)], [Fraction(2)]])
    certified = certify_function(softsign, x, w)
    a = Fraction(1, 3) - Fraction(4, 7)
    slope = 1 / (1 + abs(a)) ** 2
    assert certified.kind == "rational" and certified.bits == 0
    assert lift(certified.value.exact, "fraction") == a / (1 - a)
    assert (lift(certified.gradients["w"].exact, "fraction") == slope * x.T).all()


def test_cotangents_labels_and_constants():
    def rows(x, labels, rate=0.1):
        return x[np.arange(len(x)), labels] * rate

    x, labels, w = RNG.normal(size=(3, 4)), np.array([3, 0, 1]), np.array([1.0, 2, 3])
    certified = certify_function(rows, x, labels, cotangent=w)
    expected = np.zeros((3, 4))
    expected[np.arange(3), labels] = [float(Fraction(0.1) * Fraction(c)) for c in w]
    assert np.array_equal(certified.gradients["x"].value, expected)
    assert certified.constants == (0.1,) and list(certified.params) == ["x"]
    assert set(certified.named()) == {"value", "dx"}


def test_what_a_function_does_to_its_arguments_does_not_count():
    def centred(x, labels):
        x -= x.mean()
        labels += 1
        return (x[:, labels] ** 2).sum()

    x, labels = np.arange(8.0).reshape(2, 4) ** 2, np.array([0, 1, 2])
    certified = certify_function(centred, x, labels)
    assert np.array_equal(x, np.arange(8.0).reshape(2, 4) ** 2) and labels.tolist() == [0, 1, 2]
    assert certified.value.value == centred(x.copy(), labels.copy())
    assert np.array_equal(certified.arguments["x"], x)


def test_every_argument_has_a_name_of_its_own():
    certified = certify_function(lambda x1, *others: (x1 * others[0]).sum(), np.ones(2), np.ones(2))
    assert list(certified.gradients) == ["x1", "x2"]


def test_a_constant_is_rounded_once_in_each_run():
    """A leak of 0.01 at every step is one float32 number, off in one direction at all steps."""

    def leaky(x):
        for _ in range(50):
            x = x * 1.01
        return x.sum()

    certified = certify_function(leaky, np.ones(2))
    sigma = spread(certified, np.float32)
    theirs = np.prod(np.full(50, np.float32(1.01), np.longdouble))
    off = float(abs(theirs - certified.gradients["x"].value[0]))
    assert off < 4 * sigma["dx"][0]


@both_dtypes
def test_kinks_in_some_runs_only(dtype):
    """Where rounding decides which of two is larger, both gradients are explained."""

    def larger(x):
        return (np.maximum(x[0] * 3, x[1]) * x[2]).sum()

    third = np.array([1 / 3, 1 / 3 * 3 * (1 - np.finfo(dtype).eps / 8), 1])
    certified = certify_function(larger, third)
    for gradient in ([3.0, 0, third[1]], [0, 1.0, third[1]]):
        assert compare({"dx": np.array(gradient, dtype)}, certified).passed
    assert not compare({"dx": np.array([30.0, 0, third[1]], dtype)}, certified).passed


TIMES_X = "; y *= x; out = (x * y).sum() * w"
ALIASES = {
    "a number rebound": "s = x.sum(); t = s; t *= w; out = s + t",
    "a number accumulated": "s = np.dot(x, x) * w; out = s; out += s; out += s; out += s",
    "plus": "y = +x" + TIMES_X,
    "cast": "y = x.astype(float)" + TIMES_X,
    "first power": "y = x**1" + TIMES_X,
    "unclipped": "y = np.clip(x, None, None)" + TIMES_X,
    "halves": "a, b = np.split(x, 2); a *= b; out = (x * x).sum() * w",
    "copied columns": "y = np.stack([x, x * x]).T.copy(); entries = y.reshape(-1); "
    "entries *= x[0]; out = (y * y).sum() * w",
    "zeros by columns": "y = np.zeros_like(np.stack([x, x * x]).T); y[...] = x[0] + w; "
    "entries = y.reshape(-1); entries *= x[0]; out = (y * y).sum()",  # entries are a copy
}


def aliasing(name):
    """The function of x and w that a text of ALIASES is."""

    def f(x, w):
        names = {"np": np, "x": x, "w": w}
        exec(ALIASES[name], names)
        return names["out"]

    return f


@pytest.mark.parametrize("w", [1.0, np.array(1.0)], ids=["number", "array"])
@pytest.mark.parametrize("name", ALIASES)
def test_what_shares_memory_is_as_in_numpy(name, w):
    """Where a product with 1 hides from the value whether it changed one array or two."""
    f, x, shift = aliasing(name), np.ones(2), np.array([0.5, -0.25])

    def plain(step):
        return f(x + step * shift, w + step if type(w) is float else np.array(w + step))

    slope = (plain(1e-5) - plain(-1e-5)) / 2e-5
    proved = certify_function(f, x, w).gradients
    assert abs(proved["x"].value @ shift + proved["w"].value - slope) < 1e-7 * abs(slope)


def test_arrays_keep_their_order_in_memory():
    def scaled(x):
        entries = x.reshape(-1)  # a copy, if x is in the order of columns
        entries *= np.arange(1, 5)
        return (x * x).sum() + entries[1]

    rows = np.array([[1, 2.5], [3, 5]])
    for x in (rows, np.asfortranarray(rows), rows.T):
        certified = certify_function(scaled, x)
        assert certified.value.value == scaled(x.copy(order="K"))
        assert (spread(certified, np.float64)["value"] < 1e-9).all()


def as_it_is(x, *_, **__):
    return x


@pytest.mark.parametrize(
    "alias, table, name, wrong",
    [
        ("a number rebound", surface, "_as_numpys", as_it_is),
        ("a number accumulated", surface, "_as_numpys", as_it_is),
        ("plus", surface, "_copied", as_it_is),
        ("first power", surface, "_copied", as_it_is),
        ("unclipped", surface, "_copied", as_it_is),
        ("cast", surface.METHODS, "astype", as_it_is),
        ("halves", surface.FUNCTIONS, "split", lambda x, n: [x[:1].copy(), x[1:].copy()]),
        ("zeros by columns", surface, "laid_out", lambda a, axes: a.copy()),
    ],
)
def test_memory_that_is_not_as_in_numpy_is_noticed(alias, table, name, wrong, monkeypatch):
    """The comparison with NumPy's own values shares no view, copy or number with the recorder."""
    change = monkeypatch.setitem if type(table) is dict else monkeypatch.setattr
    change(table, name, wrong)
    with refused("on NumPy's own arrays f is off by", ArithmeticError):
        certify_function(aliasing(alias), np.ones(2), np.array(1.0))


@pytest.mark.parametrize(
    "text",
    [
        "((1e16 + x) - 1e16).sum() + x[0]",
        "(1e300 * x * x).sum() * 1e10",
        "(x * 1e-160 * x).sum() * 1e-160",
        "np.tanh(1e9 * (x - 1 / 3)).sum()",
        "np.exp(-2500 * x).sum() * 1e300 * 1e300 * 1e300",
        "np.log(np.exp(3e3 * x)).sum()",
        "(np.cumsum(np.ones(400) * 0.1 * x[0])[-1] - 40 * x[0]) * 1e10",
        "np.sin(1e12 * x).sum()",
        "((x - 1 / 3) ** 3).sum()",
        "(np.sqrt(x - 1 / 3 + 1e-30) + np.arange(3.0)).sum()",
    ],
)
def test_few_digits_are_no_reason_to_refuse(text):
    certify_function(of(text), np.full(3, 1 / 3))


def test_masks_and_indices_may_change_after_use():
    x = np.array([0.1, 0.2, 0.3])

    def padded(x):
        alive, h = np.ones(3, bool), np.zeros_like(x)
        for t in range(3):
            h = np.where(alive, np.tanh(h + x), h)
            alive &= t + 1 < np.array([1, 2, 3])
        return h.sum()

    def chosen(x):
        index, rows, weight, total = np.zeros(1, int), [0], np.ones(3), 0
        for k in range(3):
            index[0] = rows[0] = weight[0] = k
            total = total + x[index] * (
                np.take(x, index)
                * np.take_along_axis(x, index, 0)
                * x[rows]
                * np.repeat(x, index)[:1].sum()
                * (x * weight).sum()
            )
        return total.sum()

    assert certify_function(padded, x).gradients["x"].value.all()
    assert certify_function(chosen, x).gradients["x"].value.all()


@pytest.mark.parametrize(
    "text, says",
    [
        ("abs(x).sum()", "not narrow enough"),
        ("np.sign(x).sum()", "kink or a jump"),
        ("(x * x + np.where(x == 0, 5, 0)).sum()", "kink or a jump"),
        ("np.where(x != 0, abs(x), 0).sum()", "kink or a jump"),
        ("np.where(x > 0, x, 2 * x).sum()", "kink or a jump"),
    ],
)
def test_derivatives_that_do_not_exist(text, says):
    with refused(says, ArithmeticError):
        certify_function(of(text), np.array([0.0, 1]))


@pytest.mark.parametrize(
    "text, slopes",
    [
        ("(x * abs(x)).sum()", [0, 2]),
        ("np.where(x == x[0], x, 0).sum()", [1, 0]),
        ("np.where(x > 0, x * x, -x * x).sum()", [0, 2]),
        ("(x**3).sum()", [0, 3]),
        ("(x ** np.array([2, -1])).sum()", [0, -1]),
        (
            "np.where(x == 0, 1, np.sin(x) / np.where(x == 0, 1, x)).sum()",
            [0, np.cos(1) - np.sin(1)],
        ),
    ],
)
def test_derivatives_that_exist_at_a_comparison(text, slopes):
    gradient = certify_function(of(text), np.array([0.0, 1])).gradients["x"].value
    assert gradient == pytest.approx(slopes, rel=1e-12)


@pytest.mark.parametrize(
    "text, error, says",
    [
        ("np.sum(x, dtype=int)", TypeError, "np.sum in int64"),
        ("np.mean(x, dtype=np.float32)", TypeError, "in float32"),
        ("np.add(x, x, dtype=int).sum()", TypeError, "np.add in int64"),
        *(
            (text, np.exceptions.AxisError, "out of bounds")
            for text in (
                "x.sum(axis=2).sum()",
                "np.max(x, -3)",
                "np.concatenate([x], 2)",
                "np.cumsum(x, 2)",
                "np.split(x, 1, 2)[0]",
                "np.diff(x, axis=2)",
            )
        ),
        ("np.mean(x[:0])", ValueError, "the mean of no entries"),
        ("x.ravel('K').sum()", TypeError, "order 'A' or 'K'"),
        ("x.sum().__setitem__((), 3)", TypeError, "a number in NumPy"),
    ],
)
def test_calls_that_are_refused(text, error, says):
    with pytest.raises(error, match=says):
        certify_function(of(text), np.ones((2, 2)))


def test_an_angle_is_no_rational_number():
    with refused("np.arctan2 of fmpq 1 .*kind='ball'", TypeError):
        certify_function(lambda x: np.arctan2(x, x).sum(), np.array([Fraction(1)]))


def test_sums_and_products_of_no_rows():
    """A bias that is added to an empty batch."""
    x, b = np.ones((0, 3)), np.ones(3)
    proved = certify_function(lambda x, b: np.tanh(x + b).sum() + (b * b).sum(), x, b)
    assert compare({"dx": x, "db": 2 * b}, proved).passed
    assert not compare({"dx": x, "db": b}, proved).passed
    product = certify_function(lambda x, w: (x @ w).sum(), x, np.ones((3, 2)))
    assert product.value.value == 0 and not product.gradients["w"].value.any()


@pytest.mark.parametrize(
    "arguments, options, says",
    [
        ((np.ones((2, 2)),), {}, "pass cotangent"),
        ((np.ones((2, 2)),), {"cotangent": np.ones(2)}, r"need \(2, 2\)"),
        ((np.ones(2, int),), {}, "no argument is an array of floats"),
        ((np.ones(1),), {"kind": "float"}, "choose one of ball, rational"),
        ((np.ones(1),), {"bits": 0}, "bits is 0"),
        ((np.ones(1),), {"max_bits": 2.5}, "max_bits is"),
        ((np.ones(1),), {"radius": -1}, "radius is -1"),
        ((np.ones(1),), {"max_seconds": -1}, "max_seconds is -1"),
        ((np.ma.array([1.0], mask=[True]),), {}, "x is a masked array"),
        ((np.ones((1, 1)).view(np.matrix),), {}, r"pass np.asarray\(x\)"),
        ((np.array([np.nan]),), {}, r"x: entry \(0,\) is nan"),
    ],
)
def test_refusals(arguments, options, says):
    with refused(says, (TypeError, ValueError)):
        certify_function(lambda x: x * 2, *arguments, **options)


def test_limits():
    with refused("certify_function: dx.*at 128 bits; raise max_bits", ArithmeticError):
        certify_function(lambda x: (np.exp(x) / np.exp(x)).sum(), np.ones(2), max_bits=128)
    with refused("certify_function: .*max_seconds", TimeoutError):
        certify_function(softsign, np.ones((2, 2)), np.ones((2, 1)), max_seconds=1e-9)
