"""What a run survives, tried many times: ``python -m benchmarks.campaign [NAME ...]``.

Kills, signals, full disks, files that may not be read, several processes at once, damaged caches
and files, long runs: each part counts its trials and lists what did not happen as promised, and
goes to benchmarks/results/campaign.json. Several processes may make different parts at once.
The gate runs the same functions with few trials (tests/robustness/test_campaign.py). Needs Linux.
"""

import sys
import time
from collections.abc import Callable

from benchmarks import cached, stopped
from benchmarks.fuzz import fuzz
from benchmarks.records import Row, options, record, save
from refnet.runs.rows import environment, table
from refnet.studies.work import commit


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
    "moved": (stopped.copied, 20),
    "memory": (stopped.memory, 20_000),
    "damaged caches": (cached.damaged_caches, 67),
    "files": (files, 20_000),
    "together": (cached.together, 4),
    "cold starts": (cached.cold_starts, 3),
}


def recorded(name: str, outcome: Row) -> Row:
    """Write the record with this part in it, and return it. Parts known by another commit or
    machine are dropped."""
    here = {"commit": commit(), "environment": environment()}
    known = record("campaign")
    if {key: known.get(key) for key in here} != here:
        known = {**here, "parts": {}}
    known["parts"][name] = outcome
    save("campaign", known)
    return known


def main() -> int:
    parser = options(
        "Try what a run survives.",
        "campaign kills signals\nParts: " + ", ".join(PARTS),
        "a twentieth of the trials",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which parts (default: all)")
    args = parser.parse_args()
    unknown = set(args.names) - set(PARTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    known: Row = {}
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
        known = (
            recorded(name, outcome)
            if not args.quick
            else {"parts": known.get("parts", {}) | {name: outcome}}
        )
    print(
        table(
            ["part", "trials", "wrong"],
            [[name, row["trials"], len(row["wrong"])] for name, row in known["parts"].items()],
        )
    )
    return 1 if any(row["wrong"] for row in known["parts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
