"""Checkpoints: one .npz with every array of a run and its position, checked on reading.

Nothing is pickled. A checkpoint carries a format version, the configuration it belongs to
and a digest of its contents, so that a truncated, foreign, older or edited one is refused
before anything is touched. Checked by: tests/test_checkpoint.py.
"""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Params
from refnet.runs.files import write_atomically

__all__ = ["Checkpoint", "CheckpointError", "load", "save"]

FORMAT = 1


class CheckpointError(ValueError):
    """The file is no checkpoint that this run can continue from; the message says why."""


class Checkpoint(NamedTuple):
    """``groups``: named dicts of arrays ("params", "optimizer", "best"); ``position``: the
    iteration, running sums and whatever else JSON holds."""

    groups: dict[str, Params]
    position: dict[str, Any]


def _digest(arrays: Params, meta: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def save(path: Path, checkpoint: Checkpoint, config: dict[str, Any]) -> None:
    """Write the checkpoint atomically: a crash leaves the previous one in place."""
    arrays = {f"{group}/{name}": value for group, values in checkpoint.groups.items()
              for name, value in values.items()}
    meta = {"format": FORMAT, "config": config, "position": checkpoint.position,
            "groups": sorted(checkpoint.groups)}
    text = json.dumps({**meta, "sha256": _digest(arrays, meta)})
    arrays["meta"] = np.array(text)
    write_atomically(path, lambda file: np.savez(
        file, allow_pickle=False, **arrays))


def load(path: Path, config: dict[str, Any]) -> Checkpoint:
    """Read a checkpoint of the run with this configuration.

    Raises CheckpointError, naming the file and the repair, if it is missing, truncated,
    foreign, of another format version, edited, or of another configuration.
    """
    repair = "start the run again, or resume from a folder whose checkpoint is whole"
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no checkpoint here yet; {repair}")
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop("meta")))
        claimed = meta.pop("sha256")
        version = meta["format"]
    except (OSError, EOFError, KeyError, TypeError, ValueError, AttributeError,
            zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: not a whole refnet checkpoint "
                              f"({type(error).__name__}: {error}); {repair}") from None
    if version != FORMAT:
        raise CheckpointError(f"{path}: written in checkpoint format {version}, this refnet reads "
                              f"format {FORMAT}; resume it with the refnet that wrote it")
    if claimed != _digest(arrays, meta):
        raise CheckpointError(f"{path}: its contents do not match their own sha256, so they were "
                              f"damaged or edited; {repair}")
    if meta["config"] != config:
        different = [name for name in config if meta["config"].get(name) != config[name]]
        raise CheckpointError(f"{path}: belongs to a run with other settings "
                              f"({', '.join(different) or 'other names'}); resume that run's own "
                              "folder, or start a new one")
    groups: dict[str, Params] = {group: {} for group in meta["groups"]}
    for name, value in arrays.items():
        group, _, rest = name.partition("/")
        groups[group][rest] = value
    return Checkpoint(groups, meta["position"])
