"""A net's program: the lines of its cell, their pulls, and the naive net around them.

Checked by: tests/check/test_programs.py.
"""

import re

import numpy as np

from refnet.batch import Params
from refnet.check.naive.nets import PEEPHOLES, Recurrent
from refnet.check.programs.cells import Line, has, lines_of, pulls

__all__ = ["Program"]


class Program:
    """The lines of a net's cell and their pulls, and the naive net around them, which has begun."""

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
        self.clip = s.bound is not None
        self.pulls = [self.pulls_of(line) for line in self.lines]
        self.index = {line.target.name: n for n, line in enumerate(self.lines)}

    def parts(self, s: Recurrent) -> Params:
        """The parameters of such a pass, gate by gate."""
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
