"""The edits of a program: another factor, another step, another slope, a term less or twice, ...

``Grammar`` goes through every line, term and factor (``cells``), replaces each by whatever could
stand there, and says so (``words``). An edited line is a candidate with a backward pass that
follows, with the right one, and with one that reads the right values.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import starmap

from refnet.check.programs.arrays import LAYOUTS, TYPES
from refnet.check.programs.cells import (
    DERIVATIVES,
    PASSED,
    STATES,
    Factor,
    Line,
    Term,
    copied,
    gradient,
)
from refnet.check.programs.edit import SUMS, Candidate, Edit, Place
from refnet.check.programs.functions import FORMS, FUNCTIONS
from refnet.check.programs.program import stem
from refnet.check.programs.words import Words

__all__ = ["Grammar"]

Edited = Iterator[tuple[str, Line]]
ROLLED = ("rolled by one unit", "rolled back by one unit")
EDGES = ("stay", "wrap", "zero")
WHOLE = ("first", "last", "reversed", *LAYOUTS)
SLOPES = ("", "1-", "1-abs", "^2", "1-^2", "(1-)^2", "1+^2", "1+")
PLAIN = {"1-": "", "1-^2": "^2"}
"""What 1 is less, by the form."""


class Grammar(Words):
    """All candidates with one edit of a program."""

    def variables(self, f: Factor, before: int, summed: bool) -> Iterator[Factor]:
        """What may stand for a factor: another variable, another step, another form. In the forward
        pass only the results of lines ``before`` this one are known; in a sum over the steps
        (``summed``) every step is there."""
        p, known = self.program.p, self.program.parameters
        edges = EDGES[:: 1 + (before < len(self.program.lines))]
        if f.name in known:
            same = (n for n in sorted(known) if n != f.name and p[n].shape == p[f.name].shape)
            yield from (f._replace(name=name) for name in same)
        elif f.name == "d read":
            yield from _steps(f, (-1, 1), EDGES[1:])
        elif f.name == "x":
            yield from _steps(f, (-1, 1), edges)
            yield from _forms(f, "efblmT")
        elif f.name.startswith("d "):
            others = [gradient(line.target.name) for line in self.program.lines[:-1]]
            yield from (other for other in others if other.name not in (f.name, "d y"))
            yield f._replace(step=1, edge="zero")
            yield from _forms(f, "elmu")
        else:
            yield from _steps(f, (-1, 1)[: len(edges) - 1], edges)
            yield from self._others(f, before)
            if f.form:
                yield from (other._replace(form=f.form) for other in self._others(f, before))
            yield from (f._replace(form=form) for form in ("1-", "-", "") if form != f.form)
            known_here = [n for n, number in self.program.index.items() if number < before]
            yield from (Factor(n, form="tanh") for n in known_here if n[0] in "acpuw")
            yield from _forms(f, "^tefblmouT")
        if f.name == "x" or summed and f.name not in known:
            yield from _steps(f, [0], WHOLE)

    def _others(self, f: Factor, before: int) -> Iterator[Factor]:
        target = [*self.program.index, ""][min(before, len(self.program.lines))]
        for name, needed in self.program.needs.items():
            if name in STATES:
                both = (Factor(name, by) for by in (-1, 0) if by or target not in needed)
                yield from (other for other in both if other[:2] != f[:2])
                for edge in ("first", "last")[: 1 + (before > len(self.program.lines))]:
                    yield Factor(name, -1, "", edge)
            elif name not in (f.name, *PASSED):
                yield Factor(name) if target not in needed else Factor(name, -1)

    def terms(
        self, term: Term, outer: bool, before: int, summed: bool
    ) -> Iterator[tuple[str, Term | None]]:
        """Edits of a term; None if it is left out. ``summed``: the term is summed over the steps;
        ``outer``: the sum is a matrix."""
        p, target = self.program.p, [*self.program.index, ""][min(before, len(self.program.lines))]
        text, of, pulled = self.product(term), term.factors, term.factors[:1] and _back(term)
        yield f"leaves out {text}", None
        for by, how in (
            (2.0, "counts {} twice"),
            (0.5, "halves {}"),
            (-1.0, "has the wrong sign: {}"),
        ):
            yield how.format(text), term._replace(coefficient=by * term.coefficient)
        for m, f in reversed([*enumerate(of)]):
            for other in self.variables(f, before, summed):
                said = f"takes {self.edged(other)} for {self.word(f)}"
                yield said, term.of(*of[:m], other, *of[m + 1 :])
            if len(of) > 1 + outer and not (term.back and m == 0):
                yield f"lacks the factor {self.word(f)}", term.of(*of[:m], *of[m + 1 :])
        for name in self.gates if len(self.gates) > 1 else ("h",):
            here = target not in self.program.needs[name]
            for form in ("", "1-", "1-^2") if here else ():
                extra = Factor(name, 0, form)
                said = f"has one more factor {self.word(extra)}"
                if pulled:
                    yield said, term.of(of[0], extra, *of[1:], inside=2)
                elif not any(f.name == "x" for f in of):
                    yield said, term.of(*of, extra, inside=len(of) + 1)
                if (
                    term.matrix
                    and not outer
                    and p[term.matrix].shape[term.back] == p["Whh0"].shape[1]
                ):
                    yield f"multiplies {text} by {self.word(extra)}", term.of(*of, extra)
        if term.matrix:
            yield from self._matrices(term)

    def _matrices(self, term: Term) -> Iterator[tuple[str, Term]]:
        p = self.program.p
        if len({*p[term.matrix].shape}) == 1:
            yield f"takes {stem(term.matrix)} transposed", term._replace(transposed=True)
        for name in sorted(self.program.parameters):
            if name != term.matrix and p[name].shape == p[term.matrix].shape:
                gate = self.gates[int(name[-1])]
                yield f"takes {stem(name)} of gate {gate}", term._replace(matrix=name)

    def lines(self, line: Line, before: int = 99) -> Edited:
        """Edits of one term of a line."""
        known = self.program.p.get(line.target.name)
        outer = known is not None and known.ndim == 2
        for n, term in enumerate(line.terms):
            for said, new in self.terms(term, outer, before, known is not None):
                yield said, line.instead(n, *([new] if new else ()))
            if len(term.factors) == 2 and not term.matrix and not _back(term):
                parts = (Term((f,), term.coefficient) for f in term.factors)
                yield "has a sum for a product", line.instead(n, *parts)
            for m, f in enumerate(term.factors if len(term.factors) > 1 else ()):
                if f.form in PLAIN and not term.matrix:
                    rest = term.of(*term.factors[:m], *term.factors[m + 1 :])
                    less = Term((f._replace(form=PLAIN[f.form]),), -1.0)
                    yield f"lacks the brackets of {self.word(f)}", line.instead(n, rest, less)

    def slopes(self, line: Line, pull: Line) -> Edited:
        """Other slopes of a line that is a function."""
        (term,) = pull.terms
        d, *right = term.factors
        shown = " ".join(map(self.word, right))
        v, a = Factor(line.target.name), line.terms[0].factors[0]
        names = [n for n in self.program.index if n != v.name and n in (*self.gates, "k", "h")]
        options: list[tuple[Factor, ...]] = [()]
        options += [(w._replace(form=form),) for form in SLOPES for w in (v, a)]
        options += [(Factor(n, 0, form),) for form in SLOPES for n in names]
        options += [(w, w._replace(form="1-")) for w in (a, v, *map(Factor, names))]
        options += [(v, v, v._replace(form="1-")), (v._replace(form="^2"), v._replace(form="1-"))]
        options += [(*right, *right)]
        for by in (-1, 1):
            options += [tuple(f._replace(step=f.step + by, edge=e) for f in right) for e in EDGES]
        options += [(a._replace(form=f"{f}'"),) for f in FUNCTIONS if f]
        for option in options:
            if option != tuple(right):
                said = f"is {' '.join(map(self.edged, option))}, not {shown}"
                yield said if option else f"is left out: {shown}", pull.of(term.of(d, *option))

    def backward(self, parameters: bool) -> Iterator[Candidate]:
        """Edits of the backward pass: of the sums over the steps (``parameters``), or of the
        rest."""
        for n, group in reversed([*enumerate(self.program.pulls)]):
            line = self.program.lines[n]
            for m, pull in enumerate(group):
                if (pull.target.name in self.program.parameters) != parameters:
                    continue
                place, what = ("pull", n, m), self.receiver(n, pull)
                if m == 0:
                    what = self.gradient_of(line)
                edits = self._whole(pull) if m == 0 else self._pulled(line, pull)
                first: dict[Line, str] = {}
                for said, new in edits:
                    first.setdefault(new, said)
                for new, said in first.items():
                    yield Candidate(f"{what} {said}", (Edit(place, (new,)),))
                if m:
                    yield from self._elsewhere(place, pull)

    def _pulled(self, line: Line, pull: Line) -> Edited:
        if line.function:
            yield from self.slopes(line, pull)
        yield from self.lines(pull)

    def _elsewhere(self, place: Place, pull: Line) -> Iterator[Candidate]:
        """A product that is added to the gradient of another variable, or summed otherwise."""
        text, known = self.product(pull.terms[0]), self.program.p.get(pull.target.name)
        if known is not None:
            for how in SUMS if known.ndim == 2 else ():
                name = f"{self.receiver(place[1], pull)} is a product of sums {how}"
                yield Candidate(name, (Edit(place, (pull._replace(function=how),)),))
        elif pull.target.name != "d x":
            names = [line.target.name for line in self.program.lines[:-1]]
            others = [gradient(n) for n in names]
            others += [gradient(n, -1) for n in STATES if n in names]
            for other in others:
                if other != pull.target:
                    name = f"{text} is added to {self.word(other)}, not to {self.word(pull.target)}"
                    yield Candidate(name, (Edit(place, (pull._replace(target=other),)),))

    @staticmethod
    def _whole(pull: Line) -> Edited:
        """Edits of a variable's whole gradient."""
        yield "is zero", pull.of()
        yield "has the wrong sign", pull._replace(scale=-1.0)
        yield "counts twice", pull._replace(scale=2.0)
        yield "is halved", pull._replace(scale=0.5)
        for factor in pull.terms[0].factors[:1]:
            later = Term((_read(factor, 1, "zero", ""),))
            yield "is that of one step later", pull.of(later)
            yield "has that of one step later added: it is not cleared", pull.of(*pull.terms, later)
        for how in (*ROLLED, *TYPES):
            said = f"is {'rounded to ' * (how in TYPES)}{how}"
            yield said, pull._replace(function=how)

    def tapes(self) -> Iterator[Candidate]:
        """The backward pass reads variables of another step, or rounded."""
        ways: list[tuple[str, int, str, str]] = []  # a step, an edge and a form
        ways += [("those of the last step: arrays share memory", 0, "last", "")]
        ways += [("those of the first step", 0, "first", "")]
        for by, side in ((-1, "before"), (1, "after")):
            for edge, more in zip(EDGES, ("", ", at the end the other end's", ", zero at the end")):
                ways += [(f"those of the step {side}{more}", by, edge, "")]
        ways += [(f"rounded to {kind}", 0, "", kind) for kind in TYPES]
        index = {n: i for n, i in self.program.index.items() if n not in PASSED}
        for said, by, edge, form in ways:
            way = (by, edge, form)
            every: list[Edit] = []
            for name in index:
                edits = self.tape(name, *way)
                what = {"h": "the states h", "c": "the cells c"}.get(name, self.word(Factor(name)))
                yield Candidate(f"in the backward pass {what} are {said}", tuple(edits))
                if name == "h":
                    both = (*edits, self.program.read_as("read", _read(Factor("h"), *way)))
                    yield Candidate(f"in the backward pass and for dWhy h is {said}", both)
                if name == "c":
                    k = self.program.lines[index["k"]].of(Term((_read(Factor("c"), *way),)))
                    both = (*edits, Edit(("tape", index["k"], 0), (k,)))
                    yield Candidate(f"in the backward pass c and tanh(c) are {said}", both)
                    both += tuple(self.tape("h", *way))
                    yield Candidate(f"in the backward pass h, c and tanh(c) are {said}", both)
                every += edits
            states = {*STATES, *PASSED}
            gates = tuple(e for e in every if e.lines[0].target.name not in states)
            if len(self.gates) > 1:
                yield Candidate(f"in the backward pass the gates are {said}", gates)
                yield Candidate(f"in the backward pass gates and states are {said}", tuple(every))
            if "k" in index:
                others = tuple(e for e in gates if e.lines[0].target.name != "k")
                yield Candidate(f"in the backward pass i, f, g and o are {said}", others)

    def tape(self, name: str, by: int = 0, edge: str = "", form: str = "") -> list[Edit]:
        """Edits with which the backward pass reads a variable, and its copies, of another step or
        in another form."""
        program, way = self.program, (by, edge, form)
        copies = {"h": ("y", "q"), "c": ("s",)}.get(name, ())  # and what is read of them
        return [
            program.read_as(name, _read(Factor(name), *way)),
            *(program.read_as(copy, _read(Factor(name, -1), *way))
              for copy in copies if copy in program.index),
        ]  # fmt: skip

    def forward(self) -> Iterator[Candidate]:
        """Edits of the forward pass, with a backward pass that follows and with the right one."""
        for n, line in enumerate(self.program.lines):
            for said, new in (*self.lines(line, n), *self._functions(line)):
                yield from self.instead(n, new, said)
        gates = self.program.pre_activations
        for start, what in (("Wxh", "x"), ("Whh", "h"), ("bh", "the bias")):
            for said, change in self._changes() if len(gates) > 1 else ():
                news = {n: a.of(*_changed(a.terms, start, change)) for n, a in gates.items()}
                yield from self.ways(f"{what} {said} in every gate", news)
        sigmoids = self.program.of_function("sigmoid")
        for other in FUNCTIONS if len(sigmoids) > 1 else ():
            news = {n: line._replace(function=other) for n, line in sigmoids.items()}
            yield from self.ways(f"the gates use {other or 'no function'} for the sigmoid", news)

    def instead(self, n: int, new: Line, said: str = "") -> Iterator[Candidate]:
        """Another line in the place of line ``n``; its name is the formula, or ``said`` if the
        formulas look alike."""
        right, theirs = self.formula(self.program.lines[n]), self.formula(new)
        how = f"is {theirs}, not {right}" if theirs != right else said
        yield from self.ways(f"{self.target(new)} {how}", {n: new})

    def _functions(self, line: Line) -> Edited:
        if line.function:
            yield from (("", line._replace(function=f)) for f in FUNCTIONS if f != line.function)
            name = line.target.name
            for other, needed in self.program.needs.items():
                if name not in needed and other not in PASSED:
                    for form in ("", "1-"):
                        yield "", copied(name, Factor(other, 0, form))
        else:
            for how in (*ROLLED, *TYPES):
                said = f"is {'rounded to ' * (how in TYPES)}{how}"
                yield said, line._replace(function=how)

    def _changes(self) -> Iterator[tuple[str, Callable[[Term], Term | None]]]:
        def earlier(edge: str) -> Callable[[Term], Term | None]:
            return lambda t: t.over(lambda f: _read(f, -1, edge, f.form)) if t.matrix else None

        def turned(t: Term) -> Term | None:
            square = t.matrix and len({*self.program.p[t.matrix].shape}) == 1
            return t._replace(transposed=True) if square else None

        def rounded(kind: str) -> Callable[[Term], Term | None]:
            return lambda t: t.over(lambda f: f._replace(form=kind))

        yield from ((f"is rounded to {kind}", rounded(kind)) for kind in TYPES)
        yield "is left out", lambda t: None
        yield "counts twice", lambda t: t._replace(coefficient=2.0)
        yield "of the step before is read", earlier("stay")
        yield "of the step before, zero first, is read", earlier("zero")
        yield "is multiplied by the transposed matrix", turned

    def ways(self, how: str, news: dict[int, Line]) -> Iterator[Candidate]:
        """Other lines, by their numbers: with the right backward pass, and with one that
        follows."""
        alone = tuple(Edit(("line", n, 0), (new,)) for n, new in news.items())
        forward = Candidate(f"{how}, in the forward pass alone", alone)
        yield forward
        yield from self.right_tape(how, forward, news)
        if all(map(_differentiable, news.values())) and self.program.sweeps(forward) == 1:
            yield Candidate(how, (*alone, *starmap(self.program.follow, news.items())))

    def right_tape(
        self, how: str, forward: Candidate, numbers: Iterable[int]
    ) -> Iterator[Candidate]:
        """Other lines in the forward pass, while the backward pass reads what the right lines
        give."""
        lines = [(n, self.program.lines[n]) for n in numbers]
        if not any(line.target.name in {*STATES, *PASSED} or line.target.name[:2] == "a."
                   for _, line in lines):  # fmt: skip
            residuals = tuple(Edit(("tape", n, 0), (line,)) for n, line in lines)
            right = ", ".join(self.word(line.target) for _, line in lines)
            said = f"{how}, in the forward pass alone, and the backward pass has the right {right}"
            yield Candidate(said, (*forward.edits, *residuals))


def _read(f: Factor, by: int, edge: str, form: str) -> Factor:
    return f._replace(step=f.step + by, edge=edge, form=form)


def _steps(f: Factor, steps: Iterable[int], edges: Iterable[str]) -> Iterator[Factor]:
    yield from (f._replace(step=f.step + by, edge=edge) for by in steps for edge in edges)


def _forms(f: Factor, kinds: str) -> Iterator[Factor]:
    forms = (form for form in FORMS if form and form[0] in kinds and not f.form)
    yield from (f._replace(form=form) for form in forms)


def _back(term: Term) -> bool:
    return bool(term.factors) and term.factors[0].name.startswith("d ")


def _differentiable(line: Line) -> bool:
    if not line.function:
        return all(f.form in DERIVATIVES for term in line.terms for f in term.factors)
    plain = len(line.terms) == 1 and line.terms[0] == Term(line.terms[0].factors[:1])
    return plain and not line.terms[0].factors[0].form and line.function in FUNCTIONS


def _changed(
    terms: tuple[Term, ...], start: str, change: Callable[[Term], Term | None]
) -> tuple[Term, ...]:
    """The terms of a matrix or bias, changed."""
    new = (change(t) if (t.matrix or t.factors[0].name).startswith(start) else t for t in terms)
    return tuple(t for t in new if t is not None)
