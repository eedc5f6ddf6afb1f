"""The site: its links, its index, and the folder that it is written to."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from urllib.request import urlopen

import pytest

from refnet.book import chapter, site
from refnet.book.chapter import PAPERS, Chapter, equations
from refnet.cells import cifg, gru, gru_before, lstm, rnn
from refnet.cli import main
from refnet.explain.errata import ERRATA
from support.arguments import refused
from support.oracles import planted

pytestmark = pytest.mark.needs("mdit_py_plugins", "latex2mathml", "pygments", "matplotlib", "flint")

CHAPTERS = sorted(site.CHAPTERS.glob("*.md"))[1:]
VOID = {"br", "hr", "img", "input", "link", "meta", "use", "path"}


class Page(HTMLParser):
    """The names, links and open elements of a page."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.open, self.wrong = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names += [attributes[key] for key in ("id",) if key in attributes]
        self.links += [
            attributes[key] for key in ("href", "src", "xlink:href") if key in attributes
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def faults(files, pages=None):
    """Links of the site that lead nowhere, elements left open, names that a page has twice.
    ``pages``: the pages that a whole book would have."""
    parsed = {name: Page(text) for name, text in files.items() if name.endswith(".html")}
    for name, page in parsed.items():
        yield from (
            f"{name} has {n} elements {key}" for key, n in Counter(page.names).items() if n > 1
        )
        yield from (f"{name}: <{tag}> is closed in the wrong place" for tag in page.wrong)
        for link in page.links:
            path, _, anchor = link.partition("#")
            if link.startswith("data:"):
                continue
            if "//" in link or (path and path not in {*files, *(pages or ())}):
                yield f"{name} links to {link}"
            elif anchor and (path or name) in parsed and anchor not in parsed[path or name].names:
                yield f"{name} links to {link}"


@pytest.fixture(scope="module")
def first():
    """The site of the first chapter alone."""
    return site.pages(only="01")


def test_the_site_of_a_chapter_is_whole(first):
    every = {f"{path.stem}.html" for path in CHAPTERS}
    assert set(faults(first, every)) == set()
    assert {"index.html", "equations.html", "search.js", "book.css", "book.js"} < set(first)


@pytest.mark.parametrize(
    "old, new",
    [
        ('href="book.css"', 'href="https://example.org/book.css"'),
        ('href="equations.html"', 'href="equation.html"'),
        ('id="the-test"', 'id="a-test"'),
        ('id="the-test"', 'id="eq-chain"'),
        ("</main>", ""),
    ],
)
def test_a_planted_fault_of_a_page_is_found(old, new, first):
    name = "01-chain-rule.html"
    assert old in first[name]
    every = {f"{path.stem}.html" for path in CHAPTERS}
    assert set(faults({**first, name: first[name].replace(old, new)}, every))


@pytest.mark.slow
def test_the_whole_book_is_whole():
    files = site.pages()
    assert set(faults(files)) == set()
    assert len(CHAPTERS) == sum(name[:2].isdigit() for name in files)


def test_the_index_holds_every_numbered_equation():
    labels = {each.label for path in CHAPTERS for each in equations(path)}
    for paper, facts in PAPERS.items():
        for number in range(1, facts.get("equations", 0) + 1):
            assert f"{paper}:{number}" in labels


def test_every_erratum_has_its_place():
    texts = "\n".join(path.read_text("utf-8") for path in CHAPTERS)
    shown = [int(number) for number in re.findall(r"^```erratum (\d+)$", texts, re.M)]
    assert sorted(set(shown)) == [erratum.number for erratum in ERRATA]


def test_a_book_replaces_a_book_and_nothing_else(tmp_path):
    folder = tmp_path / "site"
    for text in ("first", "second"):
        with site.place(folder) as new:
            assert not (folder / "b.html").exists()
            site.write(new, {"a.html": text})
    assert (folder / "a.html").read_text() == "second"
    (folder / "notes.txt").write_text("mine")
    with refused("holds 'notes.txt', which belongs to no book"), site.place(folder):
        pass
    assert sorted(path.name for path in folder.iterdir()) == [".refnet-book", "a.html", "notes.txt"]
    with refused("Not a directory", OSError), site.place(folder / "notes.txt"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_build_that_fails_leaves_the_book_as_it_was(tmp_path, monkeypatch, capsys):
    folder, chapters = tmp_path / "site", tmp_path / "chapters"
    chapters.mkdir()
    (chapters / "00-book.md").write_text("# The book\n")
    (chapters / "01-one.md").write_text("# One\n\n```python check Good\nholds = True\n```\n")
    monkeypatch.setattr(site, "CHAPTERS", chapters)
    assert main(["book", str(folder)]) == 0
    assert "01-one: 1 checks hold" in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (chapters / "01-one.md").write_text("# One\n\n```python check Bad\nholds = False\n```\n")
    assert main(["book", str(folder)]) == 2
    assert "01-one.md, line 3: the check does not hold: Bad" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chapters", "site"]


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "name a folder for the book"),
        (["site", "--only", "xx"], "no chapter's name begins with 'xx'"),
        (["."], "is the working directory, or holds it"),
        (["--only", "01", "--serve", "70000"], "port 70000 cannot be used"),
    ],
)
def test_wrong_arguments(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["book", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_book_is_served_until_the_process_is_ended(tmp_path):
    words = [sys.executable, "-m", "refnet", "book", "--only", "01", "--serve", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True) as server:
        try:
            assert server.stdout.readline().startswith("01-chain-rule: ")
            address = server.stdout.readline().split()[2]
            with urlopen(f"{address}/01-chain-rule.html") as answer:
                assert b"<h1" in answer.read()
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
    assert list(tmp_path.iterdir()) == []


BUGS = {
    "02-bptt": (rnn, "backward", 'matmul(da[t], p["Whh"])', 'matmul(da[t], p["Whh"].T)'),
    "03-lstm": (lstm, "backward", "q = q * v[t, :, 1]", "q = q * v[t, :, 0]"),
    "03-lstm, peepholes": (lstm, "backward", 'p["Wpo"] * da[t, :, 3]', 'p["Wpi"] * da[t, :, 3]'),
    "04-gru": (gru, "backward", "da[t, :, 2] * r", "da[t, :, 2]"),
    "04-gru, before": (gru_before, "backward", "w * h[t]", "w * h[t + 1]"),
    "04-gru, coupled": (cifg, "folded", "[:H] - grads[name][H", "[:H] + grads[name][H"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_planted_in_a_cell_stops_its_chapter(bug, monkeypatch):
    module, name, old, new = BUGS[bug]
    path = site.CHAPTERS / f"{bug.partition(',')[0]}.md"
    monkeypatch.setattr(module, name, planted(getattr(module, name), old, new))
    monkeypatch.setattr(chapter, "cut", lambda *name: ("", ""))  # a planted function has no file
    with refused(rf"{path.name}, line \d+: the check does not hold: "):
        Chapter(path, {each.label: each for path in CHAPTERS for each in equations(path)}).page()
