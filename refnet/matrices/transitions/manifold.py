"""Matrices whose parts move on the Stiefel manifold: the orthogonal one, and D o S.

Source: Vorontsov et al., eq. 9 (errata 25, 26, 31); D o S: Manchev & Spratling, IV.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from refnet.batch import Array, Params, Scalar
from refnet.common.arguments import SEED, choice, kind, number, whole
from refnet.common.process import serial_blas
from refnet.maths.numeric import Number
from refnet.maths.threads import LARGE, in_threads
from refnet.matrices import stiefel
from refnet.matrices.slots import Moved


def polar(start: Array) -> Array:
    """The nearest matrix with orthonormal columns (rows, if wide): ``U V'`` of the SVD.

    >>> polar(np.diag([2.0, -0.5])).tolist()
    [[1.0, 0.0], [0.0, -1.0]]
    """
    u, _, vt = np.linalg.svd(start, full_matrices=False)
    return np.asarray(u @ vt)


class Plain:
    """What a transition is unless it says otherwise: square, no manifold, no penalty. What a
    subclass computes runs with one thread of BLAS (``serial_blas``). ``constant``: the parts that
    are not trained, of which the gradient is 0."""

    constant: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        for name in ("init", "matrix", "pull_back", "penalty", "retract", "report"):
            if name in vars(cls):
                setattr(cls, name, serial_blas(vars(cls)[name]))

    def matrix(self, parts: Params) -> tuple[Array, Any]:
        """W and the tape."""
        raise NotImplementedError

    @property
    def manifold(self) -> tuple[str, ...]:
        """No part moves by a retraction."""
        return ()

    @property
    def rates(self) -> Mapping[str, Number]:
        """Every part moves at the optimiser's own rate."""
        return {}

    @property
    def rectangular(self) -> bool:
        """Square matrices only."""
        return False

    @property
    def rational(self) -> bool:
        """W is a rational function of its parts."""
        return True

    @property
    def orthogonalised(self) -> str | None:
        """OINIT and OPEN act on no part of its own."""
        return None

    def penalty(self, parts: Params) -> tuple[Scalar, Params]:
        """Nothing is added to the loss."""
        return 0, {}

    def retract(self, params: Params, grads: Params, names: tuple[str, ...], rate: Number) -> Moved:
        """Nothing lives on a manifold."""
        return Moved({}, {}, ())

    def report(self, parts: Params) -> dict[str, float]:
        """The sign of det W (0 if W is not square), which orthogonal steps can't change."""
        return {"determinant": stiefel.determinant(self.matrix(parts)[0])}


@dataclass(frozen=True)
class Manifold(Plain):
    """A transition with parts on the Stiefel manifold.

    ``step``: cayley, qr, polar or geodesic; ``metric``: canonical or euclidean (see
    refnet.matrices.stiefel).
    """

    step: str = "cayley"
    metric: str = "canonical"

    def __post_init__(self) -> None:
        for what, options in (("step", stiefel.RETRACTIONS), ("metric", stiefel.METRICS)):
            choice(
                f"transition {type(self).__name__.lower()}: {what}", getattr(self, what), options
            )

    @property
    def bases(self) -> tuple[str, ...]:
        """The parts that should be orthogonal, by a constraint or a penalty."""
        return self.manifold

    def retract(self, params: Params, grads: Params, names: tuple[str, ...], rate: Number) -> Moved:
        """One step of the named parts (full names) against their gradients, with the drift
        guard after it. Exact numbers do not drift and are not measured. The parts do not depend
        on each other, and several large ones move at once, each in a thread.

        Checked by: tests/matrices/test_transitions.py::test_retract_descends_and_reports,
        tests/matrices/test_transitions.py::test_parts_move_as_if_alone.
        """
        steps: dict[str, tuple[Array, stiefel.Guarded | None]] = {}

        def move(name: str) -> None:
            M, G = params[name], grads[name]
            wide = M.shape[0] < M.shape[1]
            M = stiefel.step(M.T if wide else M, G.T if wide else G, rate, self.step, self.metric)
            guarded = stiefel.guard(M) if M.dtype != object else None
            M = M if guarded is None else guarded.M
            steps[name] = (M.T if wide else M, guarded)

        # a step is at least four products
        if 4 * sum(params[name].size * min(params[name].shape) for name in names) < LARGE:
            for name in names:
                move(name)
        else:
            in_threads(move, names)
        guards = {name: guarded for name in names if (guarded := steps[name][1]) is not None}
        return Moved(
            {name: steps[name][0] for name in names},
            {name: guarded.defect for name, guarded in guards.items()},
            tuple(name for name, guarded in guards.items() if guarded.repaired),
        )

    def report(self, parts: Params) -> dict[str, float]:
        """The sign of det W, and ``||M'M - I||_F`` of every part M that should be orthogonal."""
        narrow = {
            name: M if M.shape[0] >= M.shape[1] else M.T
            for name, M in parts.items()
            if name in self.bases
        }
        return super().report(parts) | {
            f"defect_{name}": stiefel.defect(M) for name, M in narrow.items()
        }


@dataclass(frozen=True)
class Orthogonal(Manifold):
    """W itself, on the manifold, started at the orthogonal matrix nearest to the start.

    A wide W has orthonormal rows; it moves as its transpose does.
    Source: Vorontsov et al., eq. 9 as corrected (errata 25, 31), for Cayley steps.
    Checked by: tests/matrices/test_transitions.py::test_retract_descends_and_reports.

    >>> Orthogonal().init(np.diag([3.0, 2.0]))["M"].round(9).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    manifold = ("M",)
    rectangular = True

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """M, shaped as W."""
        return {"M": (rows, columns)}

    def init(self, start: Array) -> Params:
        """M, shaped as the start matrix."""
        return {"M": polar(start)}

    def matrix(self, parts: Params) -> tuple[Array, None]:
        """W = M."""
        return parts["M"], None

    def pull_back(self, parts: Params, tape: None, dW: Array) -> Params:
        """dM = dW."""
        return {"M": dW}


DISTANCES = (1,)
"""Sets the stream of D apart from that of a run's start, which has the same seed."""


@dataclass(frozen=True)
class Product(Manifold):
    """``W = D o S``, entry by entry: constant distances D and the sizes S that are learned.

    S starts at the start matrix and moves as other parameters do; OINIT and OPEN act on S alone.
    ``hard``: S starts at the orthogonal matrix nearest to the start instead, and stays
    orthogonal. D is drawn from U(low, high) with its own ``seed``, the same for all matrices of
    one shape; it is kept among the parameters, so that a saved net is complete, and its gradient
    is zero.
    Source: Manchev & Spratling, IV.
    Checked by: tests/matrices/test_transitions.py::test_push_equals_pull.

    >>> doubled = Product(low=2, high=2)
    >>> doubled.matrix(doubled.init(np.eye(2)))[0].tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    constant = ("D",)
    low: float = 0.5
    high: float = 1.5
    seed: int = 0
    hard: bool = False
    bases = ("S",)
    rectangular = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("low", "high"):
            number(f"transition product: {name}", getattr(self, name), "(0, inf)")
        whole("transition product: seed", self.seed, 0, SEED)
        kind("transition product: hard", self.hard, bool, "True or False")
        if self.low > self.high:
            raise ValueError(
                f"transition product: distances are drawn from {self.low} to "
                f"{self.high}; need low <= high"
            )

    @property
    def manifold(self) -> tuple[str, ...]:
        """S moves by a retraction if it is held on the manifold."""
        return ("S",) if self.hard else ()

    @property
    def orthogonalised(self) -> str | None:
        """S, unless it stays orthogonal anyway."""
        return None if self.hard else "S"

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """D and S, shaped as W."""
        return {"D": (rows, columns), "S": (rows, columns)}

    def init(self, start: Array) -> Params:
        """S, and new distances D."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=DISTANCES))
        return {
            "D": rng.uniform(self.low, self.high, start.shape),
            "S": polar(start) if self.hard else start,
        }

    def matrix(self, parts: Params) -> tuple[Array, None]:
        """W = D o S."""
        return np.asanyarray(parts["D"] * parts["S"]), None

    def pull_back(self, parts: Params, tape: None, dW: Array) -> Params:
        """dS = D o dW; D is constant."""
        return {"D": np.zeros_like(dW), "S": np.asanyarray(parts["D"] * dW)}
