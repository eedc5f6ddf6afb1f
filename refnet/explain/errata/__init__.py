"""The errata of the papers, each with a check that runs refnet's own functions."""

from refnet.explain.errata import manchev_spratling, manchev_spratling_claims, posts, vorontsov
from refnet.explain.errata.base import AtLeast, AtMost, Comparison, Erratum, as_text

__all__ = ["ERRATA", "AtLeast", "AtMost", "Comparison", "Erratum", "as_text"]

ERRATA: tuple[Erratum, ...] = tuple(
    sorted(
        (
            *manchev_spratling.ERRATA,
            *manchev_spratling_claims.ERRATA,
            *vorontsov.ERRATA,
            *posts.ERRATA,
        ),
        key=lambda e: e.number,
    )
)
"""All of them, by number."""
