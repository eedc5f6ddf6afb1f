"""The gated recurrent unit of ``refnet.cells.gru``, compiled: its step, and the walk over time."""

from refnet.cells.gru import CANDIDATE, GATES, STATES, Tape, init
from refnet.compiled._jit import inlined
from refnet.compiled.annotations import Arg
from refnet.compiled.step import Cell, Product, activate, slope
from refnet.compiled.vector import number
from refnet.compiled.walk import Gated, Walk

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
PASSES = Gated(WALK, Tape, "xhavk")
forward, backward = PASSES.forward, PASSES.backward
