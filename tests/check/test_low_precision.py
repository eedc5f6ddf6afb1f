"""bfloat16, TF32 and float16 with sums in float32: correct programs of each are accepted, bugs in
them are not."""

from fractions import Fraction

import numpy as np
import pytest

from refnet import RecurrentNet
from refnet.check import compare, judge
from refnet.check.arithmetic import NAMED, arithmetic, rounded_to
from refnet.check.noise import spread
from refnet.check.programs.passes import run
from refnet.check.userfunction import Described
from refnet.check.verdict import compare_values
from refnet.exact import certify
from support.arguments import refused

pytestmark = pytest.mark.needs("flint")


class Rounded(np.ndarray):
    """float32 arrays of which every result is rounded to bfloat16."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        plain = [np.asarray(value) for value in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if result.dtype == np.float32:
            result = rounded_to(result, 2.0**-8).view(Rounded)
        if out is None:
            return result
        out[0][...] = result
        return out[0]


def in_float32(a, b):
    """The product in float32, rounded once."""
    return rounded_to(np.asarray(a) @ np.asarray(b), 2.0**-8).view(Rounded)


def step_by_step(a, b):
    """Every partial sum rounded."""
    total = a[..., :1] * b[..., :1, :]
    for k in range(1, a.shape[-1]):
        total = total + a[..., k : k + 1] * b[..., k : k + 1, :]
    return total


def tf32(a, b):
    return rounded_to(a, 2.0**-11) @ rounded_to(b, 2.0**-11)


def half(a, b):
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)


def bfloat16(product):
    def program(net, params, batch, *bugs):
        with np.errstate(all="ignore"):
            return run(
                net,
                {name: value.view(Rounded) for name, value in params.items()},
                batch._replace(x=batch.x.view(Rounded)),
                *bugs,
                product=product,
            )

    return program


def float16(net, params, batch, *bugs):
    return run(
        net,
        {name: value.astype(np.float16) for name, value in params.items()},
        batch._replace(x=batch.x.astype(np.float16)),
        *bugs,
        product=half,
    )


PROGRAMS = {
    "bfloat16": (bfloat16(step_by_step), bfloat16(in_float32)),
    "bfloat16-float32": (bfloat16(in_float32),),
    "float16-float32": (float16,),
    "tf32": (lambda *case: run(*case, product=tf32), lambda *case: run(*case)),
}


def arrays(program, *case):
    return {name: np.asarray(value) for name, value in program(*case).items()}


def cases(name):
    for cell, T, H in (("rnn", 5, 4), ("rnn", 40, 16), ("lstm", 20, 8), ("gru", 20, 8)):
        described = Described(cell=cell)
        net = described.net(H)
        for seed in range(2):
            yield net, *described.arrays(net, name, T, 3, seed)


def wrong(right, net):
    """Five bugs of a whole gradient, by what they do to it."""
    H, G = net.hidden, len(net.gates)
    turned = np.concatenate([block.T for block in right["dWhh"].reshape(G, H, H)])
    yield "dWhh transposed", {"dWhh": turned}
    yield "the sum for the mean", {k: v * 3 for k, v in right.items() if k[0] == "d"}
    yield "dWxh of the inputs turned", {"dWxh": right["dWxh"][:, ::-1]}
    yield "dbh of the other sign", {"dbh": -right["dbh"]}
    yield "dx one step late", {"dx": np.roll(right["dx"], 1, axis=0)}


@pytest.mark.parametrize("name", NAMED)
def test_correct_programs_are_accepted_and_bugs_are_not(name):
    count = 0
    for net, params, batch in cases(name):
        certified = certify(net, params, batch)
        sigma = spread(certified, name)
        true = {key: enclosure.value for key, enclosure in certified.named().items()}
        for program in PROGRAMS[name][::-1]:
            right = arrays(program, net, params, batch)
            verdict = compare(right, certified, dtype=name, sigma=sigma)
            assert verdict.passed, (net.cell, verdict.worst)
            assert verdict.dtype == name
        right = {key: value.astype(np.float32) for key, value in right.items()}
        for bug, other in wrong(right, net):
            verdict = compare_values({**right, **other}, true, sigma, name, ())
            assert not verdict.passed, (net.cell, bug)
            count += verdict.verdict == "not rounding"
    assert count >= (36 if name in ("tf32", "float16-float32") else 32)


def test_a_program_of_less_precision_is_not_one_of_more():
    """bfloat16 is not float32, and TF32 shows beside it."""
    net, params, batch = next(iter(cases("tf32")))
    certified = certify(net, params, batch)
    theirs = PROGRAMS["tf32"][0](net, params, batch)
    verdict = compare(theirs, certified, dtype=np.float32)
    assert verdict.verdict == "not rounding" and "TF32" in verdict.convention
    theirs["dbh"] = theirs["dbh"] * 1.5
    assert "TF32" not in compare(theirs, certified, dtype=np.float32).convention
    net, params, batch = next(iter(cases("bfloat16")))
    certified = certify(net, params, batch)
    theirs = arrays(PROGRAMS["bfloat16"][1], net, params, batch)
    for dtype in ("tf32", "float32"):
        assert compare(theirs, certified, dtype=dtype).verdict == "not rounding"


@pytest.mark.needs("ml_dtypes")
def test_arrays_of_ml_dtypes_say_what_they_are():
    import ml_dtypes

    def square(x):
        return (x * x).sum()

    x = rounded_to(np.linspace(-2, 2, 7).astype(np.float32), 2.0**-8)
    right = {"dx": (2 * x).astype(ml_dtypes.bfloat16)}
    verdict = judge(square, right, x)
    assert verdict.passed and verdict.dtype == "bfloat16"
    assert not judge(square, {"dx": right["dx"] * ml_dtypes.bfloat16(1.25)}, x).passed


def test_numbers_are_rounded_to_nearest_even():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=200), [1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 0.0]])
    for value, rounded in zip(values, rounded_to(values, 2.0**-8)):
        unit = Fraction(2) ** (int(np.frexp(value)[1]) - 8) if value else Fraction(1)
        assert Fraction(float(rounded)) == round(Fraction(float(value)) / unit) * unit


def test_names():
    assert arithmetic("bfloat16").u == 2**-8 and arithmetic(np.float32).u == 2**-24
    assert str(arithmetic("float64")) == "float64"
    for wrong_kind in ("float8", np.int32, np.longdouble, "longdouble", object):
        with refused("bfloat16-float32, float16-float32, tf32"):
            arithmetic(wrong_kind)
    net = RecurrentNet(2, 3, 4)
    with refused("none of float16"):
        judge(net, {}, *Described(inputs=2, outputs=4).arrays(net, "tf32", 2, 2, 0), dtype="tf16")
