"""Checkpoints: one .npz with every array of a run and its position, checked on reading.

Format 2, which this and every later version of refnet reads. An uncompressed .npz file has one
member an array, ``GROUP/NAME.npy``: the groups ``params``, ``optimizer`` and ``best`` hold the
parameters, the optimiser's state and the best parameters by their names, and ``carried``, if there
is one, the states at which the next batch starts. One more member, ``meta.npy``, is a
0-dimensional array of text: a JSON object with

- ``format``: 2
- ``config``: every setting of the run but ``iterations``, by its name in config.toml. A later
  version may add settings; one that is missing here has its default
- ``position``: ``iteration`` (steps made), ``seconds``, ``loss_sum``, ``clipped``, ``repaired``
  (sums since the last evaluation), ``last_evaluation`` (its iteration), ``best`` (its row)
- ``groups``: the names of the groups, of which some may be empty
- ``record``: ``rows`` (``lines``, ``bytes`` and ``sha256`` of rows.jsonl), ``machines`` (the
  kinds of machine that the run has been on) and, if it has been on several, ``rounding`` and
  ``rounding_until`` (see ``refnet.training.loop.resume``)
- ``sha256``: of the JSON text of the other entries (keys sorted, Python's default separators),
  then, for every array in the order of their names, of "NAME DTYPE SHAPE" (such as
  ``params/Whh <f4 (3, 3)``; the SHAPE of an array without dimensions is ``(1,)``) and of its
  bytes in C order

Nothing is pickled. A truncated, foreign, older or edited file is refused before anything is
touched. Checked by: tests/training/test_checkpoint.py, and tests/support/data/run, a run of this
version.
"""

import hashlib
import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from refnet.batch import Params
from refnet.runs.files import argument, write_atomically
from refnet.runs.read import DAMAGE, Record, json_of
from refnet.runs.rows import plain
from refnet.runs.unpack import npz_of

FORMAT = 2
REPAIR = "start the run again, or resume from a folder whose checkpoint is whole"


class CheckpointError(ValueError):
    """The run cannot continue from this file; the message says why."""


class Checkpoint(NamedTuple):
    """``groups``: named dicts of arrays ("params", "optimizer", "best"); ``position``: the
    iteration, running sums and whatever else JSON holds; ``record``: what is to be known of the
    other files, and in a checkpoint that was read "config", the settings."""

    groups: dict[str, Params]
    position: Record
    record: Record = {}


def _digest(arrays: Params, meta: Record) -> str:
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def save(path: Path, checkpoint: Checkpoint, config: Record) -> None:
    """Write the checkpoint atomically: a crash leaves the previous one in place.

    Raises CheckpointError if the present one is of a later iteration: another process wrote it.
    """
    reached = -1
    with suppress(OSError, ValueError):  # one that cannot be read counts as none
        reached = peek(path)["iteration"]
    if reached > checkpoint.position["iteration"]:
        raise CheckpointError(
            f"{path}: is of iteration {reached}, later than the iteration "
            f"{checkpoint.position['iteration']} of this run, so that another "
            f"process has written it; go on from it with --resume "
            f"{argument(path.parent)}"
        )
    arrays = {
        f"{group}/{name}": value
        for group, values in checkpoint.groups.items()
        for name, value in values.items()
    }
    meta = {
        "format": FORMAT,
        "config": config,
        "position": plain(checkpoint.position),
        "groups": sorted(checkpoint.groups),
        "record": checkpoint.record,
    }
    text = json.dumps({**meta, "sha256": _digest(arrays, meta)}, allow_nan=False)
    arrays["meta"] = np.array(text)
    for name, value in arrays.items():
        if value.dtype.hasobject:
            raise TypeError(
                f"checkpoint: {name} is an array of objects, which would have to be "
                "pickled; floats, integers and text can be saved"
            )
    # no allow_pickle=False: NumPy before 2.2 takes that for one more array
    write_atomically(path, partial(np.savez, **arrays))  # type: ignore[arg-type]


def peek(path: Path) -> Record:
    """The position alone, without its arrays and without a check of its digest.

    Raises OSError or ValueError if there is none, or none that can be read.
    """
    try:
        position: Record = json_of(str(npz_of(path, only="meta")["meta"]).encode())["position"]
        if type(position["iteration"]) is not int:
            raise TypeError("the iteration is no whole number")
    except (KeyError, TypeError, *DAMAGE) as error:
        raise ValueError(
            f"{path}: not a whole refnet checkpoint ({type(error).__name__}: {error})"
        ) from None
    return position


def load(path: Path, config: Record, repair: str = REPAIR) -> Checkpoint:
    """Read a checkpoint of the run with this configuration.

    Raises CheckpointError, naming the file and the repair, if it is missing, truncated,
    foreign, of another format version, edited, or of another configuration.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no checkpoint here; {repair}")
    try:
        arrays = npz_of(path)
        meta = json_of(str(arrays.pop("meta")).encode())
        claimed = meta.pop("sha256")
        version = meta["format"]
    except (OSError, KeyError, TypeError, AttributeError, *DAMAGE) as error:
        raise CheckpointError(
            f"{path}: not a whole refnet checkpoint ({type(error).__name__}: {error}); {repair}"
        ) from None
    if version != FORMAT:
        raise CheckpointError(
            f"{path}: written in checkpoint format {version}, this refnet reads "
            f"format {FORMAT}; resume it with the refnet that wrote it"
        )
    if claimed != _digest(arrays, meta):
        raise CheckpointError(
            f"{path}: its contents do not match their own sha256, so they were "
            f"damaged or edited; {repair}"
        )
    match meta:
        case {
            "config": dict(saved),
            "position": {"iteration": int()} as position,
            "groups": list(names),
            "record": dict(record),
        } if all(name.partition("/")[0] in names for name in arrays):
            pass
        case _:
            raise CheckpointError(
                f"{path}: not a whole refnet checkpoint (a group of arrays, or "
                f"an entry of its description, is missing); {repair}"
            )
    different = [name for name in saved if saved[name] != config.get(name)]
    if different:
        raise CheckpointError(
            f"{path}: belongs to a run with other settings "
            f"({', '.join(different)}); resume that run's own "
            "folder, or start a new one"
        )
    groups: dict[str, Params] = {group: {} for group in names}
    for name, value in arrays.items():
        group, _, rest = name.partition("/")
        groups[group][rest] = value
    return Checkpoint(groups, position, {**record, "config": saved})
