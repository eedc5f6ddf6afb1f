"""python-flint, the library of balls and fast rationals (extra ``certify``)."""

from types import ModuleType


def flint() -> ModuleType:
    """The python-flint module; ImportError naming the extra if it is not installed."""
    try:
        import flint as module
    except ImportError:
        raise ImportError(
            "balls and fast rationals need python-flint: pip install 'refnet[certify]'"
        ) from None
    return module  # type: ignore[no-any-return]
