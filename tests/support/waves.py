"""Sequences of a typical problem of classification."""

import numpy as np


def waves(count, seed):
    """``count`` sequences of 30 to 120 steps and six features, of which two are waves in noise: the
    class, of four, is their frequency and whether they are in phase. One feature has a scale of
    its own."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(count):
        kind, t = int(rng.integers(4)), np.arange(rng.integers(30, 121))
        x, phase = rng.standard_normal((len(t), 6)), rng.uniform(0, 6.28)
        at = (0.15, 0.25)[kind % 2] * t + phase
        x[:, 0] += 1.5 * np.sin(at)
        x[:, 1] += 1.5 * np.sin(at + (kind // 2) * 1.6)
        x[:, 3] *= 50
        X.append(x)
        y.append("abcd"[kind])
    return X, np.array(y)
