"""Many edited programs at once: their forward and backward passes side by side.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.check.programs.arrays import LAYOUTS, relaid
from refnet.check.programs.cells import FORMS, STATES, Factor, Line, Term, function
from refnet.check.programs.program import Program

__all__ = ["Candidate", "Edit", "Fits", "Place", "Runs", "SUMS", "Stays", "sweeps"]

Place = tuple[str, int, int]
"""("line", n, 0), ("pull", n, m) or ("pulls", n, 0), of line n; ("tape", n, 0): what the backward
pass reads of it."""


Fits = Callable[[int, Array, list[str]], Array]
"""Which candidates' dx (K, B, D) may be that of a step, from the step, dx and the names."""


Stays = Callable[[int, Params, list[str]], Array]
"""Which candidates' states (T + 1, K, B, H) may be those at a row, from it, these and the names."""


class Edit(NamedTuple):
    """Other lines at a place. ``weight``: how much of the edit is made, by step, example and unit,
    where that is not all; ``more``: pulls that are added to those that are there."""

    place: Place
    lines: tuple[Line, ...]
    weight: Array | None = None
    more: bool = False


class Candidate(NamedTuple):
    """A mistake: its name and edits."""

    name: str
    edits: tuple[Edit, ...]


SUMS = {"over the steps": (0,), "over the examples": (-2,), "over the steps and examples": (0, -2)}
"""What the factors of a product are summed over, in place of the products."""


def sweeps(program: Program, candidate: Candidate) -> int:
    """How often a step's lines must be gone through: twice if an edited one needs a later one."""
    later = (
        program.index.get(f.name, -1) > edit.place[1] and not f.step
        for edit in candidate.edits
        if edit.place[0] == "line"
        for line in edit.lines
        for term in line.terms
        for f in term.factors
    )
    return 1 + any(later)


class Runs:
    """The passes of candidates that may all edit the forward pass, or none of them."""

    def __init__(self, program: Program, candidates: Sequence[Candidate]) -> None:
        self.program, self.s = program, program.s
        self.candidates = list(candidates)
        self.T, self.B = self.s.x.shape[:2]
        self.of: dict[Place, list[tuple[int, Edit]]] = {}
        self._place()
        kinds = {place[0] for place in self.of}
        self.forward = "line" in kinds
        K = len(self.candidates)
        self.K = K if self.forward else 1
        self.loop = bool(self.forward or kinds - {"pull"} or self._in_the_loop())
        self.KB = K if self.loop else 1
        self.sweeps = max((sweeps(program, candidate) for candidate in self.candidates), default=1)
        rows = (self.T + 1, self.K, self.B)
        H = self.s.p["Whh"].shape[1]
        names = {line.target.name for line in program.lines} | set(STATES)
        self.v = {name: np.zeros((*rows, H)) for name in names}
        self.v["x"] = np.concatenate([np.zeros_like(self.s.x[:1]), self.s.x])[:, None]
        self.results: list[Params] = []

    def _place(self) -> None:
        self.of = {}
        for k, candidate in enumerate(self.candidates):
            for edit in candidate.edits:
                self.of.setdefault(edit.place, []).append((k, edit))

    def _in_the_loop(self) -> bool:
        return any(
            self.program.pulls[n][m].target.name not in self.program.parameters
            for kind, n, m in self.of
            if kind == "pull"
        )

    def _row(self, f: Factor, at: Any) -> tuple[Any, Any]:
        """Where a factor is at a step, or each of several, and whether it is there at all."""
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

    def _value(self, f: Factor, at: int | Array, k: int | None) -> Array:
        if f.name in self.program.p or "|" in f.name:
            return self.program.value(f.name)
        v = self.v[f.name]
        row, inside = self._row(f, at)
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
        return FORMS[f.form][0](part)

    def _relaid(self, v: Array, f: Factor, at: int | Array) -> Array:
        """An array whose steps and examples are read in another layout."""
        steps, examples = relaid(f.edge, self.T, self.B)
        rows = steps[np.asarray(at) - 1]
        return np.moveaxis(v[1 + rows + f.step, :, examples[np.asarray(at) - 1]], -2, -3)

    def _product(self, factors: Sequence[Factor], at: int | Array, k: int | None) -> Array:
        out: Array | None = None
        for f in factors:
            value = self._value(f, at, k)
            out = value if out is None else out * value
        if out is None:
            out = np.ones((1, 1, 1) if k is None else (1, 1))
        return out

    def _term(self, term: Term, at: int | Array, k: int | None) -> Array:
        if not term.matrix:
            out = self._product(term.factors, at, k)
        else:
            M = self.program.value(term.matrix)
            out = self._product(term.factors[: term.inside], at, k)
            out = out @ (M if term.back != term.transposed else M.T)
            for f in term.factors[term.inside :]:
                out = out * self._value(f, at, k)
        return out if term.coefficient == 1 else term.coefficient * out

    def evaluate(self, line: Line, at: int | Array, k: int | None = None) -> Array:
        """What a line gives, of all candidates or of one."""
        out: Array | float = 0.0
        for n, term in enumerate(line.terms):
            out = self._term(term, at, k) if n == 0 else out + self._term(term, at, k)
        if not line.terms:
            first = self.v[line.target.name]
            out = np.zeros(first[0].shape if k is None else first[0][0].shape)
        out = np.asarray(out)
        if line.function:
            out = (
                self.s.clipped(out)
                if line.function == "clip"
                else function(line.function).value(out)
            )
        return out if line.scale == 1 else line.scale * out

    def _weight(self, edit: Edit, at: int) -> Array | float:
        w = edit.weight
        return 1.0 if w is None else w[0 if len(w) == 1 else at - 1]

    def _blended(self, place: Place, base: Array, at: int, lead: int) -> Array:
        """The value of a line, with every candidate's edit of it."""
        edits = self.of.get(place)
        if not edits:
            return base
        value = np.broadcast_to(base, (lead, *base.shape[1:])).copy()
        for k, edit in edits:
            new = self.evaluate(edit.lines[0], at, k)
            w = self._weight(edit, at)
            if edit.more:
                value[k] = value[k] + w * new
            else:
                value[k] = new if edit.weight is None else value[k] + w * (new - value[k])
        return value

    def argument(self, f: Factor) -> Array:
        """A variable of the forward pass."""
        self.states()
        return self._value(f, np.arange(1, self.T + 1), 0)

    def states(self, stays: Stays | None = None) -> None:
        """The forward pass, of the candidates whose states at every step so far may be right."""
        program, s = self.program, self.s
        self.v["h"][0] = s.h[0]
        if s.c:
            self.v["c"][0] = s.c[0]
        for at in range(1, self.T + 1):
            for _ in range(self.sweeps):
                for n, line in enumerate(program.lines):
                    base = self.evaluate(line, at)
                    value = self._blended(("line", n, 0), base, at, self.K)
                    self.v[line.target.name][at] = value
            if stays and self.forward:
                self.keep(stays(at, self.v, [candidate.name for candidate in self.candidates]))
                if not self.candidates:
                    return
        read: Params = {}
        for n, line in enumerate(program.lines):
            name, edits = line.target.name, self.of.get(("tape", n, 0))
            if edits:
                whole = self.v[name]
                every = np.arange(1 - (name in STATES), self.T + 1)
                whole = np.repeat(whole, self.KB, axis=1) if whole.shape[1] == 1 else whole.copy()
                for k, edit in edits:
                    new = self.evaluate(edit.lines[0], every, k)
                    if edit.weight is not None:
                        new = whole[every, k] + edit.weight * (new - whole[every, k])
                    whole[every, k] = new
                read[name] = whole
        self.v |= read

    def read_out(self) -> tuple[Array, list[Params]]:
        """The read-out's gradient (T + 1, K, B, H), and each candidate's results up to there."""
        s = self.s
        if not self.forward:
            right = self.program.results
            names = ("loss", "outputs", "h", "c", "dWhy", "dby")
            shared: Params = {name: right[name] for name in right if name in names}
            return self.program.direct[:, None], [shared] * len(self.candidates)
        direct, results = np.zeros_like(self.v["h"]), []
        for k in range(self.K):
            s.h = [self.v["h"][0, k], *self.v["read"][1:, k]]
            s.c = list(self.v["c"][:, k]) if s.c else []
            dv, direct[:, k] = s.read_out()
            results.append({
                "loss": s.loss, "outputs": s.outputs, "h": self.v["h"][:, k],
                **({"c": self.v["c"][:, k]} if s.c else {}),
                "dWhy": dv.T @ s.rows, "dby": dv.sum(axis=0),
            })  # fmt: skip
        return direct, results

    def keep(self, fit: Array) -> None:
        """Go on with these candidates alone."""
        if fit.all():
            return
        for name, value in self.v.items():
            if value.shape[1] == len(fit) and (len(fit) > 1 or not fit.any()):
                self.v[name] = value[:, fit]
        self.candidates = [c for c, good in zip(self.candidates, fit) if good]
        self.results = [c for c, good in zip(self.results, fit) if good]
        self.K = len(self.candidates) if self.forward else 1
        self.KB = len(self.candidates)
        self._place()

    def gradients(
        self,
        right: Callable[[Params], bool] | None = None,
        fits: Fits | None = None,
        stays: Stays | None = None,
    ) -> Iterator[tuple[Candidate, Params]]:
        """Every candidate's results, of those whose forward pass is ``right``, also at every step
        (``stays``), and whose dx ``fits`` from the last step on."""
        self.states(stays)
        if not self.candidates:
            return
        direct, self.results = self.read_out()
        if right and self.forward:
            good = np.array([right(result) for result in self.results])
            direct = direct[:, good]
            self.keep(good)
            if not self.candidates:
                return
        program, v = self.program, self.v
        names = {pull.target.name for group in program.pulls for pull in group} | {
            "d x",
            "d h",
            "d c",
        }
        for edits in self.of.values():
            names |= {line.target.name for _, edit in edits for line in edit.lines if line.adds}
        for name in names - program.parameters:
            v[name] = np.zeros((self.T + 1, self.KB, *self.v[name.removeprefix("d ")].shape[2:]))
        v["d read"] = np.broadcast_to(direct, (self.T + 1, self.KB, *direct.shape[2:])).copy()
        for name, end in zip(("d h", "d c"), np.zeros((2, 1, 1)) + self.s.final.get("h0", 0)):
            v[name][self.T] += end
        for at in range(self.T, 0, -1):
            for n in reversed(range(len(program.lines))):
                self._pull(n, at)
            if fits and self.loop:
                names_of = [candidate.name for candidate in self.candidates]
                self.keep(fits(at - 1, v["d x"][at], names_of))
                if not self.candidates:
                    return
        v["d h"][0] += v["d read"][0]
        yield from self._sums()

    def _pull(self, n: int, at: int) -> None:
        v, whole = self.v, self.of.get(("pulls", n, 0), [])
        for m, pull in enumerate(self.program.pulls[n]):
            name = pull.target.name
            if name in self.program.parameters:
                continue
            if m == 0 and ("pull", n, 0) not in self.of and not whole:
                continue
            value = self._blended(("pull", n, m), self.evaluate(pull, at), at, self.KB)
            for k, edit in self.of.get(("pull", n, m), []):
                other = edit.lines[0].target
                if other != pull.target:
                    v[other.name][at + other.step][k] += value[k]
                    value[k] = 0
            if whole and m:
                value = np.broadcast_to(value, v[name][at].shape).copy()
                for k, edit in whole:
                    if not edit.more:
                        value[k] = value[k] * (1 - self._weight(edit, at))
            if pull.adds:
                v[name][at + pull.target.step] += value
            else:
                v[name][at] = value
        for k, edit in whole:
            for pull in edit.lines:
                f = pull.target
                if f.name in self.program.parameters or not pull.adds:
                    continue
                row, inside = self._row(f, at)
                v[f.name][row][k] += inside * self._weight(edit, at) * self.evaluate(pull, at, k)

    def _sum(self, line: Line, k: int | None, weight: Array | None = None) -> Array:
        """A parameter's gradient, summed over steps and examples."""
        out = np.asarray(sum(self._summed(line, term, k, weight) for term in line.terms))
        return out * self.program.masks.get(line.function, 1)

    def _summed(self, line: Line, term: Term, k: int | None, weight: Array | None) -> Array:
        every = np.arange(1, self.T + 1)
        if self.program.p[line.target.name].ndim == 1:
            out = self._product(term.factors, every, k)
            out = out if weight is None else out * self._lifted(weight, out)
            return np.asarray(term.coefficient * line.scale * out.sum(axis=(0, -2)))
        rows = self._product(term.factors[: term.inside], every, k)
        rows = rows if weight is None else rows * self._lifted(weight, rows)
        columns = self._product(term.factors[term.inside :], every, k)
        if line.function in SUMS:
            rows, columns = (
                a.sum(axis=SUMS[line.function], keepdims=True) for a in (rows, columns)
            )
        left, right = (
            np.moveaxis(a, 0, -3).reshape(*a.shape[1:-2], -1, a.shape[-1]) for a in (rows, columns)
        )
        if term.transposed:
            left, right = right, left
        out = np.swapaxes(left, -1, -2) @ right
        return np.asarray(term.coefficient * line.scale * out)

    @staticmethod
    def _lifted(weight: Array, like: Array) -> Array:
        return weight if like.ndim == weight.ndim else weight[:, None]

    def _sums(self) -> Iterator[tuple[Candidate, Params]]:
        program, parameters = self.program, self.program.parameters
        total: Params = {}
        apart: list[Params] = [{} for _ in self.candidates]
        for n, group in enumerate(program.pulls):
            whole = self.of.get(("pulls", n, 0), [])
            for m, pull in enumerate(group):
                name = pull.target.name
                if name not in parameters:
                    continue
                base = self._sum(pull, None)
                total[name] = total.get(name, 0) + base
                for k, edit in self.of.get(("pull", n, m), []):
                    new = self._sum(edit.lines[0], k, edit.weight)
                    old = 0 if edit.more else self._sum(pull, k, edit.weight)
                    apart[k][name] = apart[k].get(name, 0) + new - old
                for k, edit in whole:
                    if not edit.more:
                        apart[k][name] = apart[k].get(name, 0) - self._sum(pull, k, edit.weight)
            for k, edit in whole:
                for pull in edit.lines:
                    name = pull.target.name
                    if name in parameters:
                        apart[k][name] = apart[k].get(name, 0) + self._sum(pull, k, edit.weight)
        for k, candidate in enumerate(self.candidates):
            grads = {
                name: value[min(k, len(value) - 1)] + apart[k].get(name, 0)
                for name, value in total.items()
            }
            yield (
                candidate,
                {**self.results[min(k, len(self.results) - 1)], **self._named(grads, k)},
            )

    def _named(self, grads: Params, k: int) -> Params:
        """Gradients by the names of results."""
        s, G = self.s, len(self.s.net.gates)  # type: ignore[union-attr]
        for name in self.program.blocks:
            grads[name] = np.concatenate([grads.pop(f"{name}{n}") for n in range(G)])
        at = min(k, self.v["d h"].shape[1] - 1)
        first = self.v["d h"][0, at]
        start = np.stack([first, self.v["d c"][0, at]]) if s.c else first
        named = s.finished({**grads, "h0": start, "x": self.v["d x"][1:, at]})
        return {f"d{name}": value for name, value in named.items()}
