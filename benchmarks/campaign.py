"""What a run survives, tried many times: ``python -m benchmarks.campaign [NAME ...]``.

Kills, signals, full disks, files that may not be read, several processes at once, damaged caches
and files, long runs: each part counts its trials and lists what did not happen as promised, and
goes to benchmarks/results/campaign.json. Several processes may make different parts at once.
The gate runs the same functions with few trials (tests/robustness/test_campaign.py). Needs Linux.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import cached, stopped
from benchmarks.fuzz import fuzz
from refnet.runs.files import write_text
from refnet.runs.rows import environment, table
from refnet.studies.work import commit

RESULTS = Path(__file__).parent / "results" / "campaign.json"

Row = dict[str, Any]


def files(trials: int, seed: int = 0) -> Row:
    """Mutated files of every kind that refnet reads (benchmarks.fuzz)."""
    outcome = fuzz(trials, seed)
    return {"trials": trials, "kinds": outcome["kinds"], "wrong": outcome["wrong"]}


PARTS: dict[str, tuple[Callable[[int], Row], int]] = {
    "kills": (stopped.kills, 282),
    "signals": (stopped.signals, 144),
    "denied": (stopped.denied, 2 * len(stopped.DENIED)),
    "full disks": (stopped.full_disks, 60),
    "small file systems": (stopped.small_file_systems, 40),
    "two at once": (stopped.two_at_once, 20),
    "moved": (stopped.moved, 20),
    "memory": (stopped.memory, 20_000),
    "damaged caches": (cached.damaged_caches, 67),
    "files": (files, 20_000),
    "together": (cached.together, 4),
    "cold starts": (cached.cold_starts, 3),
}


def recorded(name: str, outcome: Row) -> dict[str, Any]:
    """Write the record with this part in it, and return it. Parts made by another commit or
    machine are dropped."""
    here = {"commit": commit(), "environment": environment()}
    record = {**here, "parts": {}}
    if RESULTS.exists():
        record = json.loads(RESULTS.read_text())
        if {key: record.get(key) for key in here} != here:
            record = {**here, "parts": {}}
    record["parts"][name] = outcome
    write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    return record


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Try what a run survives.",
        epilog="Example: python -m benchmarks.campaign kills signals\nParts: " + ", ".join(PARTS),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which parts (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="a twentieth of the trials; nothing is recorded"
    )
    args = parser.parse_args()
    unknown = set(args.names) - set(PARTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    record: dict[str, Any] = {}
    for name in args.names or PARTS:
        part, trials = PARTS[name]
        started = time.perf_counter()
        outcome = part(max(trials // 20, 1) if args.quick else trials)
        outcome["minutes"] = round((time.perf_counter() - started) / 60, 1)
        print(
            f"{name}: {outcome['trials']} trials, {len(outcome['wrong'])} wrong, "
            f"{outcome['minutes']} minutes",
            *outcome["wrong"][:20],
            sep="\n  ",
            flush=True,
        )
        record = (
            recorded(name, outcome)
            if not args.quick
            else {"parts": record.get("parts", {}) | {name: outcome}}
        )
    print(
        table(
            ["part", "trials", "wrong"],
            [[name, row["trials"], len(row["wrong"])] for name, row in record["parts"].items()],
        )
    )
    return 1 if any(row["wrong"] for row in record["parts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
