"""All studies by name."""

from refnet.common.arguments import choice
from refnet.studies import causes, examples, flow, manchev, orhan, vorontsov
from refnet.studies.study import Study

__all__ = ["STUDIES", "find"]

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        *manchev.STUDIES,
        causes.STUDY,
        *vorontsov.STUDIES,
        flow.STUDY,
        *orhan.STUDIES,
        examples.STUDY,
    )
}


def find(name: str) -> Study:
    """The study of that name. Raises ValueError if there is none."""
    choice("study", name, STUDIES)
    return STUDIES[name]
