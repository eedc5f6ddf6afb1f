"""A user's own function, from FILE.py:NAME, with errors that name the user's file and line.

Checked by: tests/test_cli.py.
"""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import Any

__all__ = ["loaded"]


def loaded(place: str) -> Callable[..., Any]:
    """The function NAME of FILE.py; running that file is what the user asked for.

    Raises ValueError for a place that holds no function, and for an error inside the file or the
    function, with its type, file and line.
    """
    path, _, name = place.rpartition(":")
    if not path or not Path(path).is_file():
        raise ValueError(f"--function {place}: need FILE.py:NAME, such as mine.py:loss, with a "
                         "file that exists")
    spec = spec_from_file_location("own_function", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"--function {place}: {path} is not a Python file; its name must end in "
                         ".py")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _explained(place, path, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"--function {place}: {path} has no function {name}")

    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except Exception as error:
            raise _explained(place, path, error) from error
        shape = getattr(result, "shape", None)
        if shape is None or len(shape):
            arrived = type(result).__name__ if shape is None else f"shape {tuple(shape)}"
            raise ValueError(f"--function {place} returned {arrived}; need the mean cross-entropy "
                             "as a tensor of shape ()")
        return result
    return call


def _explained(place: str, path: str, error: BaseException) -> ValueError:
    """The error, in one line, at the last line of the user's file that it came through."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename}:{error.lineno}"
    else:
        lines = [frame for frame in extract_tb(error.__traceback__)
                 if Path(frame.filename).resolve() == Path(path).resolve()]
        where = f"{path}:{lines[-1].lineno}: {lines[-1].line}" if lines else path
    said = " ".join(str(error).split())
    said = said if len(said) <= 300 else said[:297] + "..."
    return ValueError(f"--function {place}: {type(error).__name__}: {said} (at {where})")
