"""What the chapters hold: the equations of the papers, and links that are whole."""

import re
import tomllib
from pathlib import Path

import pytest

import refnet

CHAPTERS = {
    path.stem: path.read_text("utf-8")
    for path in sorted(Path(refnet.__file__).parent.glob("book/chapters/*.md"))
}
PLACES = tomllib.loads(Path(__file__).with_name("equations.toml").read_text("utf-8"))
"""Paper -> chapter -> numbers of equations."""


def held(text, paper):
    """The numbers that the labels of a chapter have of a paper."""
    return set(re.findall(rf"^.*\$\$ \({paper}:([\w-]+)\)$", text, re.M))


@pytest.mark.parametrize("paper", PLACES)
def test_every_equation_of_a_paper_stands_in_its_chapter(paper):
    missing = {
        chapter: sorted(set(numbers) - held(CHAPTERS.get(chapter, ""), paper))
        for chapter, numbers in PLACES[paper].items()
    }
    assert not any(missing.values()), missing


def test_a_missing_equation_is_seen():
    paper, chapter = "vorontsov", "09-stiefel"
    text = CHAPTERS[chapter]
    assert held(text, paper) == {"9"}
    assert held(text.replace("(vorontsov:9)", ""), paper) == set()


def test_links_between_chapters_lead_somewhere():
    links = {
        link for text in CHAPTERS.values() for link in re.findall(r"\]\((\d\d-[\w-]+)\.html", text)
    }
    assert links and links <= set(CHAPTERS)
