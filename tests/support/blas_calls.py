"""Run as a program: public calls of a size for which OpenBLAS takes threads, and which of them
woke these.

Its line of output for a call is its name, a checksum of what it gave, and "woken" or "asleep", or
"unknown" where OpenBLAS cannot be watched.
"without" as an argument takes ``serial_blas`` away.
"""

import ctypes
import hashlib
import sys
import threading
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from refnet.common import process

if "without" in sys.argv:
    process.serial_blas = lambda function: function

import refnet
from refnet import analysis
from refnet.matrices import initializers, orthogonality, stiefel

N = 200
CALLBACK = ctypes.CFUNCTYPE(
    None,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_int,
)
JOB = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
SETTERS = (
    "scipy_openblas_set_threads_callback_function64_",
    "scipy_openblas_set_threads_callback_function",
    "openblas_set_threads_callback_function",
)
MADE = {
    "svd": (),
    "expm": ("A",),
    "cayley": ("A",),
    "scaled_cayley": ("A",),
    "householder": (),
    "schur": (),
}
"""The transitions that compute something, and the parts that are moved off the start."""
woken = []


@CALLBACK
def work(sync, job, count, size, data, extra):
    """What OpenBLAS calls in place of its own threads."""
    woken.append(count)
    threads = [
        threading.Thread(target=JOB(job), args=(n, data + n * size, extra)) for n in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def watch():
    """OpenBLAS calls ``work`` from here on; how many of them do."""
    setters = []
    for package, pattern in (
        ("numpy", "_core/_multiarray_umath*.so"),
        ("scipy", "linalg/cython_lapack*.so"),
    ):
        for path in Path(find_spec(package).submodule_search_locations[0]).glob(pattern):
            library = ctypes.CDLL(str(path))
            setters += [getattr(library, name) for name in SETTERS if hasattr(library, name)]
    for setter in setters:
        setter(work)
    return len(setters)


def checksum(value, sums=None):
    """Of every array and number in nested results."""
    sums = hashlib.sha256() if sums is None else sums
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, (tuple, list)):
        for each in value:
            checksum(each, sums)
    elif isinstance(value, (np.ndarray, np.number, float)):
        sums.update(np.ascontiguousarray(value).tobytes())
    return sums.hexdigest()[:16]


def calls():
    """Name and function of each call, ready to be made."""
    rng = np.random.default_rng(0)
    Q, G = initializers.orthogonal((N, N), rng), rng.normal(size=(N, N))
    W, v = G / N, G[0] / N
    for name in ("orthogonal", "orthogonal_svd"):
        yield name, partial(refnet.initialize, name, (N, N), np.random.default_rng(1))
    yield "gradient", partial(stiefel.gradient, Q, G)
    for retraction in stiefel.RETRACTIONS:
        yield f"step {retraction}", partial(stiefel.step, Q, G, 0.01, retraction)
    for function in (stiefel.defect, stiefel.determinant, stiefel.guard):
        yield f"stiefel.{function.__name__}", partial(function, Q)
    for function in (orthogonality.defect, orthogonality.defect_and_gradient):
        yield f"orthogonality.{function.__name__}", partial(function, W)
    yield "open_update", partial(orthogonality.open_update, W, 0.1, 0.1)
    yield "open_penalty", partial(orthogonality.open_penalty, {"W": W}, 0.1)
    yield "orthogonalize", lambda: orthogonality.orthogonalize(W * 10, max_steps=2).W
    for name, changed in MADE.items():
        matrix = refnet.transitions.transition(name)
        yield f"{name} init", partial(matrix.init, Q)
        parts = process.serial_blas(matrix.init)(Q)
        parts |= {part: parts[part] + W for part in changed}
        tape = process.serial_blas(matrix.matrix)(parts)[1]
        yield f"{name} matrix", lambda: matrix.matrix(parts)[0]
        yield f"{name} pull_back", partial(matrix.pull_back, parts, tape, G)
        yield f"{name} report", partial(matrix.report, parts)
    yield from nets(rng)
    config = refnet.Config(
        "copy:samples=50", length=5, hidden=N, iterations=2, evaluate_every=2, backend="reference"
    )
    with TemporaryDirectory() as folder:
        yield "train", lambda: refnet.train(config, f"{folder}/run", draw=False).final["loss"]
    small = W[:128, :128]
    yield "schur_form", lambda: analysis.schur_form(small).strict
    for name, arguments in (
        ("singular_values", (W,)),
        ("spectral_radius", (W,)),
        ("henrici", (small,)),
        ("noise_covariance", (W,)),
        ("power_norms", (W, 3)),
        ("numerical_range", (W, 2)),
        ("pseudospectrum", (small, np.ones(1))),
        ("fisher_memory", (W, v, 2)),
        ("total_memory", (W, v)),
        ("retraction_errors", ((N, N), np.array([0.01, 0.02]), rng)),
    ):
        yield name, partial(getattr(analysis, name), *arguments)


def nets(rng):
    """What recurrent and feedforward nets do."""
    x = rng.normal(size=(4, 100, N))
    y = np.zeros(100, int)
    net = refnet.RecurrentNet(N, N, 5, backend="reference", embedding=N)
    for kind, each, inputs in (
        ("compiled", replace(net, backend="compiled"), x),
        ("recurrent", net, x),
        ("stacked", refnet.StackedNet(N, N, 5, backend="reference", layers=2), x),
        ("feedforward", refnet.FeedforwardNet((N, N, 5), backend="reference"), x[0]),
    ):
        batch = refnet.Batch(inputs, y)
        params = each.init(np.random.default_rng(0), np.float64)
        outputs, tape = process.serial_blas(each.forward)(params, batch.x)
        yield f"{kind} forward", lambda: each.forward(params, batch.x)[0]
        yield f"{kind} backward", partial(each.backward, params, tape, outputs)
        yield f"{kind} loss_and_gradients", partial(refnet.loss_and_gradients, each, params, batch)
    params = net.init(np.random.default_rng(0), np.float64)
    yield "matrices", lambda: net.matrices(params)[0]
    yield "init", lambda: net.init(np.random.default_rng(0), weights="orthogonal")
    yield "jvp", partial(refnet.jvp, net, params, refnet.Batch(x, y), {"Why": params["Why"]})
    plain = refnet.RecurrentNet(3, 100, 5, backend="reference")
    params = plain.init(np.random.default_rng(0), np.float64)
    yield "state_jacobians", partial(refnet.state_jacobians, plain, params, x[:, :40, :3])
    yield "jacobian_spectra", partial(analysis.jacobian_spectra, plain, params, x[:, :1, :3])
    yield "lyapunov_exponents", partial(analysis.lyapunov_exponents, plain, params, x[:, :1, :3])


if __name__ == "__main__":
    watching = watch()
    for name, call in calls():
        woken.clear()
        result = checksum(call())
        print(
            name,
            result,
            "woken" if woken else "asleep" if watching else "unknown",
            sep="\t",
            flush=True,
        )
