"""A chapter: Markdown with LaTeX and directives, run from its top to its end into HTML."""

import json
import re
import tomllib
import traceback
from contextlib import redirect_stdout
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import refnet
from refnet.book.sources import cut
from refnet.explain.errata import ERRATA
from refnet.explain.errata.page import details

HERE = Path(__file__).parent
PAPERS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "papers.toml").read_text("utf-8"))
"""The texts of the index of equations, by the name in labels."""
PLAIN = ("", "text", "python", "console", "toml")
"""Languages of code that is shown and not run."""
STYLE: dict[str, Any] = {"svg.hashsalt": "refnet", "mathtext.fontset": "stix"}
"""What Matplotlib asks for as it writes a figure, for the house style."""
COMPUTED = re.compile(r"\{\{(.+?)\}\}(?!\})", re.S)
POWER = re.compile(r"e([+-]\d+)$")


def _computed(state: Any, silent: bool) -> bool:
    """The rule of markdown-it for ``{{expression:format}}``."""
    match = COMPUTED.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.push("computed", "", 0).content = match[1]
    state.pos = match.end()
    return True


MARKDOWN = (
    MarkdownIt("commonmark").enable("table").use(dollarmath_plugin).use(anchors_plugin, max_level=3)
)
MARKDOWN.inline.ruler.before("escape", "computed", _computed)


class Equation(NamedTuple):
    """A labelled equation: its label, its page and anchor, its name in the text, its LaTeX."""

    label: str
    page: str
    anchor: str
    name: str
    latex: str

    @property
    def href(self) -> str:
        """Where it stands."""
        return f"{self.page}#{self.anchor}"


def equations(path: Path) -> list[Equation]:
    """The labelled equations of a chapter: a paper's, ``paper:number``, or the chapter's own."""
    out: list[Equation] = []
    for token in MARKDOWN.parse(path.read_text("utf-8")):
        if token.type == "math_block_label":
            paper, _, number = token.info.partition(":")
            if number and paper not in PAPERS:
                line = (token.map or [0])[0] + 1
                known = ", ".join(PAPERS)
                raise ValueError(
                    f"{path.name}, line {line}: papers.toml has no {paper!r}; need one of {known}"
                )
            place = sum(":" not in each.label for each in out) + 1
            same = sum(each.label == token.info for each in out)
            anchor = f"eq-{token.info.replace(':', '-')}" + f"-{same + 1}" * bool(same)
            name = f"({_number(path)}.{place})"
            if number:
                name = f"{PAPERS[paper]['short']} ({number.replace('-', ' ')})"
            out.append(Equation(token.info, f"{path.stem}.html", anchor, name, token.content))
    return out


def mathematics(latex: str, display: str = "inline") -> str:
    """LaTeX as MathML. Raises ValueError for what is none."""
    try:
        mathml = str(convert(latex.strip().replace("{aligned}", "{split}"), display=display))
    except Exception as error:
        raise ValueError(f"{latex!r} is no LaTeX: {type(error).__name__}: {error}") from None
    if unknown := re.search(r"\\[a-zA-Z]+|<mi>&<|newline", mathml):
        raise ValueError(f"{latex!r} has {unknown[0]}, which MathML has no form of")
    # an upright letter, which MathML makes italic unless it is told
    mathml = re.sub(r"<mi>(&#x000[4-7].;)", r'<mi mathvariant="normal">\1', mathml)
    return mathml.replace("<mo>&#x02016;", '<mo stretchy="false">&#x02016;')


def displayed(latex: str) -> str:
    r"""A displayed formula; on a narrow page its parts between ``\qquad`` are below each other."""
    parts = [latex] if "\\begin" in latex else latex.split(r"\qquad")
    return f'<div class="lines">{"".join(mathematics(part, "block") for part in parts)}</div>'


class Chapter:
    """The run of one chapter. ``known``: the equations of all chapters by their labels.

    ``page`` gives the HTML; ``checks`` counts the checks that it made. Raises ValueError, with the
    file and the line, for what is wrong in the chapter.

    Checked by: tests/book/test_directives.py.
    """

    def __init__(self, path: Path, known: dict[str, Equation]) -> None:
        self.path = path
        self.known = {**known, **{each.label: each for each in equations(path)}}
        self.line = 1
        self.checks = self.figures = 0
        self.namespace: dict[str, Any] = {"np": np, "refnet": refnet}

    def page(self) -> str:
        """Run the chapter; its HTML."""
        tokens = MARKDOWN.parse(self.path.read_text("utf-8"))
        labelled = iter(equations(self.path))
        for token in tokens:
            self.line = token.map[0] + 1 if token.map else self.line
            try:
                if token.type == "inline":
                    self._inline(token.children or [])
                elif token.type.startswith("math_block"):
                    content = self._equation(token, next(labelled) if token.info else None)
                    token.type, token.content = "html_block", content
                elif token.type == "fence":
                    token.type, token.content = "html_block", self._directive(token)
            except ValueError as error:
                raise ValueError(f"{self.path.name}, line {self.line}: {error}") from error
        return _rendered(tokens)

    def _inline(self, tokens: list[Token]) -> None:
        """Compute and convert what stands in a line of text, in place."""
        for token, after in zip(tokens, [*tokens[1:], None]):
            label = str(token.attrs.get("href", "")).removeprefix("eq:")
            if token.type == "softbreak":
                self.line += 1
            elif token.type == "math_inline":
                latex = COMPUTED.sub(lambda m: self._evaluated(m[1]), token.content)
                token.type, token.content = "html_inline", mathematics(latex)
            elif token.type == "computed":
                text = escape(self._evaluated(token.content))
                token.type, token.content = "html_inline", POWER.sub(_as_power, text)
            elif token.attrs.get("href") == f"eq:{label}":
                if label not in self.known:
                    raise ValueError(f"no equation has the label {label!r}")
                token.attrs["href"] = self.known[label].href
                if after is not None and after.type == "link_close":
                    name = escape(self.known[label].name)
                    content = f'<a href="{self.known[label].href}">{name}'
                    token.type, token.content = "html_inline", content

    def _phrase(self, text: str) -> str:
        """The HTML of a caption or a statement."""
        tokens = MARKDOWN.parseInline(text)
        self._inline(tokens[0].children or [])
        return _rendered(tokens)

    def _equation(self, token: Token, labelled: Equation | None) -> str:
        mathml = displayed(token.content)
        if labelled is None:
            return f'<div class="equation">{mathml}</div>\n'
        index = "equations.html" if ":" in labelled.label else ""
        return (
            f'<div class="equation" id="{labelled.anchor}">{mathml}<a class="label" '
            f'href="{index}#{labelled.anchor}">{escape(labelled.name)}</a></div>\n'
        )

    def _evaluated(self, expression: str) -> str:
        try:
            return str(eval(f'f"""{{{expression}}}"""', self.namespace))
        except Exception as error:
            raise ValueError(f"{{{{{expression}}}}}: {type(error).__name__}: {error}") from None

    def _directive(self, token: Token) -> str:
        kind, _, rest = token.info.strip().partition(" ")
        if kind == "python" and rest:
            kind, _, rest = rest.partition(" ")
        elif kind in PLAIN:
            return _code(token.content)
        directive = getattr(self, f"directive_{kind}", None)
        if directive is None:
            raise ValueError(f"no directive is called {kind!r}; see refnet/book/README.md")
        return f'<div class="{kind}">{directive(token.content, rest.strip())}</div>\n'

    def _run(self, code: str, name: str | None = None) -> tuple[Any, str]:
        """What a block leaves under ``name``, and what it prints, as HTML. Its lines have the
        numbers that they have in the chapter."""
        printed, file = StringIO(), str(self.path)
        self.namespace.pop(name or "", None)
        try:
            with redirect_stdout(printed):
                exec(compile("\n" * self.line + code, file, "exec"), self.namespace)
        except Exception as error:
            trace = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in trace if frame.filename == file]
            self.line = (lines[-1:] or [getattr(error, "lineno", None)])[0] or self.line
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if name and name not in self.namespace:
            raise ValueError(f"the block leaves no {name!r}; need {name} = ...")
        output = escape(printed.getvalue().rstrip())
        return self.namespace.get(name or ""), f'<pre class="output">{output}</pre>' * bool(output)

    def directive_source(self, selection: str, name: str) -> str:
        where, text = cut(name, selection)
        return f"<p>{where}</p>{_code(text)}"

    def directive_compute(self, code: str, rest: str) -> str:
        return _code(code) + self._run(code)[1]

    def directive_figure(self, code: str, caption: str) -> str:
        with matplotlib.rc_context(STYLE):
            figure, output = self._run(code, "figure")
            image = StringIO()
            figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
        self.figures += 1
        svg = image.getvalue().partition("<svg")[2]
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1figure-{self.figures}-", svg)
        words = f"<b>Figure {_number(self.path)}.{self.figures}.</b> {self._phrase(caption)}"
        return (
            f'<figure id="figure-{self.figures}"><svg role="img"{svg}<figcaption>{words}'
            f"</figcaption></figure>{output}{_folded(code)}"
        )

    def directive_check(self, code: str, statement: str) -> str:
        holds, output = self._run(code, "holds")
        if not (isinstance(holds, bool | np.bool) and holds):
            raise ValueError(f"the check does not hold: {statement}")
        self.checks += 1
        name = f"Check {_number(self.path)}.{self.checks}."
        statement = self._phrase(statement)
        return f"<p><b>{name}</b> {statement}. <strong>It holds.</strong></p>{_code(code)}{output}"

    def directive_slider(self, code: str, name: str) -> str:
        path = HERE / "sliders" / f"{name}.md"
        if not path.exists():
            raise ValueError(f"no slider is called {name!r}; need the name of a file in sliders/")
        caption, _, code = path.read_text("utf-8").partition("```python\n")
        code = code.partition("```")[0]
        data = json.dumps(self._run(code, "slider")[0], allow_nan=False).replace("<", "\\u003c")
        return (
            f'<p>{self._phrase(caption)}</p><div class="frames" id="slider-{name}"><script '
            f'type="application/json">{data}</script></div>{_folded(code)}'
        )

    def directive_erratum(self, body: str, number: str) -> str:
        errata = {str(erratum.number): erratum for erratum in ERRATA}
        if number not in errata or not errata[number].settled():
            raise ValueError(f"there is no erratum {number!r} whose check holds")
        text = details(errata[number]).removeprefix("## ")
        return f'<div id="erratum-{number}">{_rendered(MARKDOWN.parse(text))}</div>'


def _number(path: Path) -> str:
    return path.stem[:2].lstrip("0")


def _as_power(match: re.Match[str]) -> str:
    power = str(int(match[1])).replace("-", "\N{MINUS SIGN}")
    return f" \N{MULTIPLICATION SIGN} 10<sup>{power}</sup>"


def _rendered(tokens: list[Token]) -> str:
    return str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))


def _code(text: str) -> str:
    return f"<pre>{highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))}</pre>"


def _folded(code: str) -> str:
    return f"<details><summary>The code</summary>{_code(code)}</details>"
