"""Errata of two posts: Merity, Explaining and illustrating orthogonal initialization for recurrent
neural networks; Orhan, Common initialization schemes for recurrent neural networks are likely
suboptimal."""

import math
from collections.abc import Callable
from fractions import Fraction as F

import numpy as np

from refnet.analysis.memory import total_memory
from refnet.analysis.powers import power_norms, power_radii
from refnet.batch import Array
from refnet.explain.errata.base import AtLeast, AtMost, Comparison, Comparisons, erratum
from refnet.explain.errata.exact import ROTATION, SHEAR
from refnet.matrices.initializers import initialize

__all__: list[str] = []

MERITY, ORHAN = "Merity", "Orhan"
Rng = np.random.Generator


@erratum(
    32,
    MERITY,
    "the summary of F^n",
    "F^n keeps a constant norm if all |lambda| = 1",
    "it does if F is normal as well",
    "F = [[1, 1], [0, 1]] has both eigenvalues 1, and F^n = [[1, n], [0, 1]]: a Jordan block "
    "grows like a polynomial. A normal F is unitarily diagonal, so ||F^n|| = max |lambda|^n.",
)
def _e32(rng: Rng) -> Comparisons:
    shear, rotation = SHEAR.astype(float), ROTATION.astype(float)
    # the norm of [[1, n], [0, 1]] is (n + sqrt(n^2 + 4)) / 2
    return [
        Comparison(
            "||F^64|| of the shear",
            float(power_norms(shear, 64)[64]),
            1.0,
            (64 + math.sqrt(64**2 + 4)) / 2,
            1e-12,
        ),
        Comparison(
            "||F^64|| of a rotation", float(power_norms(rotation, 64)[64]), None, 1.0, 1e-12
        ),
    ]


@erratum(
    33,
    MERITY,
    "constructing an orthogonal matrix",
    "singular value decomposition constructs an orthogonal matrix",
    "it does; one that is uniformly distributed (Haar) needs its signs fixed, too",
    "LAPACK chooses signs, which the first entries of U, and of Q by QR, then have more often "
    "than not. QR is unique with diag(R) > 0, and that Q is Haar (Mezzadri 2007).",
)
def _e33(rng: Rng) -> Comparisons:
    N = 2000

    def mean_sign(draw: Callable[[], Array]) -> float:
        return float(np.mean([np.sign(draw()[0, 0]) for _ in range(N)]))

    return [
        Comparison(
            "|mean sign of U_11| by singular values of 4 x 4 Gaussian matrices",
            abs(mean_sign(lambda: np.linalg.svd(rng.normal(size=(4, 4)))[0])),
            None,
            AtLeast(0.3),
        ),
        Comparison(
            "|mean sign of Q_11| by plain QR",
            abs(mean_sign(lambda: np.linalg.qr(rng.normal(size=(4, 4)))[0])),
            None,
            1.0,
        ),
        Comparison(
            "mean sign of Q_11, refnet's orthogonal initialiser",
            mean_sign(lambda: initialize("orthogonal", (4, 4), rng)),
            None,
            0.0,
            5 / math.sqrt(N),
        ),
    ]


@erratum(
    35,
    ORHAN,
    "first paragraph",
    "rho(W^n) is much larger than rho of a product of n draws",
    "it is for N >= 2, by a factor for each draw that tends to 1 as N grows; the n-th roots "
    "of both tend to 1",
    "For N(0, 1/N) entries, rho(W) tends to 1 and so does the growth rate of the product: the "
    "difference in each factor is an effect of finite N, raised to the power n by n factors.",
)
def _e35(rng: Rng) -> Comparisons:
    small, error = power_radii(4, 4000, 10, rng)
    large, large_error = power_radii(60, 120, 10, rng)
    return [
        Comparison(
            "log (rho(W^10) / rho(product)) / 10, mean at N = 60",
            large,
            None,
            AtLeast(5 * large_error),
        ),
        Comparison(
            "the same at N = 4, less that at N = 60",
            small - large,
            None,
            AtLeast(5 * math.hypot(error, large_error)),
        ),
    ]


@erratum(
    36,
    ORHAN,
    "on the feedforward chain",
    "the chain amplifies its input before it decays",
    "it does for a > 1; for a <= 1 no norm ever grows, and J_tot at a = 1 is H_N",
    "||W^k v|| = a^k for v at the head of the chain, k < N, then 0. At a = 1, J(k) = "
    "1 / (k + 1), whose sum is the harmonic number. The statement is read for every a.",
)
def _e36(rng: Rng) -> Comparisons:
    N = 12
    head = np.eye(N)[0]

    def largest(gain: float) -> float:
        W, v, norms = initialize("chain", (N, N), rng, gain=gain), head, []
        for _ in range(N):
            v = W @ v
            norms.append(float(np.linalg.norm(v)))
        return max(norms)

    harmonic = float(sum(F(1, k) for k in range(1, N + 1)))
    return [
        Comparison("largest ||W^k v||, k >= 1, for a = .9", largest(0.9), AtLeast(1), 0.9, 1e-15),
        Comparison("the same for a = 1", largest(1), None, 1.0),
        Comparison("the same for a = 1.02", largest(1.02), None, 1.02 ** (N - 1), 1e-14),
        Comparison(
            "J_tot at a = 1, N = 12",
            total_memory(initialize("chain", (N, N), rng, gain=1), head),
            None,
            harmonic,
            1e-12,
        ),
    ]


@erratum(
    42,
    ORHAN,
    "first paragraph, in brackets",
    "a product of n random scalars is exponentially larger than the n-th power of one",
    "the n-th power is the larger one in the mean, and for Gaussian w in the median, too",
    "|w|^n and prod |w_i| have the logarithms n log |w| and sum log |w_i|: the biased walk, "
    "which the power is, spreads like n and the true walk like sqrt(n). By Jensen's "
    "inequality E |w|^n >= (E |w|)^n.",
)
def _e42(rng: Rng) -> Comparisons:
    n, runs = 10, 20_000
    logs = np.log(abs(initialize("gaussian", (runs, n), rng, sd=1)))
    power, product = n * logs[:, 0], logs.sum(axis=1)
    return [
        Comparison(
            "median log |w|^10 less median log |w_1 ... w_10|, N(0, 1)",
            float(np.median(power) - np.median(product)),
            AtMost(0),
            AtLeast(1),
        ),
        Comparison(
            "standard deviation of log |w|^10 over that of the product",
            float(power.std() / product.std()),
            None,
            math.sqrt(n),
            0.15,
        ),
    ]


@erratum(
    54,
    ORHAN,
    "on the feedforward chain",
    "the chain maximises the total SNR",
    "its J_tot tends to the greatest value, N, as the gain grows; no finite gain reaches it",
    "J(k) = (1 - r) / (1 - r^(k + 1)) with r = 1 / gain^2, k < N: 1 at k = 0, less at k > 0, "
    "and increasing in the gain. So of any chain, another one has more.",
)
def _e54(rng: Rng) -> Comparisons:
    N = 12
    rows = []
    for gain in (1.02, 1.5, 3.0, 10.0):
        measured = total_memory(initialize("chain", (N, N), rng, gain=gain), np.eye(N)[0])
        derived = sum((1 - gain**-2) / (1 - gain ** (-2 * k)) for k in range(1, N + 1))
        rows.append(
            Comparison(
                f"J_tot of the chain, N = 12, gain {gain}", measured, AtLeast(N), derived, 1e-9
            )
        )
    return rows
