"""The recorded training runs: ``python -m benchmarks.runs [NAME ...]`` repeats them.

Each is one ``refnet train`` command; its folder in benchmarks/results/runs/ is what the
README's tables are generated from (``python -m benchmarks.readme``). A run that was
interrupted goes on from its checkpoint.
"""

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "results" / "runs"

METHODS = {
    "plain": "--rate 1e-4 --iterations 20000",
    "oinit": "--method oinit --orthogonal hidden",
    "open": "--method open --rate 1e-4 --open-form squared",
}
SEEDS = (0, 1, 2, 3, 4)
"""The seeds of the runs whose figure has a band over them; seed 0 has no suffix."""

RELEASED = "--learn-h0 --clip step"
SPECTRUM = "spectrum_rate=plain"


def seeded(name: str) -> list[str]:
    """The names of a run's seeds."""
    return [f"{name}-seed{seed}" if seed else name for seed in SEEDS]


RUNS = {
    **{name: f"temporal-order --length 60 {flags}" + f" --seed {seed}" * (seed > 0)
       for method, flags in METHODS.items()
       for seed, name in zip(SEEDS, seeded(f"temporal-order-{method}"))},
    **{f"mnist-feedforward-{method}": "mnist:scaling=unit --depth 10 --batch 16 --iterations "
                                      f"375000 --evaluate-every 3750 --method {method}"
                                      + (" --orthogonal hidden" if method != "plain" else "")
       for method in ("plain", "oinit", "open")},
    "sequential-mnist-oinit": "sequential-mnist:scaling=unit --method oinit --weights "
                              "glorot_uniform --rate 1e-4 --orthogonal hidden --iterations 5000 "
                              "--evaluate-every 500",
    "permuted-mnist-margin-0.1": "permuted-mnist:validation=0 --transition "
                                 f"svd:margin=0.1,{SPECTRUM} {RELEASED} "
                                 "--iterations 3000 --evaluate-every 500",
    "adding-200-lstm": "adding:protocol=vorontsov,samples=1000 --length 200 --cell lstm --hidden "
                       "64 --batch 50 --optimizer adam --rate 2e-3 --clip norm --backend reference "
                       "--iterations 6000",
    "ptb-margin-1": f"ptb:select=bpc --backend reference --transition svd:margin=1,{SPECTRUM} "
                    f"{RELEASED} --reduction batch_mean --manifold-rate 1e-4 --hidden 256 "
                    "--iterations 8400 --evaluate-every 400",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Repeat the recorded training runs.",
        epilog="Example: python -m benchmarks.runs temporal-order-oinit\nRuns: " + ", ".join(RUNS))
    parser.add_argument("names", nargs="*", metavar="NAME", help="which runs (default: all)")
    names = parser.parse_args().names or list(RUNS)
    unknown = set(names) - set(RUNS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the runs are {', '.join(RUNS)}")
    for name in names:
        folder = FOLDER / name
        command = ["--resume", str(folder)] if (folder / "checkpoint.npz").exists() else [
            *RUNS[name].split(), "--out", str(folder)]
        print(f"== {name}: refnet train {' '.join(command)}", flush=True)
        subprocess.run([sys.executable, "-m", "refnet", "train", *command], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
