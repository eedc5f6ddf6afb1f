"""The example of a cell, ``refnet new cell``: the minimal gated unit."""

import numpy as np
import pytest

from refnet.maths.activations import ACTIVATIONS
from refnet.prove.examples.cell import MGU
from support.compiled import EXACT_RUN, assert_agree, draw_case
from support.oracles import gap
from support.subprocesses import run_on_fractions


def compare(dtype):
    rng = np.random.default_rng(5)
    for name, clip in (("tanh", None), ("prelu", None), ("softsign", 0.3)):
        act = ACTIVATIONS[name]
        case = draw_case(rng, MGU, act, (5, 19, 3, 34, 2), np.dtype(dtype))
        assert_agree(MGU, MGU.KERNEL, case, act, clip=clip)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_compiled_cell_matches_the_reference(dtype):
    compare(dtype)


def test_the_reference_is_the_derivative():
    """``<dh, J v> == <J' dh, v>`` for a tangent in every parameter, x and h0."""
    act = ACTIVATIONS["tanh"]
    rng = np.random.default_rng(6)
    p, x, h0, dh = draw_case(rng, MGU, act, (4, 2, 3, 5, 4), np.dtype("f8"))
    at = {**p, "x": x, "h0": h0}
    v = {name: rng.standard_normal(value.shape) for name, value in at.items()}
    pulled = MGU.backward(p, MGU.forward(p, x, h0, act), dh, act)
    error = gap(lambda at: MGU.forward(at, at["x"], at["h0"], act).h[1:], at, v, dh, pulled)
    assert abs(error) <= 1e-12 * sum(abs(pulled[name] * v[name]).sum() for name in at)


def test_the_source_is_exact_on_fractions():
    """As for the package's own cells."""
    code = EXACT_RUN.replace('("rnn", "lstm", "gru", "gru_before")', '("mgu",)').replace(
        """(import_module(f"refnet.{room}.{cell}") for room in ("cells", "compiled"))""",
        "(MGU, MGU.KERNEL)",
    )
    start = "from refnet.prove.examples.cell import MGU, WALK\nMGU.KERNEL.WALK = WALK\n"
    assert run_on_fractions(start + code) > 100
