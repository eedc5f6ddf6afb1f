"""How long a verdict takes, from a file to the exit status: ``python -m benchmarks.verdicts``.

``refnet check function`` on a program that runs refnet's own compiled net in float32, as whole
processes: first with an empty cache; again after an edit of the file, when certificate and sigmas
are in the cache; and after edits that make the program wrong, by a mistake that the verdict has to
name, and by one that has no name.
Medians over ROUNDS rounds, each with a new cache, go to results/verdicts.json.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.records import RESULTS
from refnet.check.tables import save

RESULT = RESULTS / "verdicts.json"
CASES = (("gru", "300,100,4", 3), ("lstm", "300,100,4", 3), ("lstm", "784,128,16", 1))
"""Cell, T, H and B, and the rounds."""
PROGRAM = """
from refnet import Batch, RecurrentNet, loss_and_gradients


def gradients(p, x, y):
    net = RecurrentNet(x.shape[2], p["Whh"].shape[1], len(p["by"]), "CELL", backend="compiled")
    result = loss_and_gradients(net, p, Batch(x, y))
    dp = {f"d{name}": value for name, value in result.gradients.items()}
    return {"loss": result.loss, **dp}
"""
EDITS = (
    ("first", "", ""),
    ("edited", "# the same, written otherwise\n", ""),
    ("wrong", '    dp["dWhh"] = -dp["dWhh"]\n    return', "dWhh has the wrong sign"),
    ("nameless", '    dp["dWhh"] = dp["dWhh"] ** 3\n    return', "not rounding"),
)


def seconds(cell: str, sizes: str, folder: Path) -> dict[str, float]:
    """Seconds of a verdict after each edit. Raises RuntimeError for an unexpected verdict."""
    file, taken = folder / "mine.py", {}
    for name, text, verdict in EDITS:
        program = PROGRAM.replace("CELL", cell)
        file.write_text(program.replace("    return", text) if verdict else text + program)
        started = time.perf_counter()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "refnet",
                "check",
                "function",
                f"{file}:gradients",
                "--cell",
                cell,
                "--sizes",
                sizes,
                "--dtypes",
                "float32",
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "REFNET_JUDGE_CACHE": str(folder)},
        )
        taken[name] = time.perf_counter() - started
        if done.returncode != bool(verdict) or verdict not in done.stdout:
            raise RuntimeError(f"{cell}, {name}: {done.returncode}\n{done.stdout}{done.stderr}")
    return taken


def main() -> None:
    argparse.ArgumentParser(description="Write results/verdicts.json.").parse_args()
    rows = []
    for cell, sizes, number in CASES:
        rounds = []
        for _ in range(number):
            with TemporaryDirectory() as folder:
                rounds.append(seconds(cell, sizes, Path(folder)))
        rows.append(
            {
                "cell": cell,
                "sizes": sizes,
                "rounds": number,
                **{name: median(trial[name] for trial in rounds) for name, *_ in EDITS},
            }
        )
        print(rows[-1])
    save(RESULT, rows)


if __name__ == "__main__":
    main()
