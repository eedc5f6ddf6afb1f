"""Candidates in which parts of a program change places: gates, variables, factors, terms, and the
order in which gradients are added and read.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator
from itertools import chain, combinations, permutations

from refnet.check.programs.arrays import orders
from refnet.check.programs.cells import PASSED, STATES, Factor, Line, Term
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.program import stem
from refnet.check.programs.runs import Candidate, Edit, Place, sweeps
from refnet.check.programs.words import CARRIED

__all__ = ["gradients", "late", "moves", "peepholes", "swaps", "tapes", "together"]

Pulls = dict[Place, Line]


def _renamed(line: Line, names: dict[str, str]) -> Line:
    def term(t: Term) -> Term:
        factors = tuple(f._replace(name=names.get(f.name, f.name)) for f in t.factors)
        return t._replace(factors=factors)

    return line._replace(terms=tuple(map(term, line.terms)))


def _pulls(g: Grammar) -> Pulls:
    return {
        ("pull", n, m): pull
        for n, group in enumerate(g.program.pulls)
        for m, pull in enumerate(group)
        if m
    }


def gradients(g: Grammar, parameters: bool) -> Iterator[Candidate]:
    """The gates' gradients in another order, or one gate's in another's place (a shared buffer), in
    one product, in all sums (``parameters``) or in all products."""
    families: dict[str, list[tuple[Place, Line]]] = {}
    for place, pull in _pulls(g).items():
        (t,) = pull.terms
        block = stem(t.matrix) if t.back else stem(pull.target.name)
        if block in g.program.blocks:
            families.setdefault(f"{block}'" if t.back else block, []).append((place, pull))
    names = {"Wxh'": "dx", "Whh'": CARRIED["y"]}
    sums = [block for block in families if block not in names]
    groups = {f"d{block}": [block] for block in sums} | {"all sums over the steps": sums}
    if not parameters:
        groups = {text: [block] for block, text in names.items()}
        groups |= {f"{' and '.join(names.values())}": [*names], "every product": [*families]}
    G = range(len(g.gates))
    ways = [({a: b}, f"{{}} takes the gradient of gate {g.gates[b]} for that of {g.gates[a]}")
            for a, b in permutations(G, 2)]  # fmt: skip
    if not parameters:
        ways += [(dict(enumerate(order)), f"the gates' gradients are taken {how} in {{}}")
                 for how, order in orders(g.gates).items()]  # fmt: skip
    for what, blocks in groups.items() if len(g.gates) > 1 else ():
        for way, said in ways:
            edits = []
            for block in blocks:
                members = sorted(families[block], key=lambda member: _gate(member[1]))
                of = [pull.terms[0].factors[0].name for _, pull in members]
                edits += [
                    Edit(members[a][0], (_renamed(members[a][1], {of[a]: of[b]}),))
                    for a, b in way.items()
                ]
            yield Candidate(said.format(what), tuple(edits))


def _gate(pull: Line) -> int:
    return int((pull.terms[0].matrix or pull.target.name)[-1])


def tapes(g: Grammar) -> Iterator[Candidate]:
    """What the backward pass reads stands in another variable's place."""
    index = {n: i for n, i in g.program.index.items() if n not in (*PASSED, *STATES)}

    def edit(name: str, other: Factor) -> Edit:
        return Edit(("tape", index[name], 0), (Line(Factor(name), (Term((other,)),)),))

    for a, b in combinations(index, 2):
        both = edit(a, Factor(b)), edit(b, Factor(a))
        texts = g.word(Factor(a)), g.word(Factor(b))
        yield Candidate(f"in the backward pass {' and '.join(texts)} change places", both)
    for a in index:
        others = [Factor(b) for b in (*index, *STATES) if b in g.program.index and b != a]
        for other in (*others, Factor(a, 0, "1-"), Factor(a, 0, "-"), Factor(a, 0, "tanh")):
            said = f"the backward pass reads {g.word(other)} for {g.word(Factor(a))}"
            yield Candidate(said, (edit(a, other),))


def swaps(g: Grammar) -> Iterator[Candidate]:
    """Two variables of a line, or two peepholes, that change places in the forward pass."""
    peepholes = sorted(name for name in g.program.parameters if name.startswith("Wp"))
    for n, line in enumerate(g.program.lines):
        names = {f.name for t in line.terms for f in t.factors} - {*g.program.parameters, "x"}
        for a, b in combinations(sorted(names), 2) if not line.function else ():
            new = _renamed(line, {a: b, b: a})
            yield from g.instead(n, new)
    for a, b in combinations(peepholes, 2):
        of = {n: line for n, line in enumerate(g.program.lines) if line.target.name[:2] == "a."}
        news = {n: _renamed(line, {a: b, b: a}) for n, line in of.items()}
        yield from g.ways(f"{a} and {b} change places", news)


def peepholes(g: Grammar) -> Iterator[Candidate]:
    """Two peepholes that change places in what they carry back."""
    names = sorted(name for name in g.program.parameters if name.startswith("Wp"))
    for a, b in permutations(names, 2):
        for way, text in (
            ({a: b, b: a}, f"{a} and {b} change places"),
            ({a: b}, f"{b} stands for {a}"),
        ):
            edits = [
                Edit(place, (_renamed(pull, way),))
                for place, pull in _pulls(g).items()
                if any(f.name in way for t in pull.terms for f in t.factors)
            ]
            yield Candidate(f"{text} in {CARRIED['s']}", tuple(edits))


def moves(g: Grammar) -> Iterator[Candidate]:
    """A factor or term of a sum that stands, or also stands, in another one."""
    program = g.program
    sums = {
        n: line
        for n, line in enumerate(program.lines)
        if not line.function and line.target.name not in PASSED
    }
    for n, line in sums.items():
        every = range(len(line.terms))
        news = (edited(g, line, a) for edited in (_factors, _outside) for a in every)
        for new in chain.from_iterable(news):
            yield from g.instead(n, new)
        for a, term in enumerate(line.terms):
            less = line._replace(terms=line.terms[:a] + line.terms[a + 1 :])
            for m, other in enumerate(program.lines):
                needed = {
                    name
                    for f in term.factors
                    for name in program.needs.get(f.name, ())
                    if not f.step
                }
                if m == n or other.target.name in (*PASSED, *needed):
                    continue
                extra = Line(other.target, (term,))
                for gone in (True, False):
                    how = f"added to {g.target(other)}{', too' * (not gone)}"
                    said = f"{g.product(term)} of {g.target(line)} is {how}"
                    alone = [Edit(("line", m, 0), (extra,), None, True)]
                    follow = [Edit(("pulls", m, 0), program.pulls_of(extra, False), None, True)]
                    if other.function:
                        follow.append(Edit(("pulls", m, 0), program.pulls_of(other, False)))
                    if gone:
                        alone.append(Edit(("line", n, 0), (less,)))
                        follow.append(Edit(("pulls", n, 0), program.pulls_of(less, False)))
                    forward = Candidate(f"{said}, in the forward pass alone", tuple(alone))
                    yield forward
                    yield from g.right_tape(said, forward, [n, m] if gone else [m])
                    if gone:
                        yield from g.right_tape(said, forward, [n])
                    if sweeps(program, forward) == 1:
                        yield Candidate(said, (*alone, *follow))


def _factors(g: Grammar, line: Line, a: int) -> Iterator[Line]:
    """A line in which a factor of term ``a`` goes to other terms, or to them, too."""
    term = line.terms[a]
    others = [b for b in range(len(line.terms)) if b != a]
    for m, f in enumerate(term.factors if len(term.factors) > 1 else ()):
        if f.name in g.program.parameters:
            continue
        without = term._replace(factors=term.factors[:m] + term.factors[m + 1 :])
        for chosen in (*([b] for b in others), *([others] if len(others) > 1 else [])):
            for left in (without, term):
                terms = [
                    left if b == a else t._replace(factors=(*t.factors, f)) if b in chosen else t
                    for b, t in enumerate(line.terms)
                ]
                yield line._replace(terms=tuple(terms))


def _outside(g: Grammar, line: Line, a: int) -> Iterator[Line]:
    """A line in which a factor of what a matrix multiplies stands outside."""
    term = line.terms[a]
    lines, index = g.program.lines, g.program.index
    for m, f in enumerate(term.factors if term.matrix else ()):
        sources = lines[index[f.name]].terms if f.name in index and not f.step else ()
        factors = sources[0].factors if len(sources) == 1 and not sources[0].matrix else ()
        for n, outer in enumerate(factors if len(factors) > 1 else ()):
            inside = term.factors[:m] + factors[:n] + factors[n + 1 :] + term.factors[m + 1 :]
            new = term._replace(factors=(*inside, outer), inside=len(inside))
            yield line._replace(terms=(*line.terms[:a], new, *line.terms[a + 1 :]))


def late(g: Grammar) -> Iterator[Candidate]:
    """A part of a variable's gradient that is added after some of what reads it was made."""
    every = _pulls(g)
    for v, n in g.program.index.items():
        parts = [pull for pull in every.values() if pull.target.name == f"d {v}"]
        readers = {place: pull for place, pull in every.items() if place[1] == n}
        for part in parts if len(parts) > 1 else ():
            if part.target.step or part.terms[0].matrix:
                continue
            for size in range(1, len(readers) + 1):
                for chosen in combinations(readers, size):
                    yield from _late(g, part, {place: readers[place] for place in chosen})


def _late(g: Grammar, part: Line, readers: Pulls) -> Iterator[Candidate]:
    (term,) = part.terms
    named = dict.fromkeys(g.receiver(place[1], pull) for place, pull in readers.items())
    said = f"{g.product(term)} is added to {g.word(part.target)} after {', '.join(named)}"
    edits, after = [], []
    for place, pull in readers.items():
        (t,) = pull.terms
        lost = t._replace(
            factors=(*term.factors, *t.factors[1:]),
            coefficient=-term.coefficient * t.coefficient,
            inside=len(term.factors) - 1 + t.inside,
        )
        edits.append(Edit(place, (pull._replace(terms=(t, lost)),)))
        carries = pull.target.name[2:] in PASSED
        late = pull._replace(terms=(t, lost, term)) if carries else pull._replace(terms=(t, lost))
        after.append(Edit(place, (late,)))
    yield Candidate(said, tuple(edits))
    if after != edits:
        yield Candidate(f"{said}, and goes on as it is", tuple(after))


def together(g: Grammar) -> Iterator[Candidate]:
    """The same edit in every gate."""
    groups: dict[str, dict[str, list[Edit]]] = {}
    sizes: dict[str, int] = {}
    for n, group in enumerate(g.program.pulls):
        line = g.program.lines[n]
        for m, pull in enumerate(group):
            what = _family(g, line, pull) if m else ""
            if not what:
                continue
            sizes[what] = sizes.get(what, 0) + 1
            edits = g.slopes(line, pull) if line.function else g.lines(pull)
            for said, new in edits:
                short = "a" if line.target.name.startswith("a.") else "s"
                said = said.replace(g.word(Factor(line.target.name)), short)
                said = said.replace(g.product(pull.terms[0]), "it")
                options = groups.setdefault(what, {}).setdefault(said, [])
                options.append(Edit(("pull", n, m), (new,)))
    for what, edits_by_text in groups.items():
        for said, members in edits_by_text.items():
            if len(members) == sizes[what] > 1:
                yield Candidate(f"{what} {said}", tuple(members))


def _family(g: Grammar, line: Line, pull: Line) -> str:
    name = stem(pull.target.name)
    if name.startswith("d a."):
        return f"the slope of every {line.function}"
    known = {"d y": "the gradient that is carried through Whh", "d x": "dx"}
    known |= {block: f"the gradient of {block}" for block in g.program.blocks}
    return known.get(name, "")
