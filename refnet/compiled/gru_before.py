"""The gated recurrent unit of ``refnet.cells.gru_before``, compiled: its step, and the walk."""

from refnet.cells.gru_before import CANDIDATE, GATES, STATES, Tape, init
from refnet.compiled._jit import inlined
from refnet.compiled.annotations import Arg
from refnet.compiled.step import Cell, Product, activate, slope
from refnet.compiled.vector import number
from refnet.compiled.walk import Gated, Walk

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init"]

R, Z, N = range(3)


@inlined
def step(at: Arg, stage: int) -> None:
    """``r = s(a_r);  z = s(a_z);  s = r h``; then ``n = act(a_n);  h = (1 - z) n + z h``."""
    r, z, n, s, _ = at.panels
    (h,) = at.state
    if stage == 0:
        activate(at, at.gate, R, r)
        activate(at, at.gate, Z, z)
        for j in range(len(h)):
            s[j] = r[j] * h[j]
    else:
        activate(at, at.act, N, n)
        for j in range(len(h)):
            h[j] = (number(1.0, h[j]) - z[j]) * n[j] + z[j] * h[j]


@inlined
def step_back(at: Arg, stage: int) -> None:
    """With e the gradient at the state after, and ds = da_n Whn, which the walk makes::

    da_n = act'(a_n) ((1 - z) e);  da_z = s'(a_z) ((h - n) e)
    da_r = s'(a_r) (h ds);         e = z e + r ds, and what comes through the products
    """
    r, z, n, s, ds = at.panels
    dr, dz, dn = at.da
    (h,) = at.states
    (e,) = at.e
    if stage == 0:
        for j in range(len(e)):
            dn[j] = e[j] * (number(1.0, e[j]) - z[j])
            dz[j] = e[j] * (h[j] - n[j])
        slope(at, at.act, N, n, dn)
        slope(at, at.gate, Z, z, dz)
    else:
        for j in range(len(e)):
            dr[j] = ds[j] * h[j]
            e[j] = e[j] * z[j] + ds[j] * r[j]
            s[j] = r[j] * h[j]
        slope(at, at.gate, R, r, dr)


WALK = Walk(
    "gru_before",
    Cell((Product(R), Product(Z), Product(N, second=True)), extra=2, reads=(0,), direct=True),
    step,
    step_back,
)
PASSES = Gated(WALK, Tape, "xhav")
forward, backward = PASSES.forward, PASSES.backward
