"""The four cells as lists of elementary lines, and the backward pass that follows from them.

A line sets its target to a sum of terms, perhaps in a function; a term is a product of factors,
perhaps multiplied by a matrix. The backward pass is the list of *pulls* of every line: a cotangent
times the other factors of a term is added to the gradient of each factor. A mistake replaces lines
(``refnet.check.programs.grammar``).

Checked by: tests/check/test_programs.py.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "DERIVATIVES",
    "PASSED",
    "STATES",
    "Factor",
    "Line",
    "GATE",
    "Term",
    "copied",
    "factor",
    "gradient",
    "lines_of",
    "pulls",
]


class Factor(NamedTuple):
    """A variable, of this step or of ``step`` steps later. ``form`` says what is taken of it
    (``functions.FORMS``), ``edge`` what stands where there is no such step."""

    name: str
    step: int = 0
    form: str = ""
    edge: str = ""


class Term(NamedTuple):
    """A product of factors. ``matrix`` multiplies the first of them, those ``inside``, and does so
    transposed in a pull (``back``). Of a matrix's gradient, these are the rows of the outer
    product."""

    factors: tuple[Factor, ...]
    coefficient: float = 1.0
    matrix: str = ""
    back: bool = False
    transposed: bool = False
    inside: int = 1

    def of(self, *factors: Factor, **how: Any) -> "Term":
        """The term of other factors; ``how``: what else differs."""
        return self._replace(factors=factors, **how)

    def over(self, change: Callable[[Factor], Factor]) -> "Term":
        """The term with every factor changed."""
        return self.of(*map(change, self.factors))


class Line(NamedTuple):
    """``target = scale * function(sum of terms)``, or added to it."""

    target: Factor
    terms: tuple[Term, ...]
    function: str = ""
    adds: bool = False
    scale: float = 1.0

    def of(self, *terms: Term) -> "Line":
        """The line with other terms."""
        return self._replace(terms=terms)

    def over(self, change: Callable[[Factor], Factor]) -> "Line":
        """The line with every factor changed."""
        return self.of(*(term.over(change) for term in self.terms))

    def renamed(self, names: dict[str, str]) -> "Line":
        """The line with other variables and matrices."""
        terms = (t._replace(matrix=names.get(t.matrix, t.matrix)) for t in self.terms)
        return self.of(*terms).over(lambda f: f._replace(name=names.get(f.name, f.name)))

    def instead(self, n: int, *terms: Term) -> "Line":
        """The line with other terms in the place of term ``n``."""
        return self.of(*self.terms[:n], *terms, *self.terms[n + 1 :])


def copied(name: str, source: Factor) -> Line:
    """The line that sets a variable to another one."""
    return Line(Factor(name), (Term((source,)),))


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
DERIVATIVES = {"": (1.0, None), "1-": (-1.0, None), "^2": (2.0, ""), "-": (-1.0, None)}


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
    """The lines of a cell's text, for the parameters that there are.

    A function's argument, if it is no variable, gets a line of its own: that of i is ``a.i``. Lines
    that need only the input and the last states come first, so that the backward pass has every
    gate's gradient when it reaches them. The last line is what is read out.
    """
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
    return [*early, *lines, copied("read", Factor("h"))]


def gradient(name: str, step: int = 0, edge: str = "") -> Factor:
    """The factor that is the gradient of a variable."""
    return Factor(f"d {name}", step, "", edge)


def pulls(line: Line, by_value: bool, clip: bool, parameters: set[str]) -> tuple[Line, ...]:
    """What a line adds to the gradients of its factors; the first pull is the whole gradient of its
    target. ``by_value``: slopes are formulas of the function's value, not of its argument;
    ``clip``: gradients of pre-activations are clipped."""
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
                back = term.of(*factors, back=True, inside=1 + len(outside))
            else:
                factors = (*within, d, *rest[inside:], *more)
                back = term.of(*factors)
            back = back._replace(coefficient=scale * times)
            out.append(Line(gradient(f.name, f.step, f.edge), (back,), "", True))
        if term.matrix:
            name = term.matrix.partition("|")[0]
            rows = (d, *outside, *within)
            outer = Term(rows, scale, "", False, term.transposed, 1 + len(outside))
            form = term.matrix if "|" in term.matrix else ""
            out.append(Line(Factor(name), (outer,), form, True))
    return tuple(out)
