"""The bugs that the judge is measured by: the catalogue of mistakes, and errors without a name.

The second kind are wrong numbers: an epsilon, an approximation, a coarser type, one entry.
Checked by: tests/check/test_error_rates.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.edits import edits
from refnet.check.mistakes import Mistake, mistakes, of_the_types
from refnet.check.mistakes.base import Mistakes, mistake
from refnet.check.mistakes.types import half
from refnet.check.naive import Pass
from refnet.exact.enclose import Certified
from refnet.nets.gradients import Net

__all__ = ["CORRECT", "bugs", "nameless", "reported"]

CORRECT = mistake("none")


def bugs(certified: Certified) -> list[Mistake]:
    """Every bug that can be planted into one certified case."""
    net, params, batch = certified.net, certified.params, certified.batch
    return [
        *mistakes(net, params, batch),
        *of_the_types(net, batch),
        *reported(certified),
        *nameless(net, batch),
    ]


def reported(certified: Certified) -> Mistakes:
    """Every edit of one of the gradients, each of another one: of the weights first."""
    names = [f"d{name}" for name in certified.gradients]
    names.sort(key=lambda name: not name.startswith("dW"))
    for place, name in enumerate(names):
        right = certified.named()[name].value
        labels = [label for label, _ in edits(name, right, certified)]
        for n, label in enumerate(labels):
            if place < 2 or n < 2 or n % len(names) == place:
                yield mistake(label, report=_edited(name, n, certified))


def _edited(name: str, n: int, certified: Certified) -> Callable[[Params, Pass], Params]:
    return lambda found, s: {
        **found,
        name: list(edits(name, found[name], certified))[n][1].astype(s.x.dtype),
    }


def nameless(net: Net, batch: Batch) -> Mistakes:
    """Wrong numbers."""
    act = net.activation.name
    for label, factor in (("by 1e-3", 1.001), ("by 1e-6", 1 + 1e-6)):
        yield mistake(
            f"{act}' is off {label}",
            {"act'": lambda f, s, n=factor: lambda a, h, dh: f(a, h, dh) * a.dtype.type(n)},
        )
    yield mistake(
        f"{act}' has an epsilon of 1e-5",
        {"act'": lambda f, s: lambda a, h, dh: f(a, h, dh) + dh * a.dtype.type(1e-5)},
    )
    if act == "tanh":
        yield mistake("tanh by a rational approximation", act=lambda f, s: _pade)
    if batch.x.dtype == np.float64:
        coarse = (
            "part of the computation is in float32: the differences have its size, and all "
            "numbers are those of float32"
        )
        yield mistake(
            coarse,
            {
                "p": lambda p, s: {name: single(value) for name, value in p.items()},
                **{place: lambda v, s: single(v) for place in ("x", "y", "h0")},
            },
        )
    yield mistake("a dropout of 5% is left on in the states", h=_dropped)
    yield from _of_the_softmax(net)
    if batch.x.ndim == 3:
        yield from _over_time(batch)
    yield from _of_the_report(net, batch)


def single(value: Array) -> Array:
    """Floats as float32; labels as they are."""
    return value.astype(np.float32) if value.dtype.kind == "f" else value


def _pade(a: Array) -> Array:
    return np.asarray(np.clip(a * (27 + a * a) / (27 + 9 * a * a), -1, 1))


def _dropped(h: Array, s: Pass) -> Array:
    kept = np.random.default_rng(s.t).random(h.shape) >= 0.05
    return np.asarray(h * kept / h.dtype.type(0.95))


def _of_the_softmax(net: Net) -> Mistakes:
    if net.loss != "cross_entropy":
        return

    def grown(v: Any, s: Pass) -> Any:
        p = v[1].copy()
        one = np.eye(p.shape[1], dtype=p.dtype)[s.y.reshape(-1)] * s.raw[2][:, None]
        return v[0], (p + one) / p.dtype.type(1.001) - one

    yield mistake("the softmax has an epsilon of 1e-3 in its sum", each=grown)
    yield mistake(
        "the loss has an epsilon of 1e-3 in its logarithm",
        each=lambda v, s: (-np.log(np.exp(-v[0]) + v[0].dtype.type(1e-3)), v[1]),
    )


def _over_time(batch: Batch) -> Mistakes:
    T = len(batch.x)
    yield mistake(
        "the gradient is damped by 1% a step",
        carry=lambda v, s: (v[0] * v[0].dtype.type(0.99), v[1] * v[0].dtype.type(0.99)),
    )
    yield mistake("one step is computed in float16", h=lambda h, s: half(h) if s.t == T // 2 else h)
    yield mistake("the first unit is left out of the backward recursion", e=_first_unit)
    yield mistake(
        "one entry of da is wrong at one step",
        da=lambda da, s: _one(da, 1.1) if s.t == T // 2 else da,
    )
    yield mistake(
        "the state is clipped to 0.9",
        h=lambda h, s: np.clip(h, -h.dtype.type(0.9), h.dtype.type(0.9)),
    )
    yield mistake(
        "the inputs are standardised",
        x=lambda v, s: (v - v.mean(axis=(0, 1))) / (v.std(axis=(0, 1)) + v.dtype.type(1e-5)),
    )


def _first_unit(e: Array, s: Pass) -> Array:
    e = e.copy()
    e[:, 0] = 0
    return e


def _one(array: Array, factor: float) -> Array:
    index = np.unravel_index(abs(array).argmax(), array.shape)
    out = array.copy()
    out[index] *= factor
    return out


def _of_the_report(net: Net, batch: Batch) -> Mistakes:
    W = (
        "dWhh"
        if batch.x.ndim == 3 and net.transition is None
        else "dWhy"
        if (batch.x.ndim == 3)
        else f"db{len(net.widths) - 1}"  # type: ignore[union-attr]
    )

    def one(change: Callable[[Array], Array]) -> Callable[[Params, Pass], Params]:
        return lambda found, s: {**found, W: np.asarray(change(found[W]), s.x.dtype)}

    def every(change: Callable[[Array], Array]) -> Callable[[Params, Pass], Params]:
        return lambda found, s: {
            name: np.asarray(change(value), s.x.dtype) if name.startswith("d") else value
            for name, value in found.items()
        }

    yield mistake("one entry is off by 0.1%", report=one(lambda g: _one(g, 1.001)))
    yield mistake("one entry has the wrong sign", report=one(lambda g: _one(g, -1)))
    yield mistake("every gradient is 0.09% too large", report=every(lambda g: g * 1.0009))
    yield mistake("every gradient is clipped to a norm", report=every(lambda g: g * 0.37))
    yield mistake(
        "one gradient is clipped at half its largest entry",
        report=one(lambda g: np.clip(g, -abs(g).max() / 2, abs(g).max() / 2)),
    )
    yield mistake("every gradient is rounded to float16", report=every(half))
    yield mistake(
        "weight decay of 1e-3 is left in",
        grads=lambda g, s: {
            **g,
            **{
                name: value + s.p[name] * value.dtype.type(1e-3)
                for name, value in g.items()
                if name in s.p and name != "h0"
            },
        },
    )
    yield mistake(
        "every gradient has 1e-4 of noise",
        report=every(
            lambda g: g * (1 + 1e-4 * np.random.default_rng(g.size).standard_normal(g.shape))
        ),
    )
