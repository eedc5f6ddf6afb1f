"""The errata of the papers, each with a check that runs refnet's own functions."""

from operator import attrgetter

from refnet.explain.errata import manchev_spratling, manchev_spratling_claims, posts, vorontsov
from refnet.explain.errata.base import AtLeast, AtMost, Comparison, Erratum, as_text

__all__ = ["ERRATA", "AtLeast", "AtMost", "Comparison", "Erratum", "as_text"]

ERRATA = tuple(
    sorted(
        (
            entry
            for module in (manchev_spratling, manchev_spratling_claims, posts, vorontsov)
            for entry in vars(module).values()
            if isinstance(entry, Erratum)
        ),
        key=attrgetter("number"),
    )
)
"""All of them, by number."""
