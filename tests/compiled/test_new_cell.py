"""What a cell costs: the minimal gated unit that ``refnet new cell`` prints."""

from importlib.resources import files

import numpy as np
import pytest

from refnet.maths.activations import ACTIVATIONS
from refnet.maths.dual import dual_array, parts
from refnet.names import find
from support.compiled import EXACT_RUN, draw_gated
from support.subprocesses import run_on_fractions

FILE = files("refnet.prove").joinpath("examples", "cell.py")
mgu = find(f"{FILE}:MGU")
mgu_compiled = mgu.KERNEL


def test_it_is_short():
    assert len(FILE.read_text("utf-8").splitlines()) < 160


def compare(dtype, changed=lambda gradients: gradients):
    rng, tolerance = np.random.default_rng(5), 256 * np.finfo(dtype).eps  # as the other cells
    for name, clip in (("tanh", None), ("prelu", None), ("softsign", 0.3)):
        act = ACTIVATIONS[name]
        p, x, h0, dh = draw_gated(rng, mgu, act, 5, 19, 3, 34, 2, np.dtype(dtype))
        want, got = mgu.forward(p, x, h0, act), mgu_compiled.forward(p, x, h0, act)
        assert abs(got.h - want.h).max() <= tolerance * abs(want.h).max()
        expected = mgu.backward(p, want, dh, act, clip=clip)
        gradients = changed(mgu_compiled.backward(p, want, dh, act, clip=clip))
        assert set(gradients) == set(expected)
        for key, value in expected.items():
            assert abs(gradients[key] - value).max() <= tolerance * abs(value).max(), key


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_compiled_cell_matches_the_reference(dtype):
    compare(dtype)


@pytest.mark.parametrize("name", ["Whh", "Wxh", "bh", "h0", "x"])
def test_a_planted_bug_is_rejected(name):
    with pytest.raises(AssertionError):
        compare("f8", lambda gradients: {**gradients, name: gradients[name] * 1.001})


def test_the_reference_is_the_derivative():
    """``<dh, J v> == <J' dh, v>`` for a tangent in every parameter, x and h0."""
    act = ACTIVATIONS["tanh"]
    rng = np.random.default_rng(6)
    p, x, h0, dh = draw_gated(rng, mgu, act, 4, 2, 3, 5, 4, np.dtype("f8"))
    at = {**p, "x": x, "h0": h0}
    v = {name: rng.standard_normal(value.shape) for name, value in at.items()}
    dual = {name: dual_array(value, v[name]) for name, value in at.items()}
    moved = parts(mgu.forward(dual, dual["x"], dual["h0"], act).h)[1].astype(float)
    gradients = mgu.backward(p, mgu.forward(p, x, h0, act), dh, act)
    pulled = sum((gradients[name] * v[name]).sum() for name in at)
    assert abs((moved[1:] * dh).sum() - pulled) <= 1e-12 * sum(
        abs(gradients[name] * v[name]).sum() for name in at
    )


def test_the_source_is_exact_on_fractions():
    """As for the package's own cells."""
    code = EXACT_RUN.replace('("rnn", "lstm", "gru", "gru_before")', '("mgu",)').replace(
        """(import_module(f"refnet.{room}.{cell}") for room in ("cells", "compiled"))""",
        f"(find(f'{FILE}:{{name}}') for name in ('MGU', 'Kernel'))",
    )
    walk = f"find('{FILE}:Kernel').WALK = find('{FILE}:WALK')"
    assert run_on_fractions(f"from refnet.names import find\n{walk}\n{code}") > 100
