"""The recorded training runs: ``python -m benchmarks.runs [NAME ...]`` makes them anew.

Each is one ``refnet train`` command; its folder in benchmarks/results/runs/ is what the
README's tables are generated from (``python -m benchmarks.readme``). A run that was
interrupted goes on from its checkpoint.
"""

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "results" / "runs"

MARGINS = ("0", "0.01", "0.1", "1", "none")

RUNS = {
    "temporal-order-plain": "temporal-order --length 60 --method plain --iterations 20000",
    "temporal-order-oinit": "temporal-order --length 60 --method oinit",
    "temporal-order-open": "temporal-order --length 60 --method open",
    "mnist-feedforward-plain": "mnist --net feedforward --depth 10 --method plain",
    "mnist-feedforward-oinit": "mnist --net feedforward --depth 10 --method oinit",
    "mnist-feedforward-open": "mnist --net feedforward --depth 10 --method open",
    "sequential-mnist-oinit": "sequential-mnist --method oinit --iterations 5000 "
                              "--evaluate-every 500",
    **{f"copy-200-margin-{margin}": f"copy --length 200 --transition svd:margin={margin} "
                                    "--iterations 3000" for margin in MARGINS},
    "copy-500-margin-0.1": "copy --length 500 --transition svd:margin=0.1 --iterations 6000 "
                           "--evaluate-every 200",
    "permuted-mnist-margin-0.1": "permuted-mnist --transition svd:margin=0.1 "
                                 "--iterations 3000 --evaluate-every 500",
    "adding-200-lstm": "adding:protocol=002,samples=1000 --length 200 --cell lstm --hidden 64 "
                       "--batch 50 --optimizer adam --rate 2e-3 --clip norm --backend reference "
                       "--iterations 6000",
    "ptb-margin-1": "ptb --backend reference --transition svd:margin=1 --manifold-rate 1e-4 "
                    "--hidden 256 --iterations 8400 --evaluate-every 400",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make the recorded training runs anew.",
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
