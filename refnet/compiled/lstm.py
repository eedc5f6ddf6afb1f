"""The LSTM of ``refnet.cells.lstm``, compiled: its step, and the walk over time."""

from refnet.cells.lstm import CANDIDATE, GATES, PEEPHOLES, STATES, Tape, init
from refnet.compiled._jit import inlined
from refnet.compiled.activations import push
from refnet.compiled.annotations import Arg
from refnet.compiled.step import Cell, Product, activate, add_product, slope, through
from refnet.compiled.vector import copy_rows, split
from refnet.compiled.walk import Gated, Walk

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init"]

IN, FORGET, NEW, OUT = range(4)


@inlined
def step(at: Arg, stage: int) -> None:
    """With the peepholes if there are any::

    i = s(a_i + Wpi c);  f = s(a_f + Wpf c);  g = act(a_g);  c = f c + i g
    o = s(a_o + Wpo c);  k = act(c);          h = o k
    """
    i, f, g, o, k = at.panels
    h, c = at.state
    third = len(at.vectors) // 3  # 0 without peepholes
    Wpi, Wpf, Wpo = split(at.vectors, third, third, 3)
    if len(at.vectors):
        add_product(i, at.width, Wpi, 0, c, at.rows, at.width)
        add_product(f, at.width, Wpf, 0, c, at.rows, at.width)
    activate(at, at.gate, IN, i)
    activate(at, at.gate, FORGET, f)
    activate(at, at.act, NEW, g)
    for j in range(len(c)):
        c[j] = f[j] * c[j] + i[j] * g[j]
    if len(at.vectors):
        add_product(o, at.width, Wpo, 0, c, at.rows, at.width)
    activate(at, at.gate, OUT, o)
    copy_rows(k, 0, 0, c, 0, 0, 1, len(c))
    push(at.act, k, at.rows, at.width, at.width)
    for j in range(len(c)):
        h[j] = o[j] * k[j]


@inlined
def step_back(at: Arg, stage: int) -> None:
    """With e and q the gradients at the state after, h and c; ``before`` is c before the step, and
    c is computed once more, because zoneout may have changed it::

    da_o = s'(a_o) (k e);   q = q + act'(c) (o e) + Wpo da_o
    da_i = s'(a_i) (g q);   da_f = s'(a_f) (before q);   da_g = act'(a_g) (i q)
    q = f q + Wpi da_i + Wpf da_f;                       e = what comes through the products
    """
    i, f, g, o, k = at.panels
    di, df, dg, do = at.da
    (before,) = at.states
    e, q = at.e
    third = len(at.vectors) // 3  # 0 without peepholes
    Wpi, Wpf, Wpo = split(at.vectors, third, third, 3)
    dWpi, dWpf, dWpo = split(at.dvectors, third, third, 3)
    c = dg  # until da_g is computed
    for j in range(len(e)):
        c[j] = f[j] * before[j] + i[j] * g[j]
        do[j] = e[j] * k[j]
    slope(at, at.gate, OUT, o, do)
    for j in range(len(e)):
        e[j] = e[j] * o[j]
    through(at, at.act, c, k, e)
    for j in range(len(e)):
        q[j] += e[j]
    if len(at.vectors):
        add_product(q, at.width, Wpo, 0, do, at.rows, at.width)
        add_product(dWpo, 0, do, at.width, c, at.rows, at.width)
    for j in range(len(e)):
        di[j] = q[j] * g[j]
        df[j] = q[j] * before[j]
        dg[j] = q[j] * i[j]
    slope(at, at.gate, IN, i, di)
    slope(at, at.gate, FORGET, f, df)
    slope(at, at.act, NEW, g, dg)
    for j in range(len(e)):
        q[j] = q[j] * f[j]
    if len(at.vectors):
        add_product(q, at.width, Wpi, 0, di, at.rows, at.width)
        add_product(q, at.width, Wpf, 0, df, at.rows, at.width)
        add_product(dWpi, 0, di, at.width, before, at.rows, at.width)
        add_product(dWpf, 0, df, at.width, before, at.rows, at.width)


WALK = Walk(
    "lstm",
    Cell(
        (Product(IN), Product(FORGET), Product(NEW), Product(OUT)),
        extra=1,
        residual=4,
        states=2,
        reads=(1,),
        vectors=PEEPHOLES,
    ),
    step,
    step_back,
)
PASSES = Gated(WALK, Tape, "xhcavk")
forward, backward = PASSES.forward, PASSES.backward
