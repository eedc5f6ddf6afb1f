"""How far a matrix is from orthogonal, and gradient descent to an orthogonal one: OINIT and OPEN.

The defect is ``||E||_F^2`` with ``E = W W' - I``, or ``E = W' W - I`` for a tall matrix: W W'
of a tall one has rank ``columns`` and stays ``rows - columns`` or more away from I (erratum
12). Source: Manchev & Spratling, II. Checked by: tests/matrices/test_orthogonality.py.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import (
    ARRAYS,
    MATRIX,
    REAL_MATRIX,
    count,
    instance,
    one_of,
    optional,
    real,
    takes,
)
from refnet.maths.kinds import inexact
from refnet.maths.numeric import Number, divided, matmul, nonpositive, sqrt, times

FORMS = ("squared", "unsquared", "mean_square")
"""Those with which OINIT descends."""
PENALTIES = (*FORMS, "double", "spectral")
"""OPEN's."""
_RULES = {"W": MATRIX, "form": one_of(PENALTIES), "side": optional(one_of(("rows", "columns")))}


def _error_matrix(W: Array, side: str | None) -> tuple[Array, bool]:
    """E, and whether it is W' W - I."""
    columns = W.shape[0] > W.shape[1] if side is None else side == "columns"
    E = matmul(W.T, W) if columns else matmul(W, W.T)
    diagonal = np.arange(len(E))
    E[diagonal, diagonal] = E[diagonal, diagonal] - 1
    return E, columns


def _value(E: Array, form: str) -> Array:
    total = np.asanyarray((E * E).sum(), E.dtype)
    if form == "mean_square":
        return divided(total, E.size)
    return total if form == "squared" else sqrt(total)


@takes(**_RULES)
def defect(W: Array, form: str = "squared", side: str | None = None) -> Array:
    """The defect of W (rows, columns), as an array ().

    ``form``: "squared" ``||E||_F^2``; "unsquared" ``||E||_F``; "mean_square", the mean of
    E's squared entries; "double", the squared ones of both sides together; "spectral", Bansal et
    al.'s estimate of ``||E||_2`` from below by two products, ``||E E e|| / ||E e||``, with e the
    unit vector whose column of E is the longest (theirs is random). ``side``: "rows" for
    ``E = W W' - I``, "columns" for ``W' W - I``, None for the smaller of the two. Any number type
    ("unsquared" and "spectral" need one with roots).
    Raises ValueError for an unknown form or side or an empty W.
    Source: Manchev & Spratling, eqs. 16, 29 (erratum 12); Vorontsov et al., eq. 7; Bansal, Chen &
    Wang (2018).

    >>> float(defect(np.diag([2.0, 1.0])))  # ||diag(4, 1) - I||^2
    9.0
    """
    if form in FORMS:
        return _value(_error_matrix(inexact(W), side)[0], form)
    return defect_and_gradient(W, form, side)[0]


@takes(**_RULES)
def defect_and_gradient(
    W: Array, form: str = "squared", side: str | None = None
) -> tuple[Array, Array]:
    """The defect, and its gradient in W.

    ``4 E W`` (rows) or ``4 W E`` (columns) for "squared", divided by E's number of entries
    for "mean_square" and by ``2 ||E||_F`` for "unsquared". The last has no derivative where
    the defect is 0 (it has a cone's tip there); the gradient given is 0, the subgradient
    that leaves an orthogonal W where it is.

    >>> value, gradient = defect_and_gradient(np.diag([2.0, 1.0]))
    >>> float(value), gradient.tolist()
    (9.0, [[24.0, 0.0], [0.0, 0.0]])

    Checked by: tests/matrices/test_orthogonality.py::test_gradient_is_the_tangent.
    """
    W = inexact(W)
    if form == "double":
        (value, gradient), (more, other) = (
            defect_and_gradient(W, "squared", each) for each in ("rows", "columns")
        )
        return np.asanyarray(value + more), np.asanyarray(gradient + other)
    E, columns = _error_matrix(W, side)
    if form == "spectral":
        value, dE = _longest(E)
        dE = np.asanyarray(dE + dE.T)
        return value, matmul(W, dE) if columns else matmul(dE, W)
    value = _value(E, form)
    gradient = 4 * (matmul(W, E) if columns else matmul(E, W))
    if form == "mean_square":
        gradient = divided(gradient, E.size)
    elif form == "unsquared":
        gradient = gradient * 0 if bool(nonpositive(value)) else divided(gradient, 2 * value)
    return value, np.asanyarray(gradient)


def _longest(E: Array) -> tuple[Array, Array]:
    """``||v|| / ||u||`` with u the longest column of a symmetric E and v = E u, and its gradient
    in E; 0 of E = 0, which has none. E is scaled first: the squares of a small one underflow."""
    scale = float(abs(E.real).max(initial=0)) if E.dtype.kind in "fc" else 1.0
    E = divided(E, scale) if scale else E
    place = int((E * E).sum(axis=0).real.argmax())
    u = E[:, place, None]
    v = matmul(E, u)
    under, over = (np.asanyarray((each * each).sum(), E.dtype) for each in (u, v))
    if bool(nonpositive(under)):
        return under, E * 0
    value = sqrt(divided(over, under))
    dv = divided(v, value * under)
    du = matmul(E, dv) - divided(value * u, under)
    dE = matmul(dv, u.T)
    dE[:, place] = dE[:, place] + du[:, 0]
    return times(scale, value), dE


@dataclass(frozen=True)
class Descent:
    """What ``orthogonalize`` did.

    ``W``: the last matrix. ``costs``: the defect at each check, of the start first and of W
    last. ``stopped``: "cost", "gradient", or "steps" if neither criterion was met.
    """

    W: Array
    costs: list[float]
    stopped: str

    @property
    def steps(self) -> int:
        """The number of steps as Manchev & Spratling count them: the check that stops counts as
        one. After it their code makes one more update, of the order of the root of the cost that
        stopped it, and ``orthogonalize`` does not: W is the matrix whose cost was checked."""
        return len(self.costs)

    @property
    def converged(self) -> bool:
        """Whether the cost or the gradient got below its bound."""
        return self.stopped != "steps"


def _refuse_hopeless(W: Array, rate: Number, form: str, name: str) -> None:
    """Raise ValueError for a start from which the descent can't reach an orthogonal matrix.

    A step of rate a on the squared form keeps the singular vectors and maps every singular
    value, s -> s (1 + 4 a (1 - s^2)). With 1 + 4 a = r this is the cubic map r s - 4 a s^3:
    +-1 attracts geometrically if and only if r < 2 (at r = 2 like 1 / sqrt(steps), above it
    repels); beyond s^2 = 1 + 1 / (2 a) |s| grows; 0 stays 0.
    Below that bound all other s end at +-1 (preimages of 0 excepted, which have measure 0).
    """
    where = f"orthogonalize: {name} {W.shape}"
    plain = W.astype(np.float64)
    if not np.isfinite(plain).all():
        entry = tuple(int(i) for i in np.argwhere(~np.isfinite(plain))[0])
        raise ValueError(f"{where}: entry {entry} is {W[entry]}; need finite numbers")
    s = np.linalg.svd(plain, compute_uv=False)
    eps = float(np.finfo(W.dtype if W.dtype.kind == "f" else np.float64).eps)
    if s[-1] <= max(W.shape) * eps * s[0]:
        raise ValueError(
            f"{where} has the singular value {s[-1]:.3g}, 0 to rounding (the largest "
            f"is {s[0]:.3g}); no step changes a singular value of 0: start from "
            "a matrix of full rank, such as a random one"
        )
    if form == "unsquared":
        return
    a = float(rate) / (min(W.shape) ** 2 if form == "mean_square" else 1)
    scale = "" if form == "squared" else f" ({a:.3g} for the sum of squares)"
    if a >= 0.25:
        raise ValueError(
            f"{where}: the rate is {rate}{scale}; from 1/4 on the descent "
            "does not converge, or far too slowly: 1/8 converges fastest"
        )
    if s[0] ** 2 >= 1 + 1 / (2 * a):
        limit = float(rate) / a / (2 * (s[0] ** 2 - 1))
        raise ValueError(
            f"{where} has the singular value {s[0]:.4g}; with the rate {rate}{scale} those from "
            f"sqrt(1 + 1 / (2 rate)) = {(1 + 1 / (2 * a)) ** 0.5:.4g} on grow without bound: "
            f"take a rate below {limit:.3g}, or a smaller start"
        )


@takes(
    W=REAL_MATRIX,
    rate=real("(0, inf)"),
    stop_cost=optional(real("[0, inf]")),
    stop_gradient=optional(real("[0, inf]")),
    max_steps=count(0),
    form=one_of(FORMS),
    name=instance(str, "the matrix's name"),
)
def orthogonalize(
    W: Array,
    rate: Number = 0.1,
    stop_cost: float | None = 1e-6,
    stop_gradient: float | None = None,
    max_steps: int = 100,
    form: str = "squared",
    name: str = "W",
) -> Descent:
    """OINIT: gradient descent on the defect of W until it is (semi-)orthogonal.

    Each step checks, then updates ``W <- W - rate gradient``. Stops at a check when the cost
    is below ``stop_cost``, the gradient's Frobenius norm below ``stop_gradient`` (None: no
    such criterion), or after ``max_steps`` updates, which raises no error: ``Descent.stopped``
    says why the descent ended.

    Any real dtype, kept; W itself is not changed. Raises ValueError before the first step for
    a start that can't get there: a rate or singular value too large, a singular value of 0,
    entries that are not finite (erratum 17). "unsquared" has no such bound on the rate, but its
    steps have constant length, so that it ends at a cost of the order of the rate.
    Source: Manchev & Spratling, eqs. 16-18 (erratum 12).

    >>> descent = orthogonalize(np.random.default_rng(0).normal(0, 0.1, (20, 20)))
    >>> descent.converged, bool(np.allclose(descent.W @ descent.W.T, np.eye(20), atol=1e-3))
    (True, True)

    Checked by: tests/matrices/test_orthogonality.py::test_descent_follows_singular_values.
    """
    _refuse_hopeless(W, rate, form, name)
    least = None if stop_gradient is None else float(stop_gradient)
    costs: list[float] = []
    for updates in range(max_steps + 1):
        value, gradient = defect_and_gradient(W, form)
        costs.append(float(value))
        if stop_cost is not None and costs[-1] < stop_cost:
            return Descent(W, costs, "cost")
        if least is not None and float((gradient * gradient).sum()) < least * least:
            return Descent(W, costs, "gradient")
        if not np.isfinite(costs[-1]):
            raise ValueError(
                f"orthogonalize: {name}: the cost is {costs[-1]} after {updates} "
                f"updates in {W.dtype}; take a smaller rate or start"
            )
        if updates < max_steps:
            W = np.asarray(W - times(rate, gradient))
    return Descent(W, costs, "steps")


@takes(weights=ARRAYS, parallel=instance(bool, "True or False"))
def orthogonalize_params(
    weights: Params, parallel: bool = False, **options: Any
) -> tuple[Params, list[dict[str, Any]]]:
    """OINIT as the first phase of training: ``orthogonalize`` each of a net's matrices by itself.

    One after the other, or all at once in threads, with the same bits. ``options`` are those
    of ``orthogonalize``. Returns the new matrices under the same names, and for each one
    {"matrix", "steps", "stopped", "costs"} as in Descent.
    Raises ValueError, naming the matrix, if one can't converge.
    Source: Manchev & Spratling, II-A ("sequentially or in parallel").

    >>> weights = {"Whh": np.diag([0.5, 1.5]), "Why": np.diag([0.9, 1.1])}
    >>> orthogonal, facts = orthogonalize_params(weights)
    >>> [(fact["matrix"], fact["stopped"]) for fact in facts]
    [('Whh', 'cost'), ('Why', 'cost')]

    Checked by: tests/matrices/test_orthogonality.py::test_phase.
    """

    def descend(name: str) -> Descent:
        return orthogonalize(weights[name], name=name, **options)

    if parallel:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            descents = list(pool.map(descend, weights))
    else:
        descents = [descend(name) for name in weights]
    report = [
        {"matrix": name, "steps": descent.steps, "stopped": descent.stopped, "costs": descent.costs}
        for name, descent in zip(weights, descents)
    ]
    return {name: descent.W for name, descent in zip(weights, descents)}, report


@takes(weights=ARRAYS, strength=real("[0, inf)"), form=one_of(PENALTIES))
def open_penalty(weights: Params, strength: Number, form: str = "squared") -> tuple[Array, Params]:
    """OPEN as a penalty: ``strength`` times the sum of the defects, and its gradients.

    The paper's text has "squared", ``4 lambda (W W' - I) W``, its released recurrent code
    "unsquared"; "double" and "spectral" are Bansal et al.'s double soft orthogonality and spectral
    restricted isometry. Any number type. Returns the value () and gradients under the same names.
    Source: Manchev & Spratling, eqs. 29-31 (errata 12, 18, 19).

    >>> value, gradients = open_penalty({"Whh": np.diag([2.0, 1.0])}, strength=0.5)
    >>> float(value), gradients["Whh"].tolist()
    (4.5, [[12.0, 0.0], [0.0, 0.0]])

    Checked by: tests/matrices/test_orthogonality.py::test_open_penalty_and_update.
    """
    pairs = {name: defect_and_gradient(W, form) for name, W in weights.items()}
    value = sum(times(strength, value) for value, _ in pairs.values())
    return np.asanyarray(value), {name: times(strength, g) for name, (_, g) in pairs.items()}


@takes(W=MATRIX, rate=real("[0, inf)"), strength=real("[0, inf)"), form=one_of(PENALTIES))
def open_update(W: Array, rate: Number, strength: Number, form: str = "squared") -> Array:
    """OPEN as an update: ``W - rate strength gradient``, any number type.

    Followed by an optimiser's step with the loss's gradients at the old weights it is eq. 31.
    With SGD that equals the penalty; other optimisers rescale the penalty's gradient, but not
    this update.
    Source: Manchev & Spratling, eq. 31 (erratum 18).

    >>> open_update(np.diag([2.0, 1.0]), rate=0.125, strength=0.5).tolist()
    [[0.5, 0.0], [0.0, 1.0]]

    Checked by: tests/matrices/test_orthogonality.py::test_open_penalty_and_update.
    """
    gradient = times(strength, defect_and_gradient(W, form)[1])
    return np.asarray(W - times(rate, gradient))
