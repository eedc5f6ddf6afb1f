"""``W = U diag(s) V'`` with the singular values within a margin around 1.

Source: Vorontsov et al., eqs. 8, 10, 11 (errata 24, 27, 28), 3.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from refnet.batch import Array, Params, Scalar
from refnet.common.arguments import choice, number
from refnet.maths.numeric import Number, matmul, nonpositive, sigmoid, times
from refnet.matrices.orthogonality import open_penalty
from refnet.matrices.transitions.manifold import Manifold

RATES = ("plain", "printed", "margin_free")
NEGATIVE = ("keep", "relu")


@dataclass(frozen=True)
class SVD(Manifold):
    """Orthogonal bases U (N, K) and V (M, K), K = min(N, M), and a spectrum s (K,).

    ``margin`` m: with 0 < m < inf there is a part p, and ``s = 2m (sigmoid(p) - 1/2) + 1``, in
    the *open* interval (1 - m, 1 + m). With m above 1 an s may be 0 or negative; the singular
    value is then -s (erratum 27; ``report`` counts the negative ones). With m = 0, s stays 1 and
    has no part. With "none" the part is s itself, without bounds.

    ``spectrum_rate``, the factor on the optimiser's rate for p: "plain" 1; "printed" 1 / 2m, as
    in the paper, with which SGD's step in s still carries 2m (erratum 28); "margin_free"
    1 / (2m)^2, with which SGD's step in s, ``-rate sigmoid'(p)^2 dL/ds``, is free of m. An
    optimiser that normalises gradients, such as RMSprop, moves p by an amount that does not
    depend on m while ``|dL/dp| = 2m sigmoid'(p) |dL/ds|`` is well above the root of its eps; with
    it, "printed" then makes the step in s free of m. Far below that root it is SGD at the rate
    ``rate / sqrt(eps)``. ``spectrum_factor`` multiplies
    the factor: the released code of Vorontsov et al. has a rate of its own for the spectrum, 1e-4
    where all else has 1e-3.

    ``negative``, what becomes of an s below 0, which a margin above 1 and "none" allow: "keep" it,
    or "relu", s = max(s, 0), as in the released code; its gradient is then 0.

    ``prior``: strength of the Gaussian prior, which adds ``prior sum (s - 1)^2`` to the loss.
    ``soft``: if above 0, the bases do not move on the manifold but as other parameters do, and
    ``soft (||U'U - I||_F^2 + ||V'V - I||_F^2)`` is added to the loss. (For a penalty on W itself
    see orthogonality.open_penalty.) ``step``, ``metric``: see Manifold.
    Source: Vorontsov et al., eqs. 8-11 as corrected (errata 24, 27, 28), and 3.2 for the prior.
    Checked by: tests/matrices/test_transitions.py::test_push_equals_pull,
    tests/matrices/test_svd.py.

    >>> parts = {"U": np.eye(2), "V": np.eye(2), "s": np.array([2.0, 1.0])}
    >>> SVD().matrix(parts)[0].tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """

    margin: Number | str = "none"
    spectrum_rate: str = "plain"
    spectrum_factor: Number = 1
    negative: str = "keep"
    prior: Number = 0
    soft: Number = 0

    bases = ("U", "V")
    rectangular = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.margin, str):
            if self.margin != "none":
                raise ValueError(
                    f"transition svd: margin is {self.margin!r}; need a number in [0, inf), or none"
                )
        else:
            number("transition svd: margin", self.margin)
        choice("transition svd: spectrum_rate", self.spectrum_rate, RATES)
        choice("transition svd: negative", self.negative, NEGATIVE)
        for name in ("prior", "soft", "spectrum_factor"):
            number(f"transition svd: {name}", getattr(self, name))

    @property
    def manifold(self) -> tuple[str, ...]:
        """The bases, unless they are softly orthogonal."""
        return () if self.soft else self.bases

    @property
    def rates(self) -> Mapping[str, Number]:
        """The factor on the rate of p or s."""
        part = "s" if self._width is None else "p" if self._width else None
        width = self._width or Fraction(1)
        factor = Fraction(self.spectrum_factor) / width ** RATES.index(self.spectrum_rate)
        return {} if part is None or factor == 1 else {part: factor}

    @property
    def rational(self) -> bool:
        """Unless a margin's sigmoid makes the spectrum."""
        return not self._width

    @property
    def _width(self) -> Fraction | None:
        """2m, exactly; None without a margin."""
        return None if isinstance(self.margin, str) else 2 * Fraction(self.margin)

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """U (rows, K), V (columns, K) and the spectrum's part (K,), if it has one."""
        K = min(rows, columns)
        spectrum = {"s": (K,)} if self._width is None else {"p": (K,)} if self._width else {}
        return {"U": (rows, K), "V": (columns, K), **spectrum}

    def init(self, start: Array) -> Params:
        """The start's own singular value decomposition, its singular values kept.

        Raises ValueError if one of them lies outside the margin: nothing is clipped.
        """
        u, s, vt = np.linalg.svd(start, full_matrices=False)
        bases = {"U": u, "V": np.ascontiguousarray(vt.T)}
        if self._width is None:
            return {**bases, "s": s}
        slack = 64 * max(start.shape) * np.finfo(np.float64).eps  # an SVD's own rounding
        m = float(self._width) / 2
        inside = abs(s - 1) <= slack if m == 0 else abs(s - 1) < m
        if not inside.all():
            raise ValueError(
                f"transition svd: the start {start.shape} has singular values from {s[-1]:.6g} to "
                f"{s[0]:.6g}; margin {self.margin} allows {'1' if m == 0 else 'those between'} "
                + (f"{1 - m:.6g} and {1 + m:.6g}" if m else "alone")
                + ". Start from an orthogonal matrix, or take a larger margin or none"
            )
        if m == 0:
            return bases
        offset = np.where(abs(s - 1) <= slack, 0, (s - 1) / m)  # 2 sigmoid(p) - 1 = tanh(p / 2)
        return {**bases, "p": 2 * np.arctanh(offset)}

    def spectrum(self, parts: Params) -> Array:
        """s (K,)."""
        s = self._uncut(parts)
        return np.where(nonpositive(s), s * 0, s) if self._cut else s

    def _uncut(self, parts: Params) -> Array:
        """s before negative entries are replaced."""
        if self._width is None:
            return parts["s"]
        if not self._width:
            return np.ones_like(parts["U"][0])
        return np.asanyarray(1 + times(self._width / 2, 2 * sigmoid(parts["p"]) - 1))

    @property
    def _cut(self) -> bool:
        """Whether an s may be below 0 and is then replaced by 0."""
        return self.negative == "relu" and (self._width is None or self._width > 2)

    def matrix(self, parts: Params) -> tuple[Array, tuple[Array, Array]]:
        """``W = (U s) V'``, and s and U s."""
        s = self.spectrum(parts)
        scaled = np.asanyarray(parts["U"] * s)
        return matmul(scaled, parts["V"].T), (s, scaled)

    def pull_back(self, parts: Params, tape: tuple[Array, Array], dW: Array) -> Params:
        """``dU = dW V s``, ``dV = dW' U s``, ``ds_k = u_k' dW v_k`` and
        ``dp = 2m sigmoid'(p) ds`` (eq. 11)."""
        s, scaled = tape
        through = matmul(dW, parts["V"])
        grads = {"U": np.asanyarray(through * s), "V": matmul(dW.T, scaled)}
        ds = np.asanyarray((parts["U"] * through).sum(axis=0))
        if self._cut:
            ds = np.where(nonpositive(s), ds * 0, ds)
        return grads | self._pull_spectrum(parts, ds)

    def _pull_spectrum(self, parts: Params, ds: Array) -> Params:
        if self._width == 0:
            return {}
        if self._width is None:
            return {"s": ds}
        p = parts["p"]
        # sigmoid' = s(p) s(-p): with 1 - s(p) it would be 0 from p = 37 on, but not below -37
        return {"p": times(self._width, ds * sigmoid(p) * sigmoid(-p))}

    def penalty(self, parts: Params) -> tuple[Scalar, Params]:
        """The Gaussian prior on s and the soft penalty on the bases, where there are any. With
        ``negative="relu"`` the prior is on s before it is cut, as in the released code: it draws
        a negative one back to 1."""
        value: Scalar = 0
        grads: Params = {}
        if self.prior:
            off = self._uncut(parts) - 1
            value = times(self.prior, np.asanyarray((off * off).sum(), off.dtype))[()]
            grads |= self._pull_spectrum(parts, times(2 * self.prior, off))
        if self.soft:
            soft, slopes = open_penalty({name: parts[name] for name in self.bases}, self.soft)
            value, grads = value + soft[()], grads | slopes
        return value, grads

    def report(self, parts: Params) -> dict[str, float]:
        """Beside Manifold's: the spectrum's extremes, mean and standard deviation, and how many
        of its entries are negative."""
        s = self.spectrum(parts)
        return super().report(parts) | {
            "s_min": float(s.min()),
            "s_mean": float(s.mean()),
            "s_max": float(s.max()),
            "s_sd": float(s.std()),
            "s_negative": int((s < 0).sum()),
        }
