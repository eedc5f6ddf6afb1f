"""A tanh recurrent net of one layer, read at its last step, in C, for the judge:

    refnet check function mine.py:gradients

It gets p, a dict of NumPy arrays with Whh (H, H), Wxh (H, D), bh (H,), Why (C, H) and by (C,); x
(T, B, D); y (B,), classes; no mask; and returns what it computed by name. All arrays are
C-ordered. Put your own source in place of this one, or load the library that you have; if it
computes another net, options such as --cell and --layers say which.
"""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* h (T + 1, B, H) and all d... arrays are zero at the start; returns the loss */
REAL gradients(int T, int B, int D, int H, int C,
               const REAL *Whh, const REAL *Wxh, const REAL *bh, const REAL *Why, const REAL *by,
               const REAL *x, const int64_t *y,
               REAL *h, REAL *outputs, REAL *dWhh, REAL *dWxh, REAL *dbh, REAL *dWhy, REAL *dby,
               REAL *dx)
{
    for (int t = 0; t < T; t++)
        for (int b = 0; b < B; b++)
            for (int i = 0; i < H; i++) {
                REAL a = bh[i];
                for (int k = 0; k < D; k++) a += Wxh[i * D + k] * x[(t * B + b) * D + k];
                for (int k = 0; k < H; k++) a += Whh[i * H + k] * h[(t * B + b) * H + k];
                h[((t + 1) * B + b) * H + i] = TANH(a);
            }

    REAL loss = 0, *dh = calloc(B * H, sizeof(REAL)), *before = malloc(H * sizeof(REAL));
    for (int b = 0; b < B; b++) {
        const REAL *last = h + (T * B + b) * H;
        REAL *out = outputs + b * C, largest = -INFINITY, total = 0;
        for (int c = 0; c < C; c++) {
            out[c] = by[c];
            for (int k = 0; k < H; k++) out[c] += Why[c * H + k] * last[k];
            if (out[c] > largest) largest = out[c];
        }
        for (int c = 0; c < C; c++) total += EXP(out[c] - largest);
        loss += (LOG(total) - (out[y[b]] - largest)) / B;
        for (int c = 0; c < C; c++) {
            REAL d = (EXP(out[c] - largest) / total - (c == y[b])) / B;
            dby[c] += d;
            for (int k = 0; k < H; k++) {
                dWhy[c * H + k] += d * last[k];
                dh[b * H + k] += d * Why[c * H + k];
            }
        }
    }

    for (int t = T - 1; t >= 0; t--)
        for (int b = 0; b < B; b++) {
            const REAL *now = h + ((t + 1) * B + b) * H, *earlier = h + (t * B + b) * H;
            for (int k = 0; k < H; k++) before[k] = 0;
            for (int i = 0; i < H; i++) {
                REAL da = dh[b * H + i] * (1 - now[i] * now[i]);
                dbh[i] += da;
                for (int k = 0; k < D; k++) {
                    dWxh[i * D + k] += da * x[(t * B + b) * D + k];
                    dx[(t * B + b) * D + k] += da * Wxh[i * D + k];
                }
                for (int k = 0; k < H; k++) {
                    dWhh[i * H + k] += da * earlier[k];
                    before[k] += da * Whh[i * H + k];
                }
            }
            for (int k = 0; k < H; k++) dh[b * H + k] = before[k];
        }
    free(dh);
    free(before);
    return loss;
}
"""


TYPES = {"float32": ("float", "f", ctypes.c_float), "float64": ("double", "", ctypes.c_double)}


@cache
def library(real, suffix):
    """The source compiled for float or double."""
    names = [
        f"-DREAL={real}",
        *(f"-D{name.upper()}={name}{suffix}" for name in ("tanh", "exp", "log")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "own.c").write_text(SOURCE)
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", *names, "own.c", "-o", "own.so", "-lm"],
            cwd=folder,
            check=True,
        )
        return ctypes.CDLL(f"{folder}/own.so")


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    (T, B, D), (C, H) = x.shape, p["Why"].shape
    need = {"Whh": (H, H), "Wxh": (H, D), "bh": (H,), "Why": (C, H), "by": (C,), "y": (B,)}
    have = {name: value.shape for name, value in {**p, "y": y}.items()}
    if have != need or x.dtype.name not in TYPES:  # C would not notice
        raise ValueError(f"got {x.dtype} of shapes {have}; need one of {', '.join(TYPES)}, {need}")
    real, suffix, returned = TYPES[x.dtype.name]
    function = library(real, suffix).gradients
    function.restype = returned
    names = ("Whh", "Wxh", "bh", "Why", "by")
    results = {
        "h": np.zeros((T + 1, B, H), x.dtype),
        "outputs": np.zeros((B, C), x.dtype),
        **{f"d{name}": np.zeros_like(p[name]) for name in names},
        "dx": np.zeros_like(x),
    }
    arrays = [*(p[name] for name in names), x, y.astype(np.int64), *results.values()]
    loss = function(T, B, D, H, C, *(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    return {"loss": x.dtype.type(loss), **results}
