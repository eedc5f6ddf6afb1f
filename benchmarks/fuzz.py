"""Mutated files of every kind that refnet reads: ``python -m benchmarks.fuzz [--files N]``.

Whole files are made once, and each is read after random damage: flipped bits, cuts, repeats,
extreme numbers, deep brackets, and archives whose members are damaged but whose checksums hold.
A reader may raise ValueError or OSError in one line; what has a digest may be accepted only if it
holds what was written. CPU seconds and peak memory of each file are measured.
"""

import gzip
import io
import json
import os
import re
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator, default_rng

from benchmarks import stopped
from benchmarks.records import Row, options
from refnet.runs import checkpoint
from refnet.runs.rows import Rows, read_rows, table
from refnet.training.config import Config
from refnet.training.config_files import from_toml

SECONDS, BYTES = 2, 200_000_000
"""What one file may take."""


class Kind(NamedTuple):
    """A file's bytes, what reads it, and whether what was read is what was written."""

    name: str
    data: bytes
    read: Callable[[Path], object]
    same: Callable[[Any], bool] | None = None


def config() -> Config:
    return replace(
        stopped.config(), task="temporal-order:samples=40", iterations=30, evaluate_every=10
    )


def kinds(folder: Path) -> list[Kind]:
    """A whole file of each kind, written by refnet's own code."""
    return [*_of_runs(folder), *_of_vectors(folder), *_of_data()]


LOCK = b"process 1 on host since 2026-01-01 00:00:00\n"


def _of_runs(folder: Path) -> list[Kind]:
    """The files of a run and of a study."""
    from refnet.runs.folder import holder
    from refnet.studies.store import Store
    from refnet.training.experiment import build
    from refnet.training.listing import describe
    from refnet.training.loop import identity as settings_of, train
    from refnet.training.steps import Run

    run, study = folder / "run", folder / "study"
    train(config(), run)
    identity, optimizer = settings_of(config()), build(config()).optimizer
    saved = checkpoint.load(run / "checkpoint.npz", identity)
    rows = Rows.resumed(run / "rows.jsonl", saved.record["rows"]).rows
    for number in range(3):
        Store(study).append({"key": f"{number:064x}", "settings": {"rate": 0.1}, "curve": [1, 2]})

    def digits(read: checkpoint.Checkpoint) -> Row:
        return {
            (group, name): value.tobytes()
            for group in saved.groups
            for name, value in read.groups[group].items()
        }

    def same_checkpoint(read: checkpoint.Checkpoint) -> bool:
        return bool(read.position == saved.position and digits(read) == digits(saved))

    def read_checkpoint(path: Path) -> checkpoint.Checkpoint:
        read = checkpoint.load(path, identity)
        Run.from_checkpoint(read, optimizer, path)
        return read

    def resumed(path: Path) -> object:
        return Rows.resumed(path, saved.record["rows"]).rows

    def listed(path: Path) -> object:
        (path.parent / "rows.jsonl").touch()
        for name in ("config.toml", "checkpoint.npz"):
            if path.name != name and not (path.parent / name).exists():
                (path.parent / name).write_bytes((run / name).read_bytes())
        return describe(path.parent)

    def stored(path: Path) -> object:
        return Store(path.parent).rows()

    of_run = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    return [
        Kind("checkpoint.npz", of_run["checkpoint.npz"], read_checkpoint, same_checkpoint),
        Kind("checkpoint.npz ", of_run["checkpoint.npz"], checkpoint.peek),
        Kind("rows.jsonl", of_run["rows.jsonl"], resumed, partial(eq, rows)),
        Kind("rows.jsonl ", of_run["rows.jsonl"], read_rows),
        Kind("rows.jsonl  ", (study / "rows.jsonl").read_bytes(), stored),
        Kind("config.toml", of_run["config.toml"], from_toml),
        Kind("summary.json", of_run["summary.json"], listed),
        Kind(".lock", LOCK, lambda path: holder(path.parent)),
    ]


def _of_vectors(folder: Path) -> list[Kind]:
    """The files of golden vectors, and of a user's results."""
    from refnet.check import vectors
    from refnet.check.encodings import ENCODINGS, decode, encode

    golden = folder / "golden"
    vectors.write(golden, (case for case in vectors.catalogue() if case[0] == "rnn-last"))
    arrays = {"dWhh": np.ones((4, 4), np.float32), "loss": np.float32(1).reshape(())}
    entry = vectors._entries(golden)["rnn-last"]

    def beside(name: str) -> Callable[[Path], object]:
        """Reads the folder of a file together with a whole one of that name."""

        def read(path: Path) -> object:
            (path.parent / name).write_bytes((golden / name).read_bytes())
            return vectors.load(path.parent)

        return read

    def judged(path: Path) -> object:
        return vectors._judged(golden, "rnn-last", entry, path.parent)

    def decoded(path: Path) -> object:
        return decode(path, 2**20)

    manifest, archive = "manifest.json", "rnn-last.npz"
    return [
        Kind(manifest, (golden / manifest).read_bytes(), beside(archive)),
        Kind(archive, (golden / archive).read_bytes(), beside(manifest)),
        *(
            Kind(f"rnn-last.{encoding}  ", encode(arrays, encoding, {"dtype": "float32"}), judged)
            for encoding in ENCODINGS
        ),
        *(
            Kind(f"x.{encoding}", (golden / f"rnn-last.{encoding}").read_bytes(), decoded)
            for encoding in ENCODINGS
        ),
    ]


def _of_data() -> list[Kind]:
    """The files of data sets, models, and json.dumps(record, indent=1) + "\n" of any form."""
    from refnet.interop import onnx_graph, onnx_nodes
    from refnet.nets.recurrent import RecurrentNet
    from refnet.runs.read import contents, json_of
    from refnet.tasks.files import parse_idx, unpack
    from refnet.tasks.ptb import encode as parse_text

    images = (
        (0x803).to_bytes(4, "big")
        + b"".join(n.to_bytes(4, "big") for n in (5, 3, 2))
        + bytes(range(30))
    )
    text = b" a line of text \n" * 20

    def pixels(path: Path) -> object:
        with open(path, "rb") as file:
            return parse_idx(unpack(file, len(images), str(path)), (5, 3, 2), str(path))

    def characters(path: Path) -> object:
        with open(path, "rb") as file:
            return parse_text(unpack(file, len(text), str(path)), str(path))

    def any_json(path: Path) -> object:
        return json_of(contents(path, 2**20))

    return [
        Kind("images.gz", gzip.compress(images), pixels),
        Kind("images", images, pixels),
        Kind("text.gz", gzip.compress(text), characters),
        *(
            Kind(
                "model.onnx",
                onnx_nodes.model(net, net.init(default_rng(0))).SerializeToString(),
                onnx_graph.load,
            )
            for cell in onnx_nodes.ORDER
            if find_spec("onnx")
            for net in [RecurrentNet(2, 3, 1, cell=cell)]
        ),
        Kind("any.json", b'{"a": [1, 2.5, "x", null, {"b": []}]}', any_json),
    ]


WORDS = (
    b"[" * 3000,
    b"{" * 3000,
    b'{"a":' * 3000,
    b"NaN",
    b"Infinity",
    b"1e400",
    b"-1",
    b"0",
    b"9" * 5000,
    b"99999999999999999999",
    b"null",
    b"true",
    b"\xff\xfe",
    b"\0",
    b'"',
    b"\n",
    b"'|O8'",
    b"(1000000, 1000000)",
    b"..",
    b"\\u0000",
    b"e" * 100,
    b".a" * 500,
    b"PK\5\6",
)


def damaged(data: bytes, others: list[bytes], rng: Generator) -> bytes:
    """A copy with one to four random damages."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        a, b = sorted(int(n) for n in rng.integers(0, len(out) + 1, 2))
        match int(rng.integers(0, 9)):
            case 0 | 1 if out:
                out[min(a, len(out) - 1)] ^= 1 << int(rng.integers(8))
            case 2:
                del out[a:]
            case 3:
                del out[a : min(b, a + 64)]
            case 4:
                out[a:a] = WORDS[rng.integers(len(WORDS))]
            case 5:
                out[a:a] = out[a:b] * int(rng.integers(1, 4))
            case 6:
                numbers = [m.span() for m in re.finditer(rb"\d+", bytes(out[:20_000]))]
                if numbers:
                    start, end = numbers[rng.integers(len(numbers))]
                    out[start:end] = WORDS[rng.integers(3, 11)]
            case 7:
                other = others[rng.integers(len(others))]
                out[a : a + 8] = other[b % (len(other) + 1) :][:64]
            case _:
                out[a : a + 4] = int(rng.integers(0, 2**32)).to_bytes(4, "little")
        del out[2_000_000:]
    return bytes(out)


def resealed(data: bytes, others: list[bytes], rng: Generator) -> bytes:
    """A zip archive with one member damaged, or lengthened by zeros, and checksums that hold."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = sorted(members)[rng.integers(len(members))]
    if rng.integers(4):
        start = members[name][:128]
        members[name] = damaged(start, others, rng) + members[name][128:]
    else:
        members[name] += bytes(int(rng.integers(2**24)))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", int(rng.choice([0, 8]))) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return file.getvalue()


def resealed_meta(data: bytes, others: list[bytes], rng: Generator) -> bytes:
    """A checkpoint with a damaged description and a new digest that holds."""
    with np.load(io.BytesIO(data)) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(str(arrays.pop("meta")))
    meta.pop("sha256")
    place: Any = meta
    while True:
        key = sorted(place)[rng.integers(len(place))]
        if not isinstance(place[key], dict) or not place[key] or rng.integers(4) == 0:
            break
        place = place[key]
    if rng.integers(2):
        place.pop(key)
    else:
        place[key] = [None, [], {}, -1, 1e300, "x", True, "a" * 10_000][rng.integers(8)]
    if rng.integers(4) == 0 and arrays:
        arrays.pop(sorted(arrays)[rng.integers(len(arrays))])
    text = json.dumps({**meta, "sha256": checkpoint._digest(arrays, meta)})
    out = io.BytesIO()
    np.savez(out, meta=np.array(text), **arrays)
    return out.getvalue()


def _peak() -> int:
    """Bytes of the largest resident set since ``_reset``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def _reset() -> int:
    """Start to measure the largest resident set; returns the present one."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def fuzz(files: int, seed: int = 0) -> Row:
    """How each of the mutated files was read, by kind; what was not as promised, in full."""
    rng = default_rng(seed)
    known: dict[str, Row] = {}
    wrong: list[str] = []
    with TemporaryDirectory() as place:
        folder = Path(place)
        sources = kinds(folder)
        others = [kind.data for kind in sources]
        for number in range(files):
            kind = sources[number % len(sources)]
            mutate = damaged
            if kind.name.strip().endswith(".npz") and rng.integers(2):
                mutate = (
                    resealed if "checkpoint" not in kind.name or rng.integers(2) else resealed_meta
                )
            data = mutate(kind.data, others, rng)
            at = folder / "read"
            at.mkdir(exist_ok=True)
            for old in at.iterdir():
                old.unlink()
            path = at / kind.name.strip()
            path.write_bytes(data)
            before, start = _reset(), time.process_time()
            outcome = "accepted"
            try:
                read = kind.read(path)
                if mutate is not resealed_meta and kind.same and not kind.same(read):
                    wrong.append(f"{number} {kind.name}: accepted, and is not what was written")
            except (ValueError, OSError) as error:
                outcome = "refused"
                if "\n" in str(error) or not str(error):
                    wrong.append(f"{number} {kind.name}: not one line: {error!r}")
            except BaseException as error:
                outcome = "failed"
                wrong.append(f"{number} {kind.name}: {type(error).__name__}: {error}")
            seconds, used = time.process_time() - start, _peak() - before
            if seconds > SECONDS or used > BYTES:
                wrong.append(f"{number} {kind.name}: {seconds:.1f} s, {used:,} bytes")
            row = known.setdefault(
                kind.name.strip(),
                dict.fromkeys(
                    ("files", "accepted", "refused", "failed", "seconds", "megabytes"), 0
                ),
            )
            row["files"] += 1
            row[outcome] += 1
            row["seconds"] = round(max(row["seconds"], seconds), 3)
            row["megabytes"] = round(max(row["megabytes"], used / 1e6), 1)
    return {"files": files, "seed": seed, "kinds": known, "wrong": wrong}


def main() -> int:
    parser = options("Read mutated files of every kind.", "fuzz --files 2000")
    parser.add_argument("--files", type=int, default=20_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    args = parser.parse_args()
    record = fuzz(args.files, args.seed)
    columns = ["files", "accepted", "refused", "failed", "seconds", "megabytes"]
    print(
        table(
            ["kind", *columns],
            [[name, *(row[column] for column in columns)] for name, row in record["kinds"].items()],
        )
    )
    print("\n".join(record["wrong"]) or "nothing but what is documented")
    return 1 if record["wrong"] else 0


if __name__ == "__main__":
    if not os.path.exists("/proc/self/clear_refs"):
        sys.exit("benchmarks.fuzz: needs Linux's /proc to measure memory")
    sys.exit(main())
