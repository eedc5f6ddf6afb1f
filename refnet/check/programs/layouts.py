"""Candidates that take an array in another form in one product: a matrix, the gates.

The forms are those of ``arrays``; the products are those with Wxh and Whh, and the bias, forward
and backward. ``candidates`` lists them beside those of ``grammar``.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator

from refnet.check.programs.arrays import OF_A_MATRIX, OF_THE_GATES, SQUARE, TYPES, orders
from refnet.check.programs.cells import Line, Term
from refnet.check.programs.edit import Candidate, Edit, Place
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.program import stem
from refnet.check.programs.words import CARRIED

__all__ = ["layouts"]

Places = dict[Place, Line]
FORWARD = {"Wxh": "Wxh x", "Whh": "Whh h", "bh": "the bias"}
BACKWARD = {"Wxh": "dx", "Whh": CARRIED["y"]}


def layouts(g: Grammar, forward: bool) -> Iterator[Candidate]:
    """One product, or all products of a pass, with another form of the matrix or of both
    operands."""
    texts = FORWARD if forward else BACKWARD
    for block, product in texts.items():
        places = _places(g, block, forward)
        for how in _forms(g, block):
            chosen = [("", places)]
            if how in OF_A_MATRIX | OF_THE_GATES and len(places) > 1:
                chosen += [
                    (f" in gate {gate}", {place: line})
                    for gate, (place, line) in zip(g.gates, places.items())
                ]
            for where, some in chosen:
                said = f"{product}{where} takes {block} {how}"
                yield from _as(g, said, {at: _with(v, (block,), how) for at, v in some.items()})
    for block in FORWARD if forward else ():
        yield from _tied(g, block)
    for kind in TYPES:
        for block in ("Wxh", "Whh"):
            said = f"the operands of {texts[block]} are rounded to {kind}"
            places = _places(g, block, forward)
            yield from _as(g, said, {at: _rounded(v, block, kind) for at, v in places.items()})
    of = [_places(g, block, forward) for block in texts]
    groups = [(", all gates together,", {at: v for places in of for at, v in places.items()})]
    for number, gate in enumerate(g.gates):
        groups.append((f" of gate {gate}", dict([*places.items()][number] for places in of)))
    for what, every in groups if len(g.gates) > 1 else ():
        for how in (*OF_THE_GATES, *(orders(g.gates) if what[0] == "," else ())):
            said = f"{'a' if forward else 'the gradient of a'}{what} is read {how}"
            yield from _as(g, said, {at: _with(v, tuple(texts), how) for at, v in every.items()})


def _tied(g: Grammar, block: str) -> Iterator[Candidate]:
    """One gate's matrix or bias in every gate, or in all gates but one."""
    places = _places(g, block, True)
    for n, source in enumerate(g.gates if len(g.gates) > 2 else ()):
        for other in ("", *g.gates) if len(g.gates) > 3 else ("",):
            if other == source:
                continue
            names = {
                f"{block}{m}": f"{block}{n}" for m, gate in enumerate(g.gates) if gate != other
            }
            said = f"every gate{f' but {other}' * bool(other)} takes {block} of gate {source}"
            yield from _as(g, said, {at: v.renamed(names) for at, v in places.items()})


def _forms(g: Grammar, block: str) -> Iterator[str]:
    shape = g.program.p[f"{block}0"].shape
    square = len({*shape}) == 1 and len(shape) == 2
    for how in OF_A_MATRIX:
        if not (how in SQUARE and not square or "column" in how and len(shape) == 1):
            if how != "column by column" or not square:
                yield how
    if len(g.gates) > 1:
        yield from OF_THE_GATES
        yield from orders(g.gates)


def _places(g: Grammar, block: str, forward: bool) -> Places:
    """The lines or pulls with a block's product, in the order of the gates."""
    program = g.program
    if forward:
        every: Places = {("line", n, 0): line for n, line in enumerate(program.lines)}
    else:
        every = {at: v for at, v in program.added.items() if any(t.back for t in v.terms)}
    order = {
        place: number
        for place, line in every.items()
        for term in line.terms
        for number in range(len(g.gates))
        if f"{block}{number}" in (term.matrix, *(f.name for f in term.factors if forward))
    }
    return {place: every[place] for place in sorted(order, key=order.__getitem__)}


def _with(line: Line, blocks: tuple[str, ...], how: str) -> Line:
    def name(text: str) -> str:
        return f"{text}|{how}" if stem(text) in blocks else text

    terms = (term._replace(matrix=name(term.matrix)) for term in line.terms)
    return line.of(*terms).over(lambda f: f._replace(name=name(f.name)))


def _rounded(line: Line, block: str, kind: str) -> Line:
    def rounded(term: Term) -> Term:
        if stem(term.matrix) != block:
            return term
        term = term._replace(matrix=f"{term.matrix}|rounded to {kind}")
        return term.over(lambda f: f._replace(form=kind))

    return line.of(*map(rounded, line.terms))


def _as(g: Grammar, said: str, places: Places) -> Iterator[Candidate]:
    if all(place[0] == "line" for place in places):
        yield from g.ways(said, {n: line for (_, n, _), line in places.items()})
    else:
        yield Candidate(said, tuple(Edit(place, (line,)) for place, line in places.items()))
