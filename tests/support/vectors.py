"""Golden vectors: some cases, and what a right program gives for them."""

import numpy as np

from refnet.check import vectors
from refnet.check.cases import reference_results
from refnet.check.encodings import encode


def small(*names):
    return (case for case in vectors.catalogue() if case[0] in names)


def reference_answers(folder, out, dtype=np.float32, encoding="npz"):
    """What refnet's own float arithmetic gives, written as any program would."""
    for name, case in vectors.load(folder).items():
        low = {key: value.astype(dtype) for key, value in case.params.items()}
        y = case.batch.y if case.batch.y.dtype.kind == "i" else case.batch.y.astype(dtype)
        batch = case.batch._replace(x=case.batch.x.astype(dtype), y=y)
        arrays = reference_results(case.net, low, batch)
        data = encode(arrays, encoding, {"dtype": np.dtype(dtype).name})
        (out / f"{name}.{encoding}").write_bytes(data)
