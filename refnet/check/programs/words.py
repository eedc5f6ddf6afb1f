"""Variables, formulas and gradients of a program in words.

Checked by: tests/check/test_programs.py.
"""

from dataclasses import dataclass

from refnet.check.programs.cells import FORMS, Factor, Line, Term
from refnet.check.programs.program import Program

__all__ = ["Words", "stem"]

STEPS = {"h": 1, "c": 1, "k": 1, "x": 0, "y": 0, "d h": 1, "d c": 1}
"""The step that a variable's words have in the line of step t."""
TEXTS = {
    "y": "h[{}]",
    "k": "tanh(c[{}])",
    "d h": "dh[{}]",
    "d c": "dc[{}]",
    "d y": "Whh' da",
    "d read": "the read-out's gradient",
    "u": "(Whn h[t] + bhn)",
    "v": "r h[t]",
    "w": "Whn h[t]",
    "read": "what is read out",
}


def stem(name: str) -> str:
    """A parameter's name without the number of its gate."""
    return name.rstrip("0123456789")


@dataclass(frozen=True)
class Words:
    """What a program's lines are called."""

    program: Program
    gates: tuple[str, ...]

    def word(self, f: Factor) -> str:
        """A variable as formulas name it."""
        by = f.step + STEPS.get(f.name, 0)
        step = f"t{by:+d}" if by else "t"
        text = TEXTS.get(f.name, "")
        if not text and f.name in self.program.parameters:
            text = stem(f.name)
        elif not text:
            text = f.name.replace(".", "_").replace("d ", "d" if "." in f.name else "d_")
            text += "[{}]" if f.name in STEPS or by else ""
        if f.edge == "last":
            text = text.split("[")[0] + " of the last step"
        elif f.step and "{" not in text and f.name in TEXTS:
            text += f" of step {step}"
        text = text.format(step)
        return FORMS[f.form][1].format(text) if f.form in FORMS else f"{f.form}({text})"

    def edged(self, f: Factor) -> str:
        """A variable, and what stands where there is no such step."""
        ends = ("first", "last") if f.step < 0 else ("last", "first")
        more = {
            "wrap": f" (at the {ends[0]} step the {ends[1]} one)",
            "zero": " (zero beyond the end)",
        }
        return self.word(f) + more.get(f.edge, "")

    def product(self, term: Term) -> str:
        """A term."""
        names = [stem(term.matrix) + "'" * (term.back != term.transposed)] * bool(term.matrix)
        c = term.coefficient
        sign = "" if c == 1 else "-" if c == -1 else f"{c:g} "
        return sign + (" ".join([*names, *map(self.edged, term.factors)]) or "1")

    def formula(self, line: Line) -> str:
        """The right-hand side of a line."""
        text = " + ".join(map(self.product, line.terms)).replace("+ -", "- ") or "0"
        return f"{line.function}({text})" if line.function else text

    def target(self, line: Line) -> str:
        """What a line sets."""
        return "what Whh reads" if line.target.name == "y" else self.word(line.target)

    def receiver(self, n: int, pull: Line) -> str:
        """Whose gradient a pull of line ``n`` adds to."""
        line, name, many = self.program.lines[n], pull.target.name, len(self.gates) > 1
        gate, what = line.target.name.removeprefix("a."), name.removeprefix("d ")
        if name in self.program.parameters:
            return f"the gradient of {stem(name)}" + f" in gate {gate}" * (
                many and stem(name) != name
            )
        if what.startswith("a."):
            return f"the slope of {'gate ' * many}{what[2:]}"
        if line.function:
            return f"the slope of {self.word(line.target)}"
        if what == "x":
            return f"the part of gate {gate} in dx" if many else "dx"
        if what == "c" and pull.target.step:
            return "the gradient that the cell carries"
        known = {
            "y": "the gradient that is carried through Whh" + f" of gate {gate}" * many,
            "h": "the gradient that is carried from h[t+1] to h[t]",
        }
        usual = f"the gradient of {'gate ' * (what in self.gates)}{self.word(Factor(what))}"
        return known.get(what, usual)
