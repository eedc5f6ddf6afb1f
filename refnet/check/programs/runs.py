"""Many edited programs at once: their forward and backward passes side by side.

The lines of a step are gone through once for all candidates; where a candidate has an edit of a
line or of a pull, its own share of the result is made anew (``values``). Candidates whose states or
dx part from what was given are left behind at that step. ``explain`` and ``passes`` run them.

Checked by: tests/check/test_programs.py.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from refnet.batch import Array, Params
from refnet.check.naive.nets import Recurrent
from refnet.check.programs.arrays import TYPES, coarse, pulled_back
from refnet.check.programs.cells import STATES, Factor, Line, Term
from refnet.check.programs.edit import SUMS, Candidate, Edit, Fits, Place, Stays
from refnet.check.programs.program import Program
from refnet.check.programs.values import Values

__all__ = ["Runs"]


class Runs(Values):
    """The passes of many candidates. Either all of them may edit the forward pass, or none does."""

    def __init__(self, program: Program, candidates: Sequence[Candidate]) -> None:
        super().__init__(program)
        self.candidates = list(candidates)
        self.of: dict[Place, list[tuple[int, Edit]]] = {}
        self._place()
        kinds = {place[0] for place in self.of}
        self.passes = [candidate.s or self.s for candidate in self.candidates]
        self.apart = any(candidate.s for candidate in self.candidates)
        self.forward = "line" in kinds or self.apart
        K = len(self.candidates)
        self.K = K if self.forward else 1
        self.loop = bool(self.forward or kinds - {"pull"} or self._in_the_loop())
        self.KB = K if self.loop else 1
        self.sweeps = max(map(program.sweeps, self.candidates), default=1)
        rows = (self.T + 1, self.K, self.B)
        H = self.s.p["Whh"].shape[1]
        names = {line.target.name for line in program.lines} | set(STATES)
        self.v = {name: self.zeros(*rows, H) for name in names}
        self._around(self.passes if self.apart else [self.s])
        self.results: list[Params] = []

    def _around(self, passes: list[Recurrent]) -> None:
        """Take x, the mask, the initial states and the parameters of the passes."""
        x = np.stack([s.x for s in passes], axis=1)
        self.v["x"] = np.concatenate([np.zeros_like(x[:1]), x])
        if re.search(r"\bm\b", self.s.text):
            m = np.stack([s.at("m", s.batch.mask) for s in passes], axis=1)[..., None]
            self.v["m"] = np.concatenate([m[:1], m])
        for n, s in enumerate(passes):
            at = slice(None) if len(passes) == 1 else n
            for name, states in (("h", s.h), ("c", s.c)):
                if states:
                    self.v[name][0, at] = states[0]
        self.p: Params = {}
        if len(passes) > 1:
            parts = [self.program.parts(s) for s in passes]
            for name, first in parts[0].items():
                if any(not np.array_equal(first, part[name]) for part in parts):
                    many = np.stack([part[name] for part in parts])
                    self.p[name] = many if first.ndim == 2 else many[:, None]
        self.called: dict[str, list[int]] = {}
        for role in ("act", "sigmoid"):
            self.called[role] = [
                k
                for k, s in enumerate(passes)
                if s.has(role, f"{role}_pull") or role == "act" and self.program.unknown
            ]

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
        """The values of a variable of the forward pass at every step."""
        self.states()
        return self.value(f, np.arange(1, self.T + 1), 0)

    def states(self, stays: Stays | None = None) -> None:
        """Run the forward pass; candidates whose states ``stays`` rejects at some step are left
        behind."""
        program = self.program
        for at in range(1, self.T + 1):
            for n, line in [*enumerate(program.lines)] * self.sweeps:
                base = self.evaluate(line, at)
                value = self._blended(("line", n, 0), base, at, self.K)
                self.v[line.target.name][at] = value
                role = program.roles.get(line.target.name, "")
                for k in self.called.get(role, ()):
                    (a,) = line.terms[0].factors
                    called = getattr(self.passes[k], role)(self.value(a, at, k))
                    self.v[line.target.name][at, k] = called
            if stays and self.forward:
                self.keep(stays(at, self.v, [candidate.name for candidate in self.candidates]))
                if not self.candidates:
                    return

    def _tapes(self) -> None:
        """What the backward pass reads."""
        read: Params = {}
        for n, line in enumerate(self.program.lines):
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
        """The gradient of the read-out (T + 1, K, B, H), and each candidate's results so far."""
        direct, results = np.zeros_like(self.v["h"]), []
        for k, s in enumerate(self.passes[: self.K]):
            s.h = list(self.v["h"][:, k])
            s.c = list(self.v["c"][:, k]) if s.c else []
            direct[:, k] = s.read_out(np.concatenate([self.v["h"][:1, k], self.v["read"][1:, k]]))
            results.append({
                "loss": s.loss, "outputs": s.outputs, "h": self.v["h"][:, k],
                **({"c": self.v["c"][:, k]} if s.c else {}),
                "dWhy": s.product(s.dv.T, s.rows), "dby": s.dv.sum(axis=0),
            })  # fmt: skip
        return direct, results if self.forward else results * len(self.candidates)

    def _stale(self, k: int) -> Array:
        """The gradient of Why where it takes what the backward pass reads of the states."""
        s, h = self.s, self.v["read"][:, k]
        every = getattr(s.net, "readout", "") == "every"
        rows = h[1:].reshape(-1, h.shape[-1]) if every else h[s.lengths, np.arange(self.B)]
        return np.asarray(s.dv.T @ rows)

    def outcomes(self) -> Iterator[tuple[Candidate, Params]]:
        """Every candidate's results of the forward pass."""
        self.states()
        yield from zip(self.candidates, self.read_out()[1])

    def keep(self, fit: Array) -> None:
        """Go on with the candidates that ``fit`` says."""
        if fit.all():
            return
        for name, value in self.v.items():
            if value.shape[1] == len(fit) and (len(fit) > 1 or not fit.any()):
                self.v[name] = value[:, fit]
        self.p = {name: value[fit] for name, value in self.p.items()}
        self.candidates = [c for c, good in zip(self.candidates, fit) if good]
        self.passes = [c for c, good in zip(self.passes, fit) if good]
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
        """The results of candidates, of those that ``right`` accepts after the forward pass,
        ``stays`` at each of its steps, and ``fits`` at each step of the backward pass, by dx."""
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
        self._tapes()
        for k, _ in self.of.get(("tape", self.program.index["read"], 0), []):
            self.results[k] = {**self.results[k], "dWhy": self._stale(k)}
        program, v = self.program, self.v
        names = {pull.target.name for group in program.pulls for pull in group} | {
            "d x",
            "d h",
            "d c",
        }
        for edits in self.of.values():
            names |= {line.target.name for _, edit in edits for line in edit.lines if line.adds}
        for name in names - program.parameters:
            shape = self.v[name.removeprefix("d ")].shape[2:]
            v[name] = self.zeros(self.T + 1, self.KB, *shape)
        v["d read"] = self.zeros(self.T + 1, self.KB, *direct.shape[2:]) + direct
        for k, s in enumerate(self.passes if self.apart else [self.s]):
            for name, end in zip(("d h", "d c"), np.zeros((2, 1, 1)) + s.final.get("h0", 0)):
                v[name][self.T, k if self.apart else slice(None)] += end
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
            usual = pull == Line(pull.target, (Term((pull.target,)),))
            if usual and ("pull", n, 0) not in self.of and not whole:
                continue
            value = self._blended(("pull", n, m), self.evaluate(pull, at), at, self.KB)
            value = self._pulled(n, m, at, value)
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
                row, inside = self.row(f, at)
                v[f.name][row, k] += inside * self._weight(edit, at) * self.evaluate(pull, at, k)

    def _pulled(self, n: int, m: int, at: int, value: Array) -> Array:
        """What a function line adds, with the slopes of the passes that have their own."""
        line = self.program.lines[n]
        role = self.program.roles.get(line.target.name, "")
        called = self.called.get(role) if m else None
        if called:
            value = self.zeros(self.KB, *value.shape[1:]) + value
            for k in called:
                s, name = self.passes[k], line.target.name
                (a,) = line.terms[0].factors
                of = self.value(a, at, k), self.v[name][at, k], self.v[f"d {name}"][at, k]
                pulled = getattr(s, f"{role}_pull")(*of)
                value[k] = s.clipped(pulled) if a.name.startswith("a.") else pulled
        return value

    def _sum(self, line: Line, k: int | None, weight: Array | None = None) -> Array:
        """A parameter's gradient, summed over steps and examples."""
        out = np.asarray(sum(self._summed(line, term, k, weight) for term in line.terms))
        if "|" in line.function:
            flat = self.program.p[line.target.name].ndim == 1
            out = pulled_back(out[..., None] if flat else out, line.function.partition("|")[2])
            out = out[..., 0] if flat else out
        return out * self.program.masks.get(line.function, 1)

    def _summed(self, line: Line, term: Term, k: int | None, weight: Array | None) -> Array:
        every = np.arange(1, self.T + 1)
        if self.program.p[line.target.name].ndim == 1:
            out = self.product(term.factors, every, k)
            out = out if weight is None else out * self._lifted(weight, out)
            out = self._coarse(line, out.sum(axis=-2)).sum(axis=0)
            return np.asarray(term.coefficient * line.scale * out)
        rows = self.product(term.factors[: term.inside], every, k)
        rows = rows if weight is None else rows * self._lifted(weight, rows)
        columns = self.product(term.factors[term.inside :], every, k)
        if line.function in SUMS:
            rows, columns = (
                a.sum(axis=SUMS[line.function], keepdims=True) for a in (rows, columns)
            )
        left, right = (
            np.moveaxis(a, 0, -3).reshape(*a.shape[1:-2], -1, a.shape[-1]) for a in (rows, columns)
        )
        if term.transposed:
            left, right = right, left
        if line.function in TYPES:
            steps = (self.s.product(a.swapaxes(-1, -2), b) for a, b in zip(rows, columns))
            return np.asarray(sum(self._coarse(line, part) for part in steps))
        out = self.s.product(np.swapaxes(left, -1, -2), right)
        return np.asarray(term.coefficient * line.scale * out)

    @staticmethod
    def _coarse(line: Line, part: Array) -> Array:
        """One step's share of a sum, perhaps in a coarser type."""
        return coarse(part, line.function) if line.function in TYPES else part

    @staticmethod
    def _lifted(weight: Array, like: Array) -> Array:
        return weight if like.ndim == weight.ndim else weight[:, None]

    def _edited_sums(self) -> Iterator[tuple[int, Edit, Line, int]]:
        """The pulls that a candidate's edit adds, and those that it takes away, with a sign."""
        for (kind, n, m), edits in self.of.items():
            pulls = self.program.pulls[n]
            usual = pulls if kind == "pulls" else pulls[m : m + 1]
            for k, edit in edits if kind in ("pull", "pulls") else ():
                yield from ((k, edit, line, 1) for line in edit.lines)
                yield from ((k, edit, line, -1) for line in usual if not edit.more)

    def _sums(self) -> Iterator[tuple[Candidate, Params]]:
        program, parameters = self.program, self.program.parameters
        total: Params = {}
        apart: list[Params] = [{} for _ in self.candidates]
        for group in program.pulls:
            for pull in group:
                name = pull.target.name
                if name in parameters:
                    total[name] = total.get(name, 0) + self._sum(pull, None)
        for k, edit, line, sign in self._edited_sums():
            name = line.target.name
            if name in parameters:
                added = sign * self._sum(line, k, edit.weight)
                apart[k][name] = apart[k].get(name, 0) + added
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
        s, results = self.passes[k], self.results[min(k, len(self.results) - 1)]
        for name in self.program.blocks:
            parts = [f"{name}{n}" for n in range(len(self.program.gates))]
            grads[name] = np.concatenate([grads.pop(n, self.program.p[n] * 0) for n in parts])
        at = min(k, self.v["d h"].shape[1] - 1)
        s.d = {name: self.v[f"d {name}"][:, at] for name in ("h", "c")[: 1 + bool(s.c)]}
        first = np.stack([s.d["h"][0], s.d["c"][0]]) if s.c else s.d["h"][0]
        grads |= {"Why": results["dWhy"], "by": results["dby"]}
        named = s.finished({**grads, "h0": first, "x": self.v["d x"][1:, at]})
        return {f"d{name}": value.astype(s.x.dtype, copy=False) for name, value in named.items()}
