"""Variables, formulas and gradients of a program in words.

A reader knows h[t+1], a_f and dWhh, not the program's own y, s and q: this is their dictionary.
``grammar.Grammar`` is built on it, and all candidates are named by it.

Checked by: tests/check/test_programs.py.
"""

from dataclasses import dataclass

from refnet.check.programs.cells import PASSED, STATES, Factor, Line, Term
from refnet.check.programs.functions import FORMS
from refnet.check.programs.program import Program, stem

__all__ = ["Words"]

STEPS = dict.fromkeys(("h", "c", "k", "d h", "d c"), 1) | dict.fromkeys("xysqwup", 0)
"""The step that a variable's words have in the line of step t."""
TEXTS = {
    "y": "h[{}]",
    "q": "h[{}]",
    "s": "c[{}]",
    "k": "tanh(c[{}])",
    "d h": "dh[{}]",
    "d c": "dc[{}]",
    "d y": "Whh' da",
    "d read": "the read-out's gradient",
    "u": "(Whn h[{}] + bhn)",
    "v": "r h[t]",
    "w": "Whn h[{}]",
    "p": "(Wxn x[{}] + bn)",
    "d p": "da_n",
    "d u": "the gradient of Whn h[t] + bhn",
    "d v": "the gradient of r h[t]",
    "d w": "the gradient of Whn h[t]",
    "d q": "what is carried to h[{}]",
    "d s": "what is carried to c[{}]",
    "read": "what is read out",
}
NEW = ("p", "u", "v", "w")
"""The parts of the pre-activation of n."""


WHOLE = {
    "first": " of the first step",
    "last": " of the last step",
    "reversed": " with its steps reversed",
    "batch first": " read batch first",
    "time first": " read as if stored batch first",
}
CARRIED = {
    "y": "the gradient that is carried through Whh",
    "s": "the gradient that the cell carries",
    "q": "the gradient that is carried from h[t+1] to h[t]",
}


@dataclass(frozen=True)
class Words:
    """What the variables, terms and lines of a program are called."""

    program: Program
    gates: tuple[str, ...]

    def word(self, f: Factor) -> str:
        """A variable as formulas name it."""
        by = f.step + STEPS.get(f.name, 0)
        step = f"t{by:+d}" if by else "t"
        text = TEXTS.get(f.name, "")
        base, _, how = f.name.partition("|")
        if not text and base in self.program.parameters:
            text = stem(base) + f" {how}" * bool(how)
        elif not text:
            text = f.name.replace(".", "_").replace("d ", "d" if "." in f.name else "d_")
            text += "[{}]" if f.name in STEPS or by else ""
        if f.edge == "first" and "{" in text:
            step = str(by * (f.name not in STATES))
        elif f.edge == "last" and f.name in STATES:
            step = "T"
        elif f.edge in WHOLE:
            text = text.split("[")[0] + WHOLE[f.edge]
        elif f.step and "{" not in text and f.name in TEXTS:
            text += f" of step {step}"
        text = text.format(step)
        return FORMS[f.form][0].format(text) if f.form in FORMS else f"{f.form}({text})"

    def edged(self, f: Factor) -> str:
        """A variable in words, with what stands where there is no such step."""
        ends = ("first", "last") if f.step < 0 else ("last", "first")
        more = {
            "wrap": f" (at the {ends[0]} step the {ends[1]} one)",
            "zero": " (zero beyond the end)",
        }
        if f.step > 0 and f.name in PASSED:  # or it would read as the state itself
            more["stay"] = " (at the last step its own)"
        return self.word(f) + more.get(f.edge, "")

    def product(self, term: Term) -> str:
        """A term in words."""
        base, _, how = term.matrix.partition("|")
        name = stem(base) + "'" * (term.back != term.transposed)
        names = [f"({name} {how})" if how else name] * bool(base)
        c = term.coefficient
        sign = "" if c == 1 else "-" if c == -1 else f"{c:g} "
        words = [*map(self.edged, term.factors)]
        if base and not term.back and term.inside < len(words):
            words = [*words[: term.inside - 1], f"{words[term.inside - 1]})", *words[term.inside :]]
            sign += "("
        return sign + (" ".join([*names, *words]) or "1")

    def formula(self, line: Line) -> str:
        """The right-hand side of a line."""
        text = " + ".join(map(self.product, line.terms)).replace("+ -", "- ") or "0"
        return f"{line.function}({text})" if line.function else text

    def target(self, line: Line) -> str:
        """What a line sets."""
        known = {"y": "what Whh reads", "s": "the carried cell", "q": "the carried state"}
        return known.get(line.target.name) or self.word(line.target)

    def gradient_of(self, line: Line) -> str:
        """What the whole gradient of a line's target is called."""
        return CARRIED.get(line.target.name) or f"the gradient of {self.target(line)}"

    def receiver(self, n: int, pull: Line) -> str:
        """What the gradient is called to which a pull of line ``n`` adds."""
        line, name, many = self.program.lines[n], pull.target.name, len(self.gates) > 1
        gate, what = line.target.name.removeprefix("a."), name.removeprefix("d ")
        gate = "n" if gate in NEW else gate
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
        known = CARRIED | {"y": CARRIED["y"] + f" of gate {gate}" * many, "h": CARRIED["q"]}
        if what == "c" and pull.target.step:
            return CARRIED["s"]
        usual = f"the gradient of {'gate ' * (what in self.gates)}{self.word(Factor(what))}"
        return known.get(what, usual)
