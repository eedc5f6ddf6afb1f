"""The gated recurrent unit of ``refnet.cells.gru``, compiled: its step, and the walk over time."""

from typing import Any

from refnet.batch import Array, Params
from refnet.cells.gru import CANDIDATE, GATES, SIGMOID, STATES, Tape, init
from refnet.compiled import walk
from refnet.compiled._jit import inlined
from refnet.compiled.annotations import Arg
from refnet.compiled.step import Cell, Product, activate, slope
from refnet.compiled.vector import number
from refnet.compiled.walk import Walk
from refnet.maths.activations import Activation

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init"]

R, Z, N = range(3)


@inlined
def step(at: Arg, stage: int) -> None:
    """``r = s(a_r);  z = s(a_z);  n = act(a_n + r u);  h = (1 - z) n + z h``."""
    u, r, z, n = at.panels
    (h,) = at.state
    activate(at, at.gate, R, r)
    activate(at, at.gate, Z, z)
    for j in range(len(h)):
        n[j] += r[j] * u[j]
    activate(at, at.act, N, n)
    for j in range(len(h)):
        h[j] = (number(1.0, h[j]) - z[j]) * n[j] + z[j] * h[j]


@inlined
def step_back(at: Arg, stage: int) -> None:
    """With e the gradient at the state after::

    da_n = act'(a_n) ((1 - z) e);  da_z = s'(a_z) ((h - n) e);  da_r = s'(a_r) (u da_n)
    du = r da_n;                   e = z e, and what comes through the products
    """
    u, r, z, n = at.panels
    du, dr, dz, dn = at.da
    (h,) = at.states
    (e,) = at.e
    for j in range(len(e)):
        dn[j] = e[j] * (number(1.0, e[j]) - z[j])
        dz[j] = e[j] * (h[j] - n[j])
    slope(at, at.act, N, n, dn)
    slope(at, at.gate, Z, z, dz)
    for j in range(len(e)):
        dr[j] = dn[j] * u[j]
        du[j] = dn[j] * r[j]
        e[j] = e[j] * z[j]
    slope(at, at.gate, R, r, dr)


WALK = Walk(
    "gru",
    Cell(
        (Product(N, inputs=False, bias="bhn"), Product(R), Product(Z), Product(N, state=False)),
        first=1,
        residual=0,
        reads=(0,),
        direct=True,
        vectors=("bhn",),
    ),
    step,
    step_back,
)


def forward(
    p: Params, x: Array, h0: Array, act: Activation, gate: Activation = SIGMOID, **options: Any
) -> Tape:
    """As ``refnet.cells.gru.forward``, float32 or float64; the tape's ``a`` may be None.
    ``options``: those of ``Walk.forward``.

    Checked by: tests/compiled/test_compiled.py::test_gated_matches_the_reference.
    """
    x, h, _, a, v, u = WALK.forward(p, x, h0, (act, gate), **options)
    return Tape(x, h, a, v, u)


def backward(
    p: Params,
    tape: Tape,
    dh: Array,
    act: Activation,
    inputs: bool = True,
    gate: Activation = SIGMOID,
    **options: Any,
) -> Params:
    """As ``refnet.cells.gru.backward``, float32 or float64; ``options``: those of
    ``Walk.backward``.

    Checked by: tests/compiled/test_compiled.py::test_gated_matches_the_reference.
    """
    x, h, a, v, u = tape
    whole = walk.Tape(x, h, None, a, v, u)
    return WALK.backward(p, whole, (dh,), (act, gate), inputs, **options)
