"""Candidates in which parts of a program change places: gates, variables, factors and terms.

Also the order in which gradients are added and read, and the same edit in every gate at once.
``candidates`` lists them beside those of ``grammar``, which is their vocabulary.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator
from itertools import chain, combinations, permutations

from refnet.check.programs.arrays import orders
from refnet.check.programs.cells import PASSED, STATES, Factor, Line, Term
from refnet.check.programs.edit import Candidate, Edit, Place
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.program import stem
from refnet.check.programs.words import CARRIED

__all__ = ["gradients", "late", "moves", "overwritten", "peepholes", "swaps", "tapes", "together"]

Pulls = dict[Place, Line]


def gradients(g: Grammar, parameters: bool) -> Iterator[Candidate]:
    """The gates' gradients in another order, or one gate's in another's place (a shared buffer), in
    one product, in all sums (``parameters``) or in all products."""
    families: dict[str, list[tuple[Place, Line]]] = {}
    for place, pull in g.program.added.items():
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
        both = (("dWhh", ["Whh", "Whh'"]), ("dWxh and dbh", ["Wxh", "bh", "Wxh'"]))
        groups |= {f"{text} and {names[blocks[-1]]}": blocks for text, blocks in both}
    G = range(len(g.gates))
    ways = [({a: b}, f"{{}} takes the gradient of gate {g.gates[b]} for that of {g.gates[a]}")
            for a, b in permutations(G, 2)]  # fmt: skip
    for how, order in () if parameters else orders(g.gates).items():
        said = f"the gates' gradients are taken {how.removeprefix('with its gates ')} in {{}}"
        ways.append((dict(enumerate(order)), said))
    for what, blocks in groups.items() if len(g.gates) > 1 else ():
        for way, said in ways:
            edits = []
            for block in blocks:
                members = sorted(families[block], key=lambda member: _gate(member[1]))
                of = [pull.terms[0].factors[0].name for _, pull in members]
                edits += [
                    Edit(members[a][0], (members[a][1].renamed({of[a]: of[b]}),))
                    for a, b in way.items()
                ]
            yield Candidate(said.format(what), tuple(edits))


def _gate(pull: Line) -> int:
    return int((pull.terms[0].matrix or pull.target.name)[-1])


def tapes(g: Grammar) -> Iterator[Candidate]:
    """The backward pass reads one variable where it needs another."""
    index = {n: i for n, i in g.program.index.items() if n not in (*PASSED, *STATES)}

    for a, b in combinations(index, 2):
        both = g.program.read_as(a, Factor(b)), g.program.read_as(b, Factor(a))
        texts = g.word(Factor(a)), g.word(Factor(b))
        yield Candidate(f"in the backward pass {' and '.join(texts)} change places", both)
    for a in index:
        others = [Factor(b) for b in (*index, *STATES) if b in g.program.index and b != a]
        for other in (*others, Factor(a, 0, "1-"), Factor(a, 0, "-"), Factor(a, 0, "tanh")):
            said = f"the backward pass reads {g.word(other)} for {g.word(Factor(a))}"
            yield Candidate(said, (g.program.read_as(a, other),))


def swaps(g: Grammar) -> Iterator[Candidate]:
    """Two variables of a line, or two peepholes, that change places in the forward pass."""
    peepholes = sorted(name for name in g.program.parameters if name.startswith("Wp"))
    for n, line in enumerate(g.program.lines):
        names = {f.name for t in line.terms for f in t.factors} - {*g.program.parameters, "x"}
        for a, b in combinations(sorted(names), 2) if not line.function else ():
            new = line.renamed({a: b, b: a})
            yield from g.instead(n, new)
    for a, b in combinations(peepholes, 2):
        news = {n: v.renamed({a: b, b: a}) for n, v in g.program.pre_activations.items()}
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
                Edit(place, (pull.renamed(way),))
                for place, pull in g.program.added.items()
                if any(f.name in way for t in pull.terms for f in t.factors)
            ]
            yield Candidate(f"{text} in {CARRIED['s']}", tuple(edits))


def moves(g: Grammar) -> Iterator[Candidate]:
    """A factor or a term of a sum stands in another sum, or stands there, too."""
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
            less = line.instead(a)
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
                    follow = [program.follow(m, extra, None, True)]
                    if other.function:
                        follow.append(program.follow(m, other))
                    if gone:
                        alone.append(Edit(("line", n, 0), (less,)))
                        follow.append(program.follow(n, less))
                    forward = Candidate(f"{said}, in the forward pass alone", tuple(alone))
                    yield forward
                    yield from g.right_tape(said, forward, [n, m] if gone else [m])
                    if gone:
                        yield from g.right_tape(said, forward, [n])
                    if program.sweeps(forward) == 1:
                        yield Candidate(said, (*alone, *follow))


def _factors(g: Grammar, line: Line, a: int) -> Iterator[Line]:
    """A line in which a factor of term ``a`` goes to other terms, or to them, too."""
    term = line.terms[a]
    others = [b for b in range(len(line.terms)) if b != a]
    for m, f in enumerate(term.factors if len(term.factors) > 1 else ()):
        if f.name in g.program.parameters:
            continue
        without = term.of(*term.factors[:m], *term.factors[m + 1 :])
        for chosen in (*([b] for b in others), *([others] if len(others) > 1 else [])):
            for left in (without, term):
                terms = [
                    left if b == a else t.of(*t.factors, f) if b in chosen else t
                    for b, t in enumerate(line.terms)
                ]
                yield line.of(*terms)


def _outside(g: Grammar, line: Line, a: int) -> Iterator[Line]:
    """A line in which a factor of what a matrix multiplies stands outside."""
    term = line.terms[a]
    lines, index = g.program.lines, g.program.index
    for m, f in enumerate(term.factors if term.matrix else ()):
        sources = lines[index[f.name]].terms if f.name in index and not f.step else ()
        factors = sources[0].factors if len(sources) == 1 and not sources[0].matrix else ()
        for n, outer in enumerate(factors if len(factors) > 1 else ()):
            inside = term.factors[:m] + factors[:n] + factors[n + 1 :] + term.factors[m + 1 :]
            yield line.instead(a, term.of(*inside, outer, inside=len(inside)))


def late(g: Grammar) -> Iterator[Candidate]:
    """A part of a variable's gradient is added too late: after some of the pulls that read the
    gradient."""
    every = g.program.added
    for v, n in g.program.index.items():
        parts = [pull for pull in every.values() if pull.target.name == f"d {v}"]
        readers = {place: pull for place, pull in every.items() if place[1] == n}
        for part in parts if len(parts) > 1 else ():
            if part.target.step or part.terms[0].matrix:
                continue
            for size in range(1, len(readers) + 1):
                for chosen in combinations(readers, size):
                    yield from _late(g, part, {place: readers[place] for place in chosen})


def _through(part: Term, t: Term, sign: int = 1) -> Term:
    """The term ``t`` with a part of the gradient in the place of the gradient."""
    factors = (*part.factors, *t.factors[1:])
    inside = len(part.factors) - 1 + t.inside
    return t.of(*factors, coefficient=sign * part.coefficient * t.coefficient, inside=inside)


def _late(g: Grammar, part: Line, readers: Pulls) -> Iterator[Candidate]:
    (term,) = part.terms
    named = dict.fromkeys(g.receiver(place[1], pull) for place, pull in readers.items())
    said = f"{g.product(term)} is added to {g.word(part.target)} after {', '.join(named)}"
    edits, after = [], []
    for place, pull in readers.items():
        (t,) = pull.terms
        lost = _through(term, t, -1)
        edits.append(Edit(place, (pull.of(t, lost),)))
        carries = pull.target.name[2:] in PASSED
        after.append(Edit(place, (pull.of(t, lost, *[term] * carries),)))
    yield Candidate(said, tuple(edits))
    if after != edits:
        yield Candidate(f"{said}, and goes on as it is", tuple(after))


def overwritten(g: Grammar) -> Iterator[Candidate]:
    """A variable's gradient is overwritten by one of its pulls, in place, before others read it."""
    for v, n in g.program.index.items():
        readers = {place: pull for place, pull in g.program.added.items() if place[1] == n}
        for first, pull in readers.items():
            (term,) = pull.terms
            others = {at: p for at, p in readers.items() if p.target != pull.target}
            known = pull.target.name in g.program.parameters or g.program.lines[n].function
            if known or term.matrix or len(term.factors) < 2:
                continue
            for size in range(1, len(others) + 1):
                for chosen in combinations(others, size):
                    named = dict.fromkeys(g.receiver(n, others[at]) for at in chosen)
                    edits = (
                        Edit(at, (others[at].of(_through(term, others[at].terms[0])),))
                        for at in chosen
                    )
                    said = f"{g.word(Factor(f'd {v}'))} is overwritten by {g.product(term)} before"
                    yield Candidate(f"{said} {', '.join(named)}", tuple(edits))


def together(g: Grammar) -> Iterator[Candidate]:
    """The same edit in every gate."""
    groups: dict[str, dict[str, list[Edit]]] = {}
    sizes: dict[str, int] = {}
    for place, pull in g.program.added.items():
        line = g.program.lines[place[1]]
        what = _family(g, line, pull)
        if not what:
            continue
        sizes[what] = sizes.get(what, 0) + 1
        for said, new in g.slopes(line, pull) if line.function else g.lines(pull):
            short = "a" if line.target.name.startswith("a.") else "s"
            said = said.replace(g.word(Factor(line.target.name)), short)
            said = said.replace(g.product(pull.terms[0]), "it")
            groups.setdefault(what, {}).setdefault(said, []).append(Edit(place, (new,)))
    for what, edits_by_text in groups.items():
        for said, members in edits_by_text.items():
            if len(members) == sizes[what] > 1:
                yield Candidate(f"{what} {said}", tuple(members))


def _family(g: Grammar, line: Line, pull: Line) -> str:
    name = stem(pull.target.name)
    if name.startswith("d a."):
        return f"the slope of every {line.function}"
    known = {block: f"the gradient of {block}" for block in g.program.blocks}
    known |= {"d y": CARRIED["y"], "d x": "dx"}
    return known.get(name, "")
