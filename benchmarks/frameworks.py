"""The cells of PyTorch, JAX and ONNX at several sizes, judged: ``python -m benchmarks.frameworks
NAME...``, NAME being torch, jax or onnx.

results/check_NAME.json keeps each verdict and its worst quantity; the layers, in every form that
they are used in, are those of ``python -m benchmarks.layers``.
"""

import sys
from collections import Counter
from functools import partial

from benchmarks.records import RESULTS, checked
from refnet.check import survey
from refnet.check.tables import save

DTYPES = (*survey.DTYPES, "bfloat16-float32", "float16-float32")
SURVEYS = {
    "torch": partial(survey.torch_rows, dtypes=DTYPES),
    "jax": survey.jax_rows,
    "onnx": survey.onnx_rows,
}


def main(names: list[str]) -> int:
    for name in checked(names, SURVEYS):
        rows = [
            {key: value for key, value in row.items() if key != "quantities"}
            for row in SURVEYS[name]()
        ]
        save(RESULTS / f"check_{name}.json", rows)
        print(name, len(rows), dict(Counter(row["verdict"] for row in rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
