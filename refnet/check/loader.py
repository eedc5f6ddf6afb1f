"""A user's own function, from FILE.py:NAME, with errors that name the user's file and line.

Checked by: tests/robustness/test_cli.py, tests/check/test_function_command.py.
"""

import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np

__all__ = ["arrays_by_name", "loaded", "one_number"]


def loaded(place: str, checked: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function NAME of FILE.py, which runs as a script would: beside its own modules.

    ``checked`` takes what it returns, and raises ValueError for what is of no use. Raises
    ValueError for a place that holds no function, and for an error inside the file or the
    function, with its type, file and line.
    """
    path, _, name = place.rpartition(":")
    if not path or not name or not Path(path).is_file():
        raise ValueError(
            f"{place}: need FILE.py:NAME, such as mine.py:gradients, with a file that exists"
        )
    spec = spec_from_file_location(f"own_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{place}: {path} is not a Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _explained(place, path, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == spec.name
        ]
        raise ValueError(
            f"{place}: {path} has no function {name}; it has {', '.join(own) or 'none'}"
        )

    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except (Exception, SystemExit) as error:
            raise _explained(place, path, error, *arguments[:1]) from error
        try:
            return checked(result)
        except ValueError as error:
            raise ValueError(f"{place} returned {error}") from None

    return call


def one_number(result: Any) -> Any:
    """A framework's loss: a tensor of shape ()."""
    shape = getattr(result, "shape", None)
    if shape is None or len(shape):
        arrived = type(result).__name__ if shape is None else f"shape {tuple(shape)}"
        raise ValueError(f"{arrived}; need the loss as a tensor of shape ()")
    return result


def arrays_by_name(result: Any) -> dict[str, Any]:
    """A dict of arrays, or of what NumPy makes arrays of: tensors come from their device."""
    if not isinstance(result, Mapping):
        raise ValueError(
            f"{type(result).__name__}; need a dict of arrays by name: loss, outputs, "
            "dWhh, dx and so on"
        )
    return {str(name): _array(str(name), value) for name, value in result.items()}


def _array(name: str, value: Any) -> Any:
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
        return np.asanyarray(value) if hasattr(value, "__array__") else value
    except Exception as error:  # frameworks have no common one
        raise ValueError(
            f"{name} as {type(value).__name__}, which NumPy cannot read: {_said(error)}"
        ) from None


def _explained(place: str, path: str, error: BaseException, params: Any = None) -> ValueError:
    """The error, in one line, at the last line of the user's file that it came through; of a name
    that ``params``, its first argument, does not have, with those that it has."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename or path}:{error.lineno or 1}"
    else:
        lines = [
            frame
            for frame in extract_tb(error.__traceback__)
            if Path(frame.filename).resolve() == Path(path).resolve()
        ]
        where = f"{path}:{lines[-1].lineno}: {lines[-1].line}" if lines else path
        if not lines and isinstance(error, TypeError):  # the call itself
            where += "; it gets p, x, y, and with --mask a fourth, the mask"
    if (
        isinstance(error, KeyError)
        and isinstance(params, Mapping)
        and not any(str(name) in params for name in error.args)
    ):
        where += f"; p has {', '.join(params)}"
    return ValueError(f"{place}: {type(error).__name__}: {_said(error)} (at {where})")


def _said(error: BaseException) -> str:
    """An error's text in one line."""
    said = " ".join(str(error).split())
    return said if len(said) <= 300 else said[:297] + "..."
