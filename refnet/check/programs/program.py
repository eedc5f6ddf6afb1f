"""A net's program: the lines of its cell, their pulls, and the naive net around them.

The lines come from the cell's text (``cells``), gate by gate; ``grammar`` edits them and ``runs``
evaluates them. The edits that all need are made here: that the backward pass follows a line, or
reads another variable.

Checked by: tests/check/test_programs.py.
"""

import re

import numpy as np

from refnet.batch import Array, Params
from refnet.check.naive.nets import PEEPHOLES, Recurrent
from refnet.check.programs.arrays import formed
from refnet.check.programs.cells import Factor, Line, copied, lines_of, pulls
from refnet.check.programs.edit import Candidate, Edit, Place
from refnet.check.programs.functions import has

__all__ = ["Program", "stem"]


def stem(name: str) -> str:
    """A parameter's name without the number of its gate."""
    return name.rstrip("0123456789")


class Program:
    """The lines of a net's cell, their pulls, and the naive net around them, which has begun."""

    results: Params

    def __init__(self, s: Recurrent) -> None:
        self.s, net, p = s, s.net, s.p
        self.gates: tuple[str, ...] = net.gates  # type: ignore[union-attr]
        self.blocks = [name for name in ("Whh", "Wxh", "bh") if name in p]
        self.p = self.parts(s)
        matrices = {name for name, value in self.p.items() if value.ndim == 2}
        self.parameters = {*self.p}
        activation = net.activation.name
        self.unknown = "" if has(net.activation) else activation
        """The activation, if it is no function of single units alone."""
        self.lines = lines_of(s.text, activation, matrices, self.parameters)
        self.roles = dict(re.findall(r"(\w+) = (act|sigmoid) ", s.text))
        for size in {value.shape[-1] for value in self.p.values()}:
            self.p |= {f"unit {n} of {size}": row for n, row in enumerate(np.eye(size))}
        self.masks: Params = {}
        """The weights of matrices in another form, by its name."""
        self.clip = s.bound is not None
        self.pulls = [self.pulls_of(line) for line in self.lines]
        self.index = {line.target.name: n for n, line in enumerate(self.lines)}
        self.needs: dict[str, set[str]] = {}
        """Of each variable, those of its step that it is made of, itself included."""
        for line in self.lines:
            here = {f.name for term in line.terms for f in term.factors if not f.step}
            more = (self.needs.get(name, {name}) for name in here)
            self.needs[line.target.name] = {line.target.name}.union(*more)

    def value(self, name: str) -> Array:
        """A parameter, perhaps in another form: ``Whh0|read unit by unit``."""
        if name not in self.p:
            base, _, how = name.partition("|")
            names = (
                [f"{stem(base)}{n}" for n in range(len(self.gates))]
                if stem(base) in self.blocks
                else [base]
            )
            stack = formed(np.stack([self.p[each] for each in names]), how, self.gates)
            self.p |= {f"{each}|{how}": part for each, part in zip(names, stack)}
        return self.p[name]

    def parts(self, s: Recurrent) -> Params:
        """The parameters of a pass, gate by gate."""
        p: Params = {name: s.p[name] for name in ("bhn", *PEEPHOLES) if name in s.p}
        for name in self.blocks:
            parts = np.split(s.p[name], len(self.gates))
            p |= {f"{name}{n}": part for n, part in enumerate(parts)}
        return p

    def pulls_of(self, line: Line, by_value: bool = True) -> tuple[Line, ...]:
        """What a line adds to the gradients of its factors."""
        if line.function and line.function == self.unknown:
            line = line._replace(function="")
        return pulls(line, by_value, self.clip, self.parameters)

    def read_as(self, name: str, source: Factor) -> Edit:
        """The edit with which the backward pass reads ``source`` for a variable."""
        return Edit(("tape", self.index[name], 0), (copied(name, source),))

    def follow(self, n: int, line: Line, weight: Array | None = None, more: bool = False) -> Edit:
        """The edit with which the backward pass follows where ``line`` stands for line ``n``."""
        return Edit(("pulls", n, 0), self.pulls_of(line, False), weight, more)

    @property
    def pre_activations(self) -> dict[int, Line]:
        """The lines of pre-activations, by their numbers."""
        return {n: a for n, a in enumerate(self.lines) if a.target.name.startswith("a.")}

    def of_function(self, name: str) -> dict[int, Line]:
        """The lines with a function, by their numbers."""
        return {n: line for n, line in enumerate(self.lines) if line.function == name}

    @property
    def added(self) -> dict[Place, Line]:
        """The pulls that add to the gradients of other variables, by their places."""
        return {
            ("pull", n, m): pull
            for n, group in enumerate(self.pulls)
            for m, pull in enumerate(group)
            if m
        }

    def sweeps(self, candidate: Candidate) -> int:
        """How often a step's lines must be gone through: twice if an edited one needs a later
        one."""
        later = (
            self.index.get(f.name, -1) > edit.place[1] and not f.step
            for edit in candidate.edits
            if edit.place[0] == "line"
            for line in edit.lines
            for term in line.terms
            for f in term.factors
        )
        return 1 + any(later)
