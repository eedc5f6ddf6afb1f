"""The site of the book: its pages, the index of equations, the index for the search."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape, unescape
from pathlib import Path
from string import Template

from refnet.book.chapter import HERE, PAPERS, Chapter, Equation, displayed, equations
from refnet.runs.files import naming, printable, temporary

CHAPTERS = HERE / "chapters"
MANIFEST = ".refnet-book"
"""The file that names all files of a book's folder."""
HEADING = re.compile(r'<h([12]) id="(.*?)">(.*?)</h\1>')


def pages(only: str = "") -> dict[str, str]:
    """The files of the site by their names: every chapter run, or those alone whose names begin
    with ``only``. Prints what each took.

    Raises ValueError, with the chapter and the line, for what does not run or a check that does not
    hold.

    Checked by: tests/book/test_book.py.
    """
    front, *paths = sorted(CHAPTERS.glob("*.md"))
    places = [equation for path in paths for equation in equations(path)]
    known = {equation.label: equation for equation in reversed(places)}
    chosen = [path for path in paths if path.name.startswith(only)]
    if not chosen:
        raise ValueError(f"no chapter's name begins with {only!r}; need {paths[0].stem}, for one")
    bodies: dict[str, str] = {}
    for path in chosen:
        start, chapter = time.perf_counter(), Chapter(path, known)
        bodies[f"{path.stem}.html"] = chapter.page()
        seconds = time.perf_counter() - start
        print(f"{printable(path.stem)}: {chapter.checks} checks hold, {seconds:.1f} s", flush=True)
    bodies["equations.html"] = _index([each for each in places if each.page in bodies], bodies)
    bodies = {"index.html": Chapter(front, known).page() + _contents(bodies, ""), **bodies}
    site = {path.name: path.read_text("utf-8") for path in (HERE / "site").iterdir()}
    template = Template(site.pop("page.html"))
    site["search.js"] = f"const ENTRIES = {json.dumps(list(_entries(bodies)))};\n"
    names = list(bodies)
    for at, name in enumerate(names):
        site[name] = template.substitute(
            title=_words(_title(name, bodies)),
            contents=_contents(bodies, name),
            body=bodies[name],
            previous="".join(_link(before, bodies) for before in names[max(at - 1, 0) : at]),
            next="".join(_link(after, bodies) for after in names[at + 1 : at + 2]),
        )
    return site


def _title(name: str, bodies: dict[str, str]) -> str:
    """The title of a page, with the chapter's number."""
    number = f"{int(name[:2])}. " if name[:2].isdigit() else ""
    return number + str(HEADING.findall(bodies[name])[0][2])


def _link(name: str, bodies: dict[str, str]) -> str:
    return f'<a href="{name}">{_title(name, bodies)}</a>'


def _contents(bodies: dict[str, str], here: str) -> str:
    """A list of the pages, with the sections of the page ``here``, or of all."""
    items = []
    for name, body in bodies.items():
        sections = "".join(
            f'<li><a href="{name}#{anchor}">{title}</a></li>'
            for level, anchor, title in HEADING.findall(body)
            if level == "2" and name.startswith(here)
        )
        items.append(f"<li>{_link(name, bodies)}<ul>{sections}</ul></li>")
    return f"<ul>{''.join(items)}</ul>"


def _index(places: list[Equation], bodies: dict[str, str]) -> str:
    """The papers' equations by their numbers, with the pages that derive them."""
    parts = ['<h1 id="index-of-equations">Index of equations</h1>']
    for paper, facts in PAPERS.items():
        labels = {each.label for each in places if each.label.startswith(f"{paper}:")}
        if labels:
            name, title = escape(facts["short"]), escape(facts["title"])
            parts.append(f'<h2 id="{paper}">{name}: <cite>{title}</cite></h2>')
        for label in sorted(labels, key=_by_number):
            same = [each for each in places if each.label == label]
            links = ", ".join(
                f'<a href="{each.href}">{_title(each.page, bodies)}</a>' for each in same
            )
            number = escape(label.partition(":")[2].replace("-", " "))
            parts.append(
                f'<div class="entry" id="{same[0].anchor}"><b>{number}</b>'
                f"{displayed(same[0].latex)}<p>{links}</p></div>"
            )
    return "\n".join(parts)


def _by_number(label: str) -> str:
    """Equation 9 before equation 10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(4), label)


def _words(html: str) -> str:
    """The text of some HTML."""
    return " ".join(unescape(re.sub(r"(?s)<(script|svg).*?</\1>|<.*?>", " ", html)).split())


def _entries(bodies: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """What the search reads: the page's title and the section's, its address, its words."""
    for name, body in bodies.items():
        _, *parts = HEADING.split(body)
        for anchor, title, text in zip(parts[1::4], parts[2::4], parts[3::4]):
            yield _words(parts[2]), _words(title), f"{name}#{anchor}", _words(text)


@contextmanager
def place(folder: Path) -> Iterator[Path]:
    """A new folder beside ``folder`` to write a book to, which at the end of the block takes its
    place, whole.

    Raises ValueError if ``folder`` holds anything that is of no book, before anything is written.
    """
    folder = Path(os.path.realpath(folder))
    with naming(folder), temporary(folder) as new, temporary(folder) as old:
        there = set(os.listdir(folder)) if folder.exists() else set()
        manifest = folder / MANIFEST
        written = manifest.read_text("utf-8").split("\n") if manifest.exists() else []
        if others := sorted(there - {*written, MANIFEST}):
            raise ValueError(
                f"{folder} holds {others[0]!r}, which belongs to no book; need a new folder, an "
                "empty one, or one with a book, which is replaced"
            )
        if Path.cwd().is_relative_to(folder):
            raise ValueError(f"{folder} is the working directory, or holds it; need another folder")
        new.mkdir(parents=True)
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)


def write(folder: Path, files: dict[str, str]) -> None:
    """Write the files of a site to a folder, with their list."""
    for name, text in {**files, MANIFEST: "\n".join(files)}.items():
        (folder / name).write_text(text, encoding="utf-8")
