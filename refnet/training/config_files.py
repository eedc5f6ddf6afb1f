"""Configurations as TOML files."""

import json
from pathlib import Path

from refnet.common.names import absolute
from refnet.runs.read import DAMAGE, Record, contents, toml_of
from refnet.training.config import Config, applicable, check_value


def to_toml(config: Config) -> str:
    """The settings that apply, as TOML from which ``Config(**from_toml(path))`` is an equal one.

    >>> to_toml(Config("copy", length=50)).splitlines()[1:3]
    ['task = "copy"', 'protocol = ""']
    """
    lines = ["# a refnet run; repeat it with: refnet train --config THIS_FILE"]
    for name, value in applicable(config).items():
        # JSON's strings and booleans are TOML's too; its numbers lack what repr keeps, 1e30
        text = repr(value) if type(value) in (int, float) else json.dumps(value)
        lines.append(f"{name} = {text}")
    return "\n".join(lines) + "\n"


def from_toml(path: Path) -> Record:
    """The settings in a TOML file, checked by name, type and range; absent ones stay absent.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "config.toml"
    ...     _ = path.write_text(to_toml(Config("copy", length=50)))
    ...     settings = from_toml(path)
    >>> Config(**settings) == Config("copy", length=50)
    True
    """
    try:
        settings = toml_of(contents(path, 2**16))
    except OSError as error:
        raise ValueError(
            f"{path}: {error.strerror or error}; need a TOML file of settings, such "
            "as the config.toml of a run folder"
        ) from None
    except DAMAGE as error:
        raise ValueError(f"{path}: not a readable TOML file: {error}") from None
    for name, value in settings.items():
        try:
            check_value(name, value)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        settings[name] = absolute(
            float(value) if type(getattr(Config, name)) is float else value, path.parent
        )
    return settings


def of_run(folder: Path) -> Config:
    """The settings of the run in a folder.

    >>> of_run(Path("nowhere"))
    Traceback (most recent call last):
    ValueError: nowhere is not a run folder (it has no config.toml); list them with: refnet runs
    """
    path = folder / "config.toml"
    if not path.exists():
        raise ValueError(
            f"{folder} is not a run folder (it has no config.toml); list them with: refnet runs"
        )
    settings = from_toml(path)
    if "iterations" not in settings:  # the one setting that no checkpoint has as well
        raise ValueError(
            f"{path}: has no iterations; put back a whole copy of it, or write the number there"
        )
    return Config(**settings)
