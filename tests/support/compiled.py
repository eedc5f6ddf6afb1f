"""Random cases for compiled cells, and code that runs their source on fractions."""

import numpy as np


def draw_gated(rng, cell, act, T, B, D, H, K, dtype, peepholes=True):
    """Parameters, x, h0 and dh of a gated cell, every entry drawn."""
    G = len(cell.GATES)
    start = {**(cell.init(H, 1, peepholes) if cell.STATES == 2 else cell.init(H)), **act.init(H)}
    p = {
        "Whh": rng.standard_normal((G * H, H)) / H**0.5,
        "Wxh": rng.standard_normal((G * H, D)),
        **{name: rng.standard_normal(value.shape) / 2 for name, value in start.items()},
    }
    lead = (2,) if cell.STATES == 2 else ()
    return (
        {name: np.asarray(value, dtype) for name, value in p.items()},
        *(
            rng.standard_normal(shape).astype(dtype)
            for shape in ((T, B, D), (*lead, B, H), (K, B, H))
        ),
    )


EXACT_RUN = """
from importlib import import_module
from refnet.compiled import plan, vector
for cell in ("rnn", "lstm", "gru", "gru_before"):
    plain, fast = (import_module(f"refnet.{room}.{cell}") for room in ("cells", "compiled"))
    G, lead = len(plain.GATES), (2,) if plain.STATES == 2 else ()
    extra = {} if cell == "rnn" else {"gate": ACTIVATIONS["softsign"]}
    for name, act in ACTIVATIONS.items():
        if not act.rational: continue
        for T, B, D, H in ((3, 2, 1, 2), (1, 3, 2, 6 if cell == "rnn" else 2), (0, 2, 1, 2)):
            shapes = {k: v.shape for k, v in plain.init(H).items()}
            if cell == "lstm" and B == 3: shapes |= {k: (H,) for k in plain.PEEPHOLES}
            p = {"Whh": draw(G * H, H), "Wxh": draw(G * H, D),
                 **{k: draw(*s) for k, s in shapes.items()},
                 **{n: draw(*shape(H)) if shape(H) else np.array(Fraction(1, 3), object)
                    for n, shape, _ in act.start}}
            x, h0, dh = draw(T, B, D), draw(*lead, B, H), draw(min(T, 2), B, H)
            a, b = plain.forward(p, x, h0, act, **extra), fast.forward(p, x, h0, act, **extra)
            assert (a.h == b.h).all(), name
            c = fast.forward(p, x, h0, act, keeps="states", **extra)
            assert (a.h == c.h).all() and len(c.h) == T + 1, name
            c = fast.forward(p, x, h0, act, keeps="last", **extra)
            assert (a.h[-1] == c.h[-1]).all() and len(c.h) == min(T, 1) + 1, name
            for clip, chunk in ((None, 96), (Fraction(1, 2), 2)):  # one fills
                plan.CHUNK = chunk; fast.WALK.plan.cache_clear()
                ga = plain.backward(p, a, dh, act, clip=clip, **extra)
                gb = fast.backward(p, b, dh, act, clip=clip, **extra)
                for k in ga:
                    assert ga[k].shape == gb[k].shape and np.all(ga[k] == gb[k]), (cell, name, k)
                    count += 1
for at, numbers in ((-1, 2), (3, 2), (0, -1)):
    try: vector.cut(np.zeros((2, 2)), at, numbers)
    except IndexError: count += 1
    else: raise AssertionError((at, numbers))
"""
