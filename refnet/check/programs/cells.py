"""The four cells as lists of elementary lines, and the backward pass that follows from them.

A line sets its target to a sum of terms, perhaps in a function; a term is a product of factors,
perhaps multiplied by a matrix. The backward pass is the list of *pulls* of every line: a cotangent
times the other factors of a term is added to the gradient of each factor. A mistake replaces lines
(``refnet.check.programs.grammar``).

Checked by: tests/check/test_programs.py.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.special import erf

from refnet.batch import Array
from refnet.check.programs import approximations
from refnet.check.programs.arrays import TYPES, coarse
from refnet.maths.activations import ACTIVATIONS, Activation

__all__ = [
    "DERIVATIVES",
    "FORMS",
    "FUNCTIONS",
    "PASSED",
    "STATES",
    "WITH_A_CONSTANT",
    "Factor",
    "Line",
    "GATE",
    "Term",
    "factor",
    "function",
    "gradient",
    "has",
    "lines_of",
    "pulls",
]


class Factor(NamedTuple):
    """A variable of this step, or ``step`` steps later; ``form``: what is taken of it; ``edge``:
    what stands where there is no such step."""

    name: str
    step: int = 0
    form: str = ""
    edge: str = ""


class Term(NamedTuple):
    """A product. ``matrix`` multiplies its first factors, those ``inside``, in a pull from the
    other side (``back``); these are the rows of a matrix's gradient."""

    factors: tuple[Factor, ...]
    coefficient: float = 1.0
    matrix: str = ""
    back: bool = False
    transposed: bool = False
    inside: int = 1


class Line(NamedTuple):
    """``target = scale * function(sum of terms)``, or added to it."""

    target: Factor
    terms: tuple[Term, ...]
    function: str = ""
    adds: bool = False
    scale: float = 1.0


GATE = "Wxh{n} x + Whh{n} y + bh{n}"
NUMBER = r"-?[\d.]+(e[-+]\d+)?"
CELLS = {
    "rnn": f"y = h-; h = act {GATE.format(n=0)}",
    "lstm": (
        f"y = h-; s = c-; i = sigmoid {GATE.format(n=0)} + Wpi s;"
        f"f = sigmoid {GATE.format(n=1)} + Wpf s; g = act {GATE.format(n=2)};"
        f"c = f s + i g; o = sigmoid {GATE.format(n=3)} + Wpo c; k = act c; h = o k"
    ),
    "gru": (
        f"q = h-; y = q; r = sigmoid {GATE.format(n=0)}; z = sigmoid {GATE.format(n=1)};"
        "w = Whh2 y; p = Wxh2 x + bh2; u = w + bhn; n = act p + r u; h = (1-z) n + z q"
    ),
    "gru_before": (
        f"q = h-; y = q; r = sigmoid {GATE.format(n=0)}; z = sigmoid {GATE.format(n=1)};"
        "p = Wxh2 x + bh2; v = r y; n = act p + Whh2 v; h = (1-z) n + z q"
    ),
}
"""A minus after a name is the step before; after ``act`` and ``sigmoid`` stands what they see. In
the text of a mistake a term may begin with a number, and m is the mask."""
PASSED = ("y", "s", "q", "read")
"""Variables that have the value of another one: what Whh reads, what is carried."""
STATES = ("h", "c")
FORMS: dict[str, tuple[Callable[[Array], Array], str]] = {
    "": (lambda v: v, "{}"),
    "1-": (lambda v: 1 - v, "(1 - {})"),
    "^2": (lambda v: v * v, "{}^2"),
    "1-^2": (lambda v: 1 - v * v, "(1 - {}^2)"),
    "1+^2": (lambda v: 1 + v * v, "(1 + {}^2)"),
    "(1-)^2": (lambda v: (1 - v) ** 2, "(1 - {})^2"),
    "1+": (lambda v: 1 + v, "(1 + {})"),
    "-": (lambda v: -v, "-{}"),
    "tanh": (np.tanh, "tanh({})"),
    "example 0": (lambda v: np.broadcast_to(v[..., :1, :], v.shape), "{} of example 0"),
    "example before": (lambda v: np.roll(v, 1, axis=-2), "{} of the example before"),
    "example after": (lambda v: np.roll(v, -1, axis=-2), "{} of the next example"),
    "unit before": (
        lambda v: np.concatenate([v[..., :1], v[..., :-1]], -1),
        "{} of the unit before",
    ),
    "unit after": (lambda v: np.concatenate([v[..., 1:], v[..., -1:]], -1), "{} of the next unit"),
    "other unit": (lambda v: np.roll(v, 1, axis=-1), "{} of the unit before (around)"),
    "mean over units": (
        lambda v: np.broadcast_to(v.mean(-1, keepdims=True), v.shape),
        "{}'s mean over the units",
    ),
    "mean over examples": (
        lambda v: np.broadcast_to(v.mean(-2, keepdims=True), v.shape),
        "{}'s mean over the examples",
    ),
    "less its mean over units": (
        lambda v: v - v.mean(-1, keepdims=True),
        "({} less its mean over the units)",
    ),
    "less its mean over examples": (
        lambda v: v - v.mean(-2, keepdims=True),
        "({} less its mean over the examples)",
    ),
    "like unit variance": (
        lambda v: (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5),
        "{} normalized over the units",
    ),
    "units reversed": (lambda v: v[..., ::-1], "{} with its units reversed"),
    **{kind: (partial(coarse, name=kind), f"{{}} in {kind}") for kind in TYPES},
}
DERIVATIVES = {"": (1.0, None), "1-": (-1.0, None), "^2": (2.0, ""), "-": (-1.0, None)}


class Function(NamedTuple):
    """Its value and slope, as functions of the argument."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]


def _sigmoid(a: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-a)))


def _hard(n: float) -> Function:
    return Function(
        lambda a: np.clip(a / n + 0.5, 0, 1), lambda a: np.where(abs(a) < n / 2, 1 / n, 0.0)
    )


def _of(name: str) -> Function:
    entry = ACTIVATIONS[name]
    return Function(
        lambda a: entry.forward(a, {}),
        lambda a: entry.backward(a, entry.forward(a, {}), np.ones_like(a), {})[0],
    )


def _numerically(value: Callable[[Array], Array]) -> Function:
    """The slope by the complex step."""
    return Function(value, lambda a: np.imag(value(a + 1e-30j)) / 1e-30)


def _half(tanh: Callable[[Array], Array], a: Array) -> Array:
    return (1 + tanh(a / 2)) / 2


def _capped(value: Callable[[Array], Array]) -> Function:
    return Function(
        lambda a: np.clip(value(a), -1, 1),
        lambda a: np.where(abs(value(a)) < 1, np.imag(value(a + 1e-30j)) / 1e-30, 0.0),
    )


PADE = {
    "x (27 + x^2) / (27 + 9 x^2)": lambda a: a * (27 + a * a) / (27 + 9 * a * a),
    "x (15 + x^2) / (15 + 6 x^2)": lambda a: a * (15 + a * a) / (15 + 6 * a * a),
    "x (945 + 105 x^2 + x^4) / (945 + 420 x^2 + 15 x^4)": lambda a: (
        a * (945 + a**2 * (105 + a * a)) / (945 + a**2 * (420 + 15 * a * a))
    ),
    "x (135135 + 17325 x^2 + 378 x^4 + x^6) / (135135 + 62370 x^2 + 3150 x^4 + 28 x^6)": lambda a: (
        a
        * (135135 + a**2 * (17325 + a**2 * (378 + a * a)))
        / (135135 + a**2 * (62370 + a**2 * (3150 + 28 * a * a)))
    ),
    "x - x^3 / 3": lambda a: a - a**3 / 3,
    "x - x^3 / 3 + 2 x^5 / 15": lambda a: a - a**3 / 3 + 2 * a**5 / 15,
}
FUNCTIONS: dict[str, Function] = {
    "": Function(lambda a: a, np.ones_like),
    "sigmoid": Function(_sigmoid, lambda a: _sigmoid(a) * (1 - _sigmoid(a))),
    "hard sigmoid max(0, min(1, 0.2 a + 0.5))": _hard(5),
    "hard sigmoid max(0, min(1, a / 6 + 0.5))": _hard(6),
    "hard sigmoid max(0, min(1, a / 4 + 0.5))": _hard(4),
    "fast sigmoid (1 + a / (1 + |a|)) / 2": Function(
        lambda a: (1 + a / (1 + abs(a))) / 2, lambda a: 0.5 / (1 + abs(a)) ** 2
    ),
    "hard tanh": Function(lambda a: np.clip(a, -1, 1), lambda a: np.where(abs(a) < 1, 1.0, 0.0)),
    "sin": _numerically(np.sin),
    "arctan": _numerically(np.arctan),
    "a / sqrt(1 + a^2)": _numerically(lambda a: a / np.sqrt(1 + a * a)),
    "erf": _numerically(erf),
    "erf(sqrt(pi) a / 2)": _numerically(lambda a: erf(np.sqrt(np.pi) * a / 2)),
    "(1 + a / sqrt(1 + a^2)) / 2": _numerically(lambda a: (1 + a / np.sqrt(1 + a * a)) / 2),
    "sigmoid(1.702 a)": _numerically(lambda a: 1 / (1 + np.exp(-1.702 * a))),
    "the normal distribution function": _numerically(lambda a: (1 + erf(a / np.sqrt(2))) / 2),
    "1.7159 tanh(2 x / 3)": _numerically(lambda a: 1.7159 * np.tanh(2 * a / 3)),
    **{name: _numerically(value) for name, value in PADE.items()},
    **{f"{name}, at most 1": _capped(value) for name, value in list(PADE.items())[:4]},
    **{
        f"(1 + tanh(a / 2)) / 2 with the tanh {name}": _numerically(partial(_half, value))
        for name, value in PADE.items()
    },
}


def _clip(k: float) -> Function:
    return Function(lambda a: np.clip(a, -k, k), lambda a: np.where(abs(a) < k, 1.0, 0.0))


def _scaled(k: float, axes: tuple[int, ...], eps: float = 1e-300, most: float = 1) -> Function:
    """The whole of some axes within a norm, or at it."""

    def value(a: Array) -> Array:
        norm = np.sqrt((a * a).sum(axis=axes, keepdims=True))
        return np.asarray(a * np.minimum(most, k / (norm + eps)))

    return Function(value, np.ones_like)


WITH_A_CONSTANT: dict[str, Callable[[float], Function]] = {
    "clipped at K": _clip,
    "at most K": lambda k: Function(
        lambda a: np.minimum(a, k), lambda a: np.where(a < k, 1.0, 0.0)
    ),
    "at least K": lambda k: Function(
        lambda a: np.maximum(a, k), lambda a: np.where(a > k, 1.0, 0.0)
    ),
    "scaled to a norm of K over the batch": lambda k: _scaled(k, (-2, -1)),
    "scaled to a norm of K for each example": lambda k: _scaled(k, (-1,)),
    "scaled to a norm of K over the batch, by K / (norm + 1e-6)": lambda k: _scaled(
        k, (-2, -1), 1e-6
    ),
    "scaled to a norm of K for each unit": lambda k: _scaled(k, (-2,)),
    "scaled to a largest entry of K over the batch": lambda k: Function(
        lambda a: a * np.minimum(1, k / abs(a).max((-2, -1), keepdims=True)), np.ones_like
    ),
    "always scaled to a norm of K over the batch": lambda k: _scaled(k, (-2, -1), most=np.inf),
    "always scaled to a norm of K for each example": lambda k: _scaled(k, (-1,), most=np.inf),
    "zero where it is smaller than K": lambda k: Function(
        lambda a: np.where(abs(a) < k, 0, a), lambda a: np.where(abs(a) < k, 0.0, 1.0)
    ),
    "plus K": lambda k: Function(lambda a: a + k, np.ones_like),
    "times K": lambda k: Function(lambda a: a * k, lambda a: np.full_like(a, k)),
}
"""Functions with a constant."""


@lru_cache(maxsize=4096)
def function(name: str) -> Function:
    """A function by its name; one with a constant as ``clipped at K|0.5``."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in TYPES:
        return Function(partial(coarse, name=name), np.ones_like)
    inner, _, outer = name.partition(" then ")
    if outer:
        f, g = function(inner), function(outer)
        return Function(lambda a: g.value(f.value(a)), lambda a: g.slope(f.value(a)) * f.slope(a))
    if name.startswith("wave "):
        _, degree, _, size = name.split()
        wave = Chebyshev.basis(int(degree), [-float(size), float(size)])
        return Function(wave, wave.deriv())
    usual, _, how = name.partition(" ")
    if usual in FUNCTIONS and (
        approximate := approximations.approximation(FUNCTIONS[usual].value, how)
    ):
        return Function(approximate, FUNCTIONS[usual].slope)
    text, _, constant = name.partition("|")
    if constant:
        return WITH_A_CONSTANT[text](float(constant))
    shift = {"rolled by one unit": 1, "rolled back by one unit": -1}[name]
    return Function(lambda a: np.roll(a, shift, axis=-1), np.ones_like)


for _name, _entry in ACTIVATIONS.items():
    if not _entry.start and not _entry.pairs and _name not in FUNCTIONS:
        FUNCTIONS[_name] = _of(_name)


def has(activation: Activation) -> bool:
    """Whether programs know the activation, which is of single units and has no parameters."""
    return activation.name in FUNCTIONS and activation == ACTIVATIONS[activation.name]


def factor(text: str) -> Factor:
    """A factor as lines write it: ``v``, ``v-`` of the step before, or ``(1-v)``."""
    form, text = ("1-", text[3:-1]) if text.startswith("(1-") else ("", text)
    return Factor(text.removesuffix("-"), -text.endswith("-"), form)


def _term(text: str, matrices: set[str]) -> Term:
    names = text.split()
    number = float(names.pop(0)) if re.fullmatch(NUMBER, names[0]) else 1.0
    matrix = names.pop(0) if names[0] in matrices else ""
    return Term(tuple(map(factor, names)), number, matrix)


def lines_of(cell: str, activation: str, matrices: set[str], vectors: set[str]) -> list[Line]:
    """The lines of a cell's text with parameters of these names; a function's argument, if it is no
    variable, has a line of its own: that of i is ``a.i``. What needs the input and the last states
    alone comes first, so that the backward pass has every gate's gradient there. The last line is
    what is read out."""
    lines: list[Line] = []
    early: list[Line] = []
    known = {"x", *vectors}

    def add(line: Line) -> None:
        factors = [f for term in line.terms for f in term.factors]
        if line.function or not all(f.step < 0 or f.name in known for f in factors):
            lines.append(line)
        else:
            early.append(line)
            known.add(line.target.name)

    for text in cell.split(";"):
        target, _, right = (part.strip() for part in text.partition("="))
        function, _, rest = right.partition(" ")
        named = function in ("sigmoid", "act")
        texts = (rest if named else right).split(" + ")
        terms = tuple(
            _term(part, matrices)
            for part in texts
            if not re.match("W[p]|bhn", part) or part.split()[0] in vectors
        )
        function = activation if function == "act" else function if named else ""
        if named and len(texts) > 1:
            add(Line(Factor(f"a.{target}"), terms))
            terms = (Term((Factor(f"a.{target}"),)),)
        add(Line(Factor(target), terms, function))
    return [*early, *lines, Line(Factor("read"), (Term((Factor("h"),)),))]


def gradient(name: str, step: int = 0, edge: str = "") -> Factor:
    """The gradient of a variable."""
    return Factor(f"d {name}", step, "", edge)


def pulls(line: Line, by_value: bool, clip: bool, parameters: set[str]) -> tuple[Line, ...]:
    """What a line adds to the gradients of its factors, after the line that is the whole gradient
    of its target. ``by_value``: slopes are taken of the function's value, not of its argument;
    ``clip``: they are clipped."""
    d = gradient(line.target.name)
    whole = Line(d, (Term((d,)),))
    if line.function:
        (v,) = line.terms[0].factors
        slope: tuple[Factor, ...] = (v._replace(form=f"{line.function}'"),)
        value = Factor(line.target.name)
        if by_value and line.function == "sigmoid":
            slope = (value, value._replace(form="1-"))
        elif by_value and line.function == "tanh":
            slope = (value._replace(form="1-^2"),)
        coefficient = line.scale * line.terms[0].coefficient
        term = Term((d, *slope), coefficient)
        function = "clip" if clip and v.name.startswith("a.") else ""
        return whole, Line(gradient(v.name, v.step, v.edge), (term,), function, True)
    out = [whole]
    for term in line.terms:
        scale = term.coefficient * line.scale
        inside = term.inside if term.matrix else len(term.factors)
        within, outside = term.factors[:inside], term.factors[inside:]
        for m, f in enumerate(term.factors):
            rest = term.factors[:m] + term.factors[m + 1 :]
            if f.name.startswith("unit ") or f.name == "m":
                continue
            name, _, how = f.name.partition("|")
            if name in parameters:
                out.append(
                    Line(Factor(name), (Term((d, *rest), scale),), f.name if how else "", True)
                )
                continue
            times, form = DERIVATIVES[f.form]
            more = () if form is None else (f._replace(form=form),) if f.form else ()
            if m < inside:
                factors = (d, *outside, *within[:m], *within[m + 1 :], *more)
                back = term._replace(factors=factors, back=True, inside=1 + len(outside))
            else:
                factors = (*within, d, *rest[inside:], *more)
                back = term._replace(factors=factors)
            back = back._replace(coefficient=scale * times)
            out.append(Line(gradient(f.name, f.step, f.edge), (back,), "", True))
        if term.matrix:
            name = term.matrix.partition("|")[0]
            rows = (d, *outside, *within)
            outer = Term(rows, scale, "", False, term.transposed, 1 + len(outside))
            form = term.matrix if "|" in term.matrix else ""
            out.append(Line(Factor(name), (outer,), form, True))
    return tuple(out)
