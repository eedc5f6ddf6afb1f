"""Random cases for compiled cells, what they promise, and code that runs their source on
fractions."""

import numpy as np

from refnet.maths.threads import get_threads, set_threads, usual_threads

LAYOUTS = {
    "fortran": np.asfortranarray,
    "big-endian": lambda v: v.astype(v.dtype.newbyteorder(">")),
    "strided": lambda v: np.repeat(v, 2, axis=-1)[..., ::2],
    "reversed": lambda v: v[..., ::-1].copy()[..., ::-1],
    "unaligned, read-only": lambda v: (
        np.frombuffer(b"\0" + v.tobytes(), np.uint8)[1:].view(v.dtype).reshape(v.shape)
    ),
}
"""The same numbers, lying in another way in memory."""


def draw_case(rng, cell, act, sizes, dtype, optional=True):
    """Parameters, x, h0 and dh of a cell, every entry drawn; ``sizes``: T, B, D, H and the number
    of states whose cotangent is given."""
    T, B, D, H, K = sizes
    G = len(cell.GATES)
    start = cell.init(H) | act.init(H)
    if optional:
        start |= dict.fromkeys(getattr(cell, "OPTIONAL", ()), np.zeros(H))
    p = {
        "Whh": rng.standard_normal((G * H, H)) / max(H, 1) ** 0.5,
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


def assert_agree(plain, fast, case, act, gate=None, **options):
    """Assert that a compiled cell agrees with the reference: at most six steps with some tens of
    roundings each, of the largest entry."""
    p, x, h0, dh = case
    tolerance, gates = 256 * np.finfo(x.dtype).eps, {} if gate is None else {"gate": gate}
    want, got = (cell.forward(p, x, h0, act, **gates) for cell in (plain, fast))
    assert got.h.dtype == x.dtype and got.h.shape == want.h.shape
    assert np.all(abs(got.h - want.h) <= tolerance * abs(want.h).max(initial=1))
    # the same tape, so that kinks and clipping are decided alike
    expected, gradients = (
        cell.backward(p, want, dh, act, **gates, **options) for cell in (plain, fast)
    )
    assert set(gradients) == set(expected)
    for key, value in expected.items():
        assert gradients[key].shape == value.shape, (act.name, key)
        scale = abs(value).max(initial=np.finfo(x.dtype).tiny)
        assert np.all(abs(gradients[key] - value) <= tolerance * scale), (act.name, key)


def at_every_number_of_threads(compute, most=None):
    """What ``compute`` gives with one thread, two, and so on, up to as many as usual."""
    results, before = [], get_threads()
    try:
        for threads in range(1, (most or usual_threads()) + 1):
            set_threads(threads)
            results.append(compute())
    finally:
        set_threads(before)
    return results


EXACT_RUN = """
from importlib import import_module
from refnet.compiled import plan, vector
from refnet.nets.noise import Zoned
for cell in ("rnn", "lstm", "gru", "gru_before"):
    cells = (import_module(f"refnet.{room}.{cell}") for room in ("cells", "compiled"))
    plain, fast = cells = tuple(cells)
    G, lead = len(plain.GATES), (2,) if plain.STATES == 2 else ()
    gate = {} if cell == "rnn" else {"gate": ACTIVATIONS["softsign"]}
    for name, act in ACTIVATIONS.items():
        if not act.rational or gate and name in ("identity", "leaky_relu"): continue
        wide = 6 if cell == "rnn" else 2
        for T, B, D, H in ((3, 5, 1, 2), (1, 3, 2, wide), (0, 2, 1, 2), (2, 3, 1, 2)):
            plain, noise = cells[0], {}
            shapes = {k: v.shape for k, v in plain.init(H).items()}
            if cell == "lstm" and B == 3: shapes |= {k: (H,) for k in plain.PEEPHOLES}
            p = {"Whh": draw(G * H, H), "Wxh": draw(G * H, D),
                 **{k: draw(*s) for k, s in shapes.items()},
                 **{n: draw(*shape(H)) if shape(H) else np.array(Fraction(1, 3), object)
                    for n, shape, _ in act.start}}
            x, h0, dh = draw(T, B, D), draw(*lead, B, H), draw(min(T, 2), B, H)
            if T == 2:
                noise = {"shares": draw(T, *lead, B, H), "added": draw(T, B, H)}
                plain, noise["drop"] = Zoned(plain), draw(B, H)
            extra = gate | noise
            a, b = plain.forward(p, x, h0, act, **extra), fast.forward(p, x, h0, act, **extra)
            assert (a.h == b.h).all(), name
            c = fast.forward(p, x, h0, act, keeps="states", **extra)
            assert (a.h == c.h).all() and len(c.h) == T + 1, name
            c = fast.forward(p, x, h0, act, keeps="last", **extra)
            assert (a.h[-1] == c.h[-1]).all() and len(c.h) == min(T, 1) + 1, name
            lengths = np.arange(T, T - B, -1).clip(0)
            kept = np.arange(T + 1)[:, None, None] <= lengths[:, None]
            d = fast.forward(p, x, h0, act, lengths=lengths, **extra)
            assert np.where(kept, a.h == d.h, d.h == None).all(), name  # nothing is written there
            K, ends = len(dh), np.zeros((T, B, H), object) + Fraction(0)
            for row, n in enumerate(lengths):
                if K == 1 and n: ends[n - 1, row] = dh[0, row]
            if K > 1: ends = np.where(kept[T + 1 - K:], dh, Fraction(0))
            for clip, chunk in ((None, 96), (Fraction(1, 2), 2)):  # one fills
                plan.CHUNK = chunk; fast.WALK.plan.cache_clear()
                ga = plain.backward(p, a, dh, act, clip=clip, **extra)
                gb = fast.backward(p, b, dh, act, clip=clip, **extra)
                ga |= {f"{k}, to the ends": v for k, v in
                       plain.backward(p, a, ends, act, clip=clip, **extra).items()}
                gb |= {f"{k}, to the ends": v for k, v in
                       fast.backward(p, d, dh, act, clip=clip, lengths=lengths, **extra).items()}
                for k in ga:
                    assert ga[k].shape == gb[k].shape and np.all(ga[k] == gb[k]), (cell, name, k)
                    count += 1
for at, numbers in ((-1, 2), (3, 2), (0, -1)):
    try: vector.cut(np.zeros((2, 2)), at, numbers)
    except IndexError: count += 1
    else: raise AssertionError((at, numbers))
"""
