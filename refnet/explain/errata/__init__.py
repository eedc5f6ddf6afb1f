"""The errata of the papers, each with a check that runs refnet's own functions.

The check of erratum 7 is the function ``_e7`` of one of the modules here.
"""

import tomllib
from pathlib import Path

from refnet.explain.errata import manchev_spratling, manchev_spratling_claims, posts, vorontsov
from refnet.explain.errata.base import Erratum

_CHECKS = {
    name: check
    for module in (manchev_spratling, manchev_spratling_claims, posts, vorontsov)
    for name, check in vars(module).items()
}


def _entry(number: int, **texts: str) -> Erratum:
    """An erratum with its check; its texts may be wrapped anywhere."""
    lines = {name: " ".join(text.split()) for name, text in texts.items()}
    return Erratum(number, **lines, check=_CHECKS.get(f"_e{number}"))


_ENTRIES = tomllib.loads(Path(__file__).with_name("errata.toml").read_text("utf-8"))["erratum"]
ERRATA = tuple(_entry(**entry) for entry in _ENTRIES)
"""All of them, by number."""
