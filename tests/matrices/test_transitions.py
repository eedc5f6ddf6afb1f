"""Transitions: pull-backs proved, starts kept, constraints held, and bugs rejected."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from refnet.batch import Batch
from refnet.cells import CELLS
from refnet.maths.linalg import eye
from refnet.maths.numeric import matmul
from refnet.matrices.initializers import initialize
from refnet.matrices.slots import penalty
from refnet.matrices.transitions import TRANSITIONS, transition
from refnet.nets.gradients import jvp, loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.prove.checks import complex_step_error, push_minus_pull
from support.arguments import refused
from support.oracles import dot, gap, planted
from support.strategies import arrays

CONSTANT = ("base", "D")
"""Parts that are not trained: their gradient is declared zero."""
PAIRED = ("schur", "urnn", "unitary")
"""Those whose matrices have an even number of rows."""
EPS = np.finfo(float).eps
MADE = dict.fromkeys(TRANSITIONS, {}) | {
    "product": {"hard": True},
    "svd with margin": {"margin": 0.5},
    "svd at margin 0": {"margin": 0},
}
"""Every transition with its default options, and some with others."""


def tangents(at, rng):
    """A direction in which no constant moves."""
    return {
        part: rng.normal(size=value.shape) * (part.split(".")[-1] not in CONSTANT)
        for part, value in at.items()
    }


def make(name, **options):
    return transition(name.split()[0], **{**MADE.get(name, {}), **options})


def start(name, shape, seed=0):
    """A start that the transition can represent."""
    rng = np.random.default_rng(seed)
    Q = initialize("orthogonal", shape, rng)
    if name == "svd with margin":
        return Q + 0.1 * initialize("orthogonal", shape, rng)
    if name in ("svd", "schur"):
        return rng.normal(size=shape)
    if name == "unitary":  # a real matrix of complex numbers
        return make(name).matrix(make(name).init(Q))[0]
    return Q


def shapes(name):
    return (
        [(4, 4), (5, 3), (2, 4), (1, 1)]
        if make(name).rectangular
        else ([(4, 4), (2, 2)] if name in PAIRED else [(4, 4), (5, 5), (1, 1)])
    )


def wiggled(matrix, name, shape, seed=1):
    """Parts away from any special point, as training finds them."""
    rng = np.random.default_rng(seed)
    start_parts = matrix.init(start(name, shape, seed))
    return {
        part: value if part in CONSTANT else value + 0.3 * rng.normal(size=value.shape)
        for part, value in start_parts.items()
    }


@st.composite
def rational_cases(draw, name):
    """Any rational parts at all; constants with a zero tangent."""
    matrix = make(name)
    shape = draw(st.sampled_from([(2, 2), (3, 2), (1, 2)] if matrix.rectangular else [(2, 2)]))
    at = {part: draw(arrays(size, True)) for part, size in matrix.shapes(*shape).items()}
    if name == "householder":
        assume((at["V"] != 0).any(axis=1).all())
    direction = {
        part: draw(arrays(value.shape, True)) * (part not in CONSTANT) for part, value in at.items()
    }
    return matrix, at, direction, draw(arrays(shape, True))


# its approximant is rational, and pulled back as such
RATIONAL = [name for name in MADE if make(name).rational or name == "expm"]


@pytest.mark.parametrize("name", RATIONAL)
@given(data=st.data())
def test_push_equals_pull(name, data):
    assert push_minus_pull(*data.draw(rational_cases(name))) == 0


@pytest.mark.parametrize("name", MADE)
def test_complex_step(name):
    """In floats: within 1000 eps of the terms' sum (some hundred operations each; systems with
    a condition number of about ten). A wrong factor of 1 + 1e-6 is 1e9 eps."""
    matrix = make(name)
    for shape in shapes(name):
        rng = np.random.default_rng(5)
        at = wiggled(matrix, name, shape)
        cotangent = rng.normal(size=shape)
        assert complex_step_error(matrix, at, tangents(at, rng), cotangent) <= 1000


BUGS = {
    "orthogonal": ('{"M": dW}', '{"M": dW.T}'),
    "product": ('parts["D"] * dW)', 'parts["S"] * dW)'),
    "svd": ("matmul(dW.T, scaled)", 'matmul(dW.T, parts["U"])'),
    "svd at margin 0": ("matmul(dW.T, scaled)", "matmul(dW, scaled)"),
    "expm": ("_skew_pull(dX)", "_skew_pull(dX.T)"),
    "cayley": ('_turn_pull(dW, parts["base"])', '_turn_pull(dW, parts["base"]).T'),
    "scaled_cayley": ('dW * parts["D"]', 'dW * parts["D"][:, None]'),
    "householder": ("solve(S.T, matmul(V, G))", "solve(S, matmul(V, G))"),
    "unitary": ("_folded(dW)", "_folded(dW.T)"),
}


@pytest.mark.parametrize("name", [*BUGS, "schur", "svd with margin", "urnn"])
def test_oracles_reject(name):
    matrix = make(name)
    rng = np.random.default_rng(6)
    at = wiggled(matrix, name, (4, 4))
    direction, cotangent = tangents(at, rng), rng.normal(size=(4, 4))
    if name in BUGS:
        wrong = planted(type(matrix).pull_back, *BUGS[name])
        if name != "expm":  # numbers of many digits make that one slow
            exact = np.vectorize(lambda v: Fraction(round(64 * v), 64), otypes=[object])
            at_, v = ({part: exact(value) for part, value in d.items()} for d in (at, direction))
            w = exact(cotangent)
            assert push_minus_pull(matrix, at_, v, w) == 0
            assert push_minus_pull(matrix, at_, v, w, wrong) != 0
    else:

        def wrong(self, parts, tape, dW):
            grads = type(matrix).pull_back(self, parts, tape, dW)
            part = next(part for part in ("p", "a", "theta") if part in grads)
            return {**grads, part: grads[part] * (1 + 1e-6)}

    assert complex_step_error(matrix, at, direction, cotangent) <= 1000
    assert complex_step_error(matrix, at, direction, cotangent, wrong) > 1000


@pytest.mark.parametrize("name", [name for name in MADE if name != "urnn"])
def test_init_keeps_the_start(name):
    """Also with det -1, which the report tells: within 100 n eps, the rounding of one SVD or
    elimination and the way back."""
    matrix = make(name)
    for shape in shapes(name):
        for seed in range(4):
            W = start(name, shape, seed)
            at = matrix.init(W)
            computed, _ = matrix.matrix(at)
            if name == "product":
                computed = computed / at["D"]
            assert abs(computed - W).max() <= 100 * max(shape) * EPS * abs(W).max()
            if shape[0] == shape[1] and name != "product":
                assert matrix.report(at)["determinant"] == np.sign(np.linalg.det(W))


@pytest.mark.parametrize("name", ["expm", "cayley", "scaled_cayley", "householder", "urnn"])
def test_parametrisations_stay_orthogonal(name):
    matrix = make(name)
    for shape in shapes(name):
        W, _ = matrix.matrix(wiggled(matrix, name, shape))
        small = W.T @ W if shape[0] >= shape[1] else W @ W.T
        assert abs(small - np.eye(min(shape))).max() <= 100 * EPS


@pytest.mark.parametrize("name", ["cayley", "scaled_cayley", "householder"])
@given(data=st.data())
def test_rational_parametrisations_are_exactly_orthogonal(name, data):
    matrix = make(name)
    n = data.draw(st.integers(1, 3))
    signs = np.array([Fraction(data.draw(st.sampled_from([-1, 1]))) for _ in range(n)])
    if name == "householder":
        at = {"V": data.draw(arrays((max(n - 1, 1), n), True)), "D": signs}
        assume((at["V"] != 0).any(axis=1).all())
    else:
        at = {"A": data.draw(arrays((n, n), True)), "D": signs, "base": eye(n, object)}
    W, _ = matrix.matrix(at)
    assert (matmul(W.T, W) == eye(n, object)).all()


def test_scaled_cayley_reaches_what_the_cayley_map_cannot():
    """-I has only the eigenvalue -1; with D = -I its skew matrix is zero."""
    at = make("scaled_cayley").init(-np.eye(3))
    assert (at["D"] == -1).all() and (at["A"] == 0).all()
    for seed in range(20):
        Q = start("scaled_cayley", (6, 6), seed)
        assert np.prod(make("scaled_cayley").init(Q)["D"]) == round(np.linalg.det(Q))


@pytest.mark.parametrize("seed", range(6))
def test_schur_starts(seed):
    """Matrices with only real eigenvalues, with reflections, triangular ones, a chain: all are
    kept; and without T the matrix is normal, with eigenvalues g exp(+-i a)."""
    rng = np.random.default_rng(seed)
    matrix = make("schur")
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    for W in (
        basis * [1, 1, 1, -1, 1, 1],
        np.triu(rng.normal(size=(6, 6))),
        basis @ np.diag([1, -1, 1, -1, 1, 1]) @ basis.T,
        np.eye(6),
        initialize("chain", (6, 6), rng),
    ):
        at = matrix.init(W)
        assert abs(matrix.matrix(at)[0] - W).max() <= 1000 * EPS * (1 + abs(W).max())
    W, _ = matrix.matrix({**at, "T": 0 * at["T"], "g": at["g"] + 1, "a": at["a"] + 0.3})
    assert abs(W @ W.T - W.T @ W).max() <= 100 * EPS
    assert np.allclose(
        sorted(abs(np.linalg.eigvals(W))), sorted(np.repeat(at["g"] + 1, 2)), rtol=1e-12
    )  # normal: eigenvalues are as well conditioned as they can be


@pytest.mark.parametrize(
    "name,options",
    [
        ("svd", {"prior": 0.25}),
        ("svd with margin", {"prior": 0.25, "soft": 0.5}),
        ("svd at margin 0", {"soft": 2}),
        ("schur", {"modulus_penalty": 0.5}),
    ],
)
def test_penalties(name, options):
    """Their values by definition, their gradients by complex step."""
    matrix = make(name, **options)
    at = {f"Whh.{part}": value for part, value in wiggled(matrix, name, (4, 4)).items()}
    value, grads = penalty(matrix, at, ("Whh",))
    parts = {part.removeprefix("Whh."): array for part, array in at.items()}
    expected = 0
    if "prior" in options:
        expected += options["prior"] * ((matrix.spectrum(parts) - 1) ** 2).sum()
    if "soft" in options:
        assert matrix.manifold == () and matrix.report(parts)["defect_U"] > 0
        expected += options["soft"] * sum(
            ((parts[part].T @ parts[part] - np.eye(4)) ** 2).sum() for part in "UV"
        )
    if "modulus_penalty" in options:
        expected += 0.5 * ((parts["g"] - 1) ** 2).sum()
    assert abs(value - expected) <= 100 * EPS * (1 + expected)
    rng = np.random.default_rng(8)
    v = {part: rng.normal(size=gradient.shape) for part, gradient in grads.items()}
    error = gap(
        lambda lifted: np.asarray(penalty(matrix, {**at, **lifted}, ("Whh",))[0], object),
        {part: at[part] for part in grads},
        v,
        1,
        grads,
    )
    assert abs(error) <= 1000 * EPS * sum((abs(grads[part]) * abs(v[part])).sum() for part in v)
    assert penalty(make(name), at, ("Whh",)) == (0, {})


@pytest.mark.parametrize("step", ["cayley", "qr", "polar", "geodesic"])
@pytest.mark.parametrize(
    "name,shape",
    [
        ("schur", (6, 6)),
        ("unitary", (6, 6)),
        *(
            (name, shape)
            for name in ("orthogonal", "product", "svd with margin")
            for shape in ((6, 6), (6, 2), (3, 6))
        ),
    ],
)
def test_retract_descends_and_reports(step, name, shape):
    """The parts move by their full names, down the loss <G, W>, and their defects are reported."""
    matrix = make(name, step=step)
    at = matrix.init(start(name, shape))
    params = {f"W1.{part}": value.astype(np.float32) for part, value in at.items()}
    G = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    parts = {part: params[f"W1.{part}"] for part in at}
    grads = {
        f"W1.{part}": g for part, g in matrix.pull_back(parts, matrix.matrix(parts)[1], G).items()
    }
    names = tuple(f"W1.{part}" for part in matrix.manifold)
    landed = matrix.retract(params, grads, names, 1e-3)
    assert set(landed.params) == set(landed.defects) == set(names) and landed.repaired == ()
    after = {**parts, **{part.removeprefix("W1."): v for part, v in landed.params.items()}}
    assert (matrix.matrix(after)[0] * G).sum() < (matrix.matrix(parts)[0] * G).sum()
    for name_, value in landed.params.items():
        assert value.shape == params[name_].shape and value.dtype == np.float32
        assert landed.defects[name_] < 1e-5
    drifted = {name_: value * np.float32(1.0001) for name_, value in params.items()}
    again = matrix.retract(drifted, grads, names, 1e-3)
    if step in ("qr", "polar"):  # which orthonormalise every time
        assert again.repaired == () and max(again.defects.values()) < 1e-5
    else:
        assert again.repaired == names and min(again.defects.values()) > 1e-4


def test_parts_move_as_if_alone():
    """Eight at once have the bits of one after the other, in their order, and an error of one of
    them comes out."""
    rng, matrix = np.random.default_rng(5), make("orthogonal")
    params = {f"W{n}.M": matrix.init(rng.normal(size=(40, 40)))["M"] for n in range(8)}
    grads = {name: rng.normal(size=(40, 40)) for name in params}
    together = matrix.retract(params, grads, tuple(params), 1e-2)
    assert list(together.params) == list(params)
    for name in params:
        alone = matrix.retract(params, grads, (name,), 1e-2)
        assert np.array_equal(together.params[name], alone.params[name])
        assert together.defects[name] == alone.defects[name]
    grads["W5.M"][0, 0] = np.nan
    with np.errstate(invalid="ignore"), refused("stiefel.guard"):
        matrix.retract(params, grads, tuple(params), 1e-2)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("cell", CELLS)
def test_every_transition_in_every_cell(name, cell):
    """The whole net's gradients against its own complex step, each gate with its matrix."""
    net = RecurrentNet(2, 4, 3, cell=cell, transition=make(name))
    rng = np.random.default_rng(9)
    params = net.init(rng, np.float64, recurrent=lambda shape, rng: start(name, shape, 2))
    batch = Batch(rng.normal(size=(3, 2, 2)), np.array([0, 2]))
    grads = loss_and_gradients(net, params, batch).gradients
    direction = tangents(params, rng)
    _, pushed = jvp(net, params, batch, direction)
    terms = {part: grads[part] * direction[part] for part in params}
    size = sum(abs(term).sum() for term in terms.values())
    # gradients are sums of some hundred rounded operations each; entries of size about 1
    assert abs(pushed - dot(grads, direction)) <= 5000 * EPS * size
    for part, term in terms.items():
        assert (term != 0).any() or part.split(".")[-1] in CONSTANT, part
    assert net.matrices(params)[0]["Whh"].shape == (4 * len(net.gates), 4)


def test_registry():
    assert transition("dense") is None
    for name, options, message in (
        ("complex", {}, "'complex' is unknown; choose one of dense, orthogonal"),
        ("dense", {"margin": 1}, "takes no options"),
        ("svd", {"edge": 1}, "'edge' is unknown; its options are step, metric, margin"),
        ("cayley", {"edge": 1}, "its options are none"),
        ("svd", {"spectrum_rate": "x"}, "choose one of plain, printed, margin_free"),
        ("product", {"low": 2}, "need low <= high"),
        ("orthogonal", {"step": "x"}, "choose one of cayley, qr, polar, geodesic"),
        ("orthogonal", {"metric": "x"}, "choose one of canonical, euclidean"),
    ):
        with refused(message):
            transition(name, **options)
    with refused("need a square matrix of even size"):
        make("schur").init(np.eye(3))


@pytest.mark.parametrize("seed", range(3))
def test_distances_are_independent_of_a_start_from_the_same_seed(seed):
    from refnet.training.experiment import build
    from refnet.training.protocols import preset

    for net in ({"cell": "rnn"}, {"cell": "gru"}):
        e = build(
            preset(
                "temporal-order",
                length=20,
                hidden=60,
                seed=seed,
                **net,
                transition=f"product:seed={seed}",
            )
        )
        parts = [value for name, value in e.start()[0].items() if name.startswith("Whh")]
        D = [value.ravel() for value in parts if value.min() > 0]
        S = [value.ravel() for value in parts if value.min() < 0]
        assert len(D) == len(S) > 0
        # of 3600 independent pairs the correlation has the standard deviation 1/60
        assert max(abs(np.corrcoef(d, s)[0, 1]) for d in D for s in S) < 0.1
