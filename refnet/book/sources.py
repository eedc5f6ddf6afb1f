"""Lines of refnet, cut out of its files by name."""

import ast
import re
from importlib import import_module
from inspect import getsourcelines
from operator import attrgetter
from textwrap import dedent


def cut(name: str, selection: str = "") -> tuple[str, str]:
    """Where the function, method or class stands that ``package.module:Class.function`` names, and
    its lines without the docstring.

    ``selection``: ``from "..." to "..."`` takes its lines from the first one with the one text to
    the next one with the other. Raises ValueError for a name or a text that is not there.

    >>> cut("refnet.cells.rnn:backward", 'from "slopes = act" to "slopes = act"')[1]
    'da[t], slopes = act.backward(a[t], h[t + 1], g, p)'

    Checked by: tests/book/test_directives.py::test_a_stale_source_is_an_error.
    """
    module, _, names = name.partition(":")
    try:
        target = attrgetter(names)(import_module(module))
        lines, first = getsourcelines(target)
    except (ImportError, AttributeError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is no package.module:function of today ({error})") from None
    node = ast.parse(dedent("".join(lines))).body[0]
    numbered = list(enumerate(lines, first))
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
        docstring = node.body[0]
        del numbered[docstring.lineno - 1 : docstring.end_lineno]
    if selection.strip():
        texts = re.fullmatch(r'from "(.*)" to "(.*)"', selection.strip())
        if texts is None:
            raise ValueError(f'the selection is {selection!r}; need: from "..." to "..."')
        numbered = numbered[_place(name, texts[1], numbered) :]
        numbered = numbered[: _place(name, texts[2], numbered) + 1]
    where = f"{name}, lines {numbered[0][0]} to {numbered[-1][0]}"
    return where, dedent("".join(line for _, line in numbered)).rstrip()


def _place(name: str, text: str, numbered: list[tuple[int, str]]) -> int:
    for place, (_, line) in enumerate(numbered):
        if text in line:
            return place
    raise ValueError(f"{name} has no line with {text!r}; need one of today's")
