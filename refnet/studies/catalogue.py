"""All studies by name."""

from refnet.studies import manchev, orhan, vorontsov
from refnet.studies.study import Study

__all__ = ["STUDIES", "find"]

STUDIES: dict[str, Study] = {
    study.name: study for room in (manchev, vorontsov, orhan) for study in room.STUDIES}


def find(name: str) -> Study:
    """The study of that name. Raises ValueError if there is none."""
    if name not in STUDIES:
        raise ValueError(f"study {name!r} is unknown; choose one of {', '.join(STUDIES)}")
    return STUDIES[name]
