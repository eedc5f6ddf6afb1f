"""Every recurrent layer that frameworks ship, judged: ``python -m benchmarks.layers NAME``.

NAME is PyTorch, Flax, Equinox, Keras or ONNX. Its rows in results/check_layers.json are replaced
and those of the others kept; a row has the verdict, the worst quantity and its z. Flax and Keras,
whose layers take seconds to compile, are judged with three layers.
"""

import json
import os
import sys
from collections import Counter
from dataclasses import replace

import numpy as np

from benchmarks.records import RESULTS, checked, record
from refnet.check import layers
from refnet.runs.files import write_text
from refnet.runs.rows import environment, plain

RESULT = RESULTS / "check_layers.json"
KEPT = ("framework", "what", "dtype", "verdict", "worst", "z", "convention", "note")


def rows_of(name: str) -> list[dict]:
    if name == "ONNX":
        return [row for dtype in (np.float32, np.float64) for row in layers.onnx_rows(dtype)]
    tables = [table for table in layers.TABLES if table.framework == name]
    compiled = name in ("Flax", "Keras")
    return [
        row
        for table in tables
        for row in layers.rows(
            replace(table, depths=(3,)) if compiled and len(table.depths) > 1 else table
        )
    ]


def save(rows: list[dict], versions: dict[str, str]) -> None:
    """A line of JSON for each row, with what is not empty; z to four digits."""
    short = [{name: row[name] for name in KEPT if row.get(name) not in (None, "")} for row in rows]
    for row in short:
        if "z" in row:
            row["z"] = plain(float(f"{float(row['z']):.4g}"))
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in short)
    write_text(
        RESULT,
        f'{{"environment": {json.dumps(environment())},\n'
        f'"versions": {json.dumps(versions)},\n"rows": [\n{lines}\n]}}\n',
    )


def main(names: list[str]) -> int:
    known = dict.fromkeys([*(table.framework for table in layers.TABLES), "ONNX"])
    for name in checked(names, known):
        rows = rows_of(name)
        seen = {row["framework"]: row["version"] for row in rows}
        old = {"rows": [], "versions": {}, **record("check_layers")}
        save(
            [row for row in old["rows"] if row["framework"] not in seen] + rows,
            {**old["versions"], **seen},
        )
        print(name, len(rows), dict(Counter(row["verdict"] for row in rows)))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")
    sys.exit(main(sys.argv[1:]))
