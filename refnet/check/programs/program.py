"""A net's program: the lines of its cell, their pulls, and the naive net around them.

Checked by: tests/check/test_programs.py.
"""

import numpy as np

from refnet.check.naive.cells import PEEPHOLES
from refnet.check.naive.nets import Recurrent
from refnet.check.programs.cells import Line, lines_of, pulls

__all__ = ["Program"]


class Program:
    """The lines of a net's cell and their pulls, and the naive net around them."""

    def __init__(self, s: Recurrent) -> None:
        self.results = s.run()
        self.direct = s.read_out()[1]
        self.s, net, p = s, s.net, s.p
        G = len(net.gates)  # type: ignore[union-attr]
        self.blocks = [name for name in ("Whh", "Wxh", "bh") if name in p]
        names = (*self.blocks, "bhn", *PEEPHOLES)
        self.p = {name: p[name] for name in names if name in p}
        for name in self.blocks:
            self.p |= {f"{name}{n}": part for n, part in enumerate(np.split(p[name], G))}
            del self.p[name]
        matrices = {name for name, value in self.p.items() if value.ndim == 2}
        self.parameters = {*self.p}
        activation = net.activation.name
        self.lines = lines_of(net.cell, activation, matrices, self.parameters)  # type: ignore[union-attr]
        for size in {value.shape[-1] for value in self.p.values()}:
            self.p |= {f"unit {n} of {size}": row for n, row in enumerate(np.eye(size))}
        self.clip = s.bound is not None
        self.pulls = [self.pulls_of(line) for line in self.lines]
        self.index = {line.target.name: n for n, line in enumerate(self.lines)}

    def pulls_of(self, line: Line, by_value: bool = True) -> tuple[Line, ...]:
        """What a line adds to the gradients of its factors."""
        return pulls(line, by_value, self.clip, self.parameters)
