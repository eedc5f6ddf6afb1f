"""The variables of many edited programs at every step, and what lines make of them.

``runs`` goes through the steps and the edits; here a line, of all candidates or of one, at one step
or at several, is evaluated.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.programs.arrays import LAYOUTS, relaid
from refnet.check.programs.cells import STATES, Factor, Line, Term
from refnet.check.programs.functions import form, function
from refnet.check.programs.program import Program

__all__ = ["Values"]


class Values:
    """``v``: the variables (T + 1, K, B, H) of K candidates, or of all alike, where row 0 is before
    the first step; ``p``: the parameters that differ among the candidates."""

    v: Params
    p: Params

    def __init__(self, program: Program) -> None:
        self.program, self.s = program, program.s
        self.T, self.B = self.s.x.shape[:2]

    def zeros(self, *shape: int) -> Array:
        """Zeros in the type of x."""
        return np.zeros_like(self.s.x, shape=shape)

    def parameter(self, name: str, k: int | None) -> Array:
        """A parameter of all candidates, or of candidate ``k``."""
        if name in self.p:
            return self.p[name] if k is None else self.p[name][k]
        return self.program.value(name)

    def row(self, f: Factor, at: Any) -> tuple[Any, Any]:
        """The row of a factor at a step, or at each of several, and whether there is such a
        step."""
        row, low = at + f.step, 0 if f.name.removeprefix("d ") in STATES else 1
        if f.edge in ("last", "first"):
            return np.full_like(row, self.T if f.edge == "last" else low), True
        if f.edge == "reversed":
            return self.T + 1 - np.asarray(at) + f.step, True
        if f.edge == "wrap":
            return low + (row - low) % (self.T + 1 - low), True
        if not f.edge:
            return row, True
        inside = np.clip(row, low, self.T)
        return inside, True if f.edge == "stay" else inside == row

    def value(self, f: Factor, at: int | Array, k: int | None) -> Array:
        """A factor at a step, or at each of several."""
        if f.name in self.program.p or "|" in f.name:
            return self.parameter(f.name, k)
        v = self.v[f.name]
        row, inside = self.row(f, at)
        rows = self._relaid(v, f, at) if f.edge in LAYOUTS else v[row]
        part: Array = rows if k is None else rows[..., min(k, v.shape[1] - 1), :, :]
        if inside is not True:
            part = part * np.reshape(inside, (-1, *(1,) * (part.ndim - 1)) if np.ndim(at) else ())
        if not f.form:
            return part
        if "'" in f.form:
            name, _, then = f.form.partition("'")
            slope = function(name).slope(part)
            return function(then).value(slope) if then else slope
        return form(f.form)(part)

    def _relaid(self, v: Array, f: Factor, at: int | Array) -> Array:
        """An array whose steps and examples are read in another layout."""
        steps, examples = relaid(f.edge, self.T, self.B)
        rows = steps[np.asarray(at) - 1]
        return np.moveaxis(v[1 + rows + f.step, :, examples[np.asarray(at) - 1]], -2, -3)

    def product(self, factors: Sequence[Factor], at: int | Array, k: int | None) -> Array:
        """The product of factors, 1 if there is none."""
        out: Array | None = None
        for f in factors:
            value = self.value(f, at, k)
            out = value if out is None else out * value
        if out is None:
            out = np.ones((1, 1, 1) if k is None else (1, 1))
        return out

    def _term(self, term: Term, at: int | Array, k: int | None) -> Array:
        if not term.matrix:
            out = self.product(term.factors, at, k)
        else:
            M = self.parameter(term.matrix, k)
            M = M if term.back != term.transposed else np.swapaxes(M, -1, -2)
            out = self.s.product(self.product(term.factors[: term.inside], at, k), M)
            for f in term.factors[term.inside :]:
                out = out * self.value(f, at, k)
        return out if term.coefficient == 1 else term.coefficient * out

    def evaluate(self, line: Line, at: int | Array, k: int | None = None) -> Array:
        """What a line gives at a step, or at each of several, for all candidates or for candidate
        ``k``."""
        out: Array | float = 0.0
        for n, term in enumerate(line.terms):
            out = self._term(term, at, k) if n == 0 else out + self._term(term, at, k)
        if not line.terms:
            first = self.v[line.target.name]
            out = np.zeros(first[0].shape if k is None else first[0][0].shape)
        out = np.asanyarray(out)
        if line.function and line.function != self.program.unknown:
            out = (
                self.s.clipped(out)
                if line.function == "clip"
                else function(line.function).value(out)
            )
        return out if line.scale == 1 else line.scale * out
