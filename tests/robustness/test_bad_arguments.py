"""Every public function, and every kind of bad argument: one clear line, or a result."""

import inspect
import warnings
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import refnet
from refnet.matrices.initializers import INITIALIZERS
from refnet.nets.recurrent import RecurrentNet
from support.arguments import NAMES, B, C, D, H, T, W, problem, rng, said_well
from support.public import names_of

ROOMS = (
    "analysis analysis.flow analysis.geometry analysis.memory analysis.orthogonalization "
    "analysis.powers analysis.spectra analysis.variance exact check tasks "
    "matrices.initializers matrices.orthogonality matrices.transitions maths.activations "
    "nets.curvature nets.gradients nets.regularizers nets.states training.clipping "
    "training.optimizers training.penalties"
).split()
"""The modules whose names are public; the functions in all others get arguments from these."""


@cache
def public_functions():
    """Every function with a public name, by that name; a name has one function."""
    functions = {}
    for module in (refnet, *(import_module(f"refnet.{room}") for room in ROOMS)):
        for name in names_of(module):
            value = getattr(module, name)
            if inspect.isroutine(value):
                assert functions.setdefault(name, value) is value, name
    return functions


NET = RecurrentNet(D, H, C)
GIVEN = {
    "W": W,
    "array": W,
    "direction": {},
    "form": "squared",
    "grads": {"W": W},
    "limit": 1,
    "rate": 0.1,
    "shape": (3, 2),
    "strength": 1,
    "v": W[0],
    "weights": {"W": W},
    "widths": (3, 2),
    **dict.fromkeys(("N", "m", "n", "points", "runs"), 2),
    **dict.fromkeys(("delays", "steps"), 3),
    **dict.fromkeys(("eigenvalues", "margins", "p", "rates", "z"), W[0]),
}
"""Good arguments by the name of the parameter, for those without a default."""
GOOD = {
    "initialize": {"name": "gaussian"},
    "activation": {"name": "prelu", "start": 1},
    "optimizer": {"name": "rmsprop", "form": "torch"},
    "transition": {"name": "svd", "margin": 0.1},
    "make_task": {"name": "adding", "length": 20},
    "options": {"name": "copy"},
    "loss_and_gradients": {"divisor": 3},
    "lift": {"kind": "fraction"},
    "certify": {"radius": 1e-9, "bits": 64, "max_bits": 128, "max_seconds": 5},
    "noise_covariance": {"W": W / 4, "noise": 2, "horizon": 3},
    "fisher_memory": {"W": W / 4, "horizon": 3},
    "below_one": {"W": W},
    "total_memory": {"W": W / 4},
    "chain_memory": {"gain": 1.1},
    "normal_memory": {"eigenvalues": W[0] / 4, "weights": W[0]},
    "peak_order": {"h": np.ones((2, 1, 3)), "widest": 1},
    "defect_moments": {"moments": (1, 3, 15, 105)},
    "orthogonalization_experiment": {"distribution": "gaussian", "runs": 1, "size": 2},
    "defect_over_steps": {"dtype": "float32"},
    "predicted_variances": {"weight_variances": W[0, :1]},
    "simulated_variances": {"weights": "he", "runs": 2},
    "numerical_range": {"angles": 3},
    "lyapunov_spectrum": {"blocks": 2},
    "curvature_matrix": {"names": ["by"]},
    **dict.fromkeys(
        "basin clip_by_norm clip_by_value defect defect_and_gradient descents fibonacci fvp "
        "gnvp gradient_norms henrici hvp jacobian_spectra jvp l1_penalty lyapunov_exponents "
        "margin_steps norm_stabilizer open_penalty open_update orthogonalize "
        "orthogonalize_params per_example_gradients "
        "power_norms power_radii pseudospectrum retraction_errors schur_form signal_to_noise "
        "singular_values spectral_radius state_gradients state_jacobians step_bounds "
        "step_jacobians vanishing_gradients weight_decay".split(),
        {},
    ),
}
"""Every public function, with further good arguments, or others than those of GIVEN."""
UNCHECKED = {"inputs", "penalty", "options", "chosen", "progress", "limits"}


def parameters(name):
    return inspect.signature(public_functions()[name]).parameters


def arguments(name):
    """Good arguments of a function; what is bad is derived from its rules and below."""
    params, batch = problem(NET)
    given = GIVEN | {"net": NET, "params": params, "batch": batch, "x": batch.x, "rng": rng()}
    required = (key for key, entry in parameters(name).items() if entry.default is entry.empty)
    return {key: given[key] for key in required if key in given} | GOOD[name]


ELSEWHERE = {
    "settle": "takes no arguments",
    "train": "a Config checks its settings: tests/training/test_config.py",
    "save": "tests/training/test_saved_nets.py",
    "load": "a folder: tests/training/test_loaded_runs.py",
    "resume": "a Config checks its settings: tests/training/test_config.py",
    "tangent": "takes a function; its direction: test_directions_are_checked",
    "clipped": "a net checks its clip_forward: test_fields_of_a_net",
    "compare": "a verdict even on nonsense: tests/check/test_compare.py",
    "judge": "takes a function: tests/check/test_judge_calls.py",
    "tolerances": "takes a function: tests/check/test_tolerance.py",
    "assert_gradients": "judge's arguments: tests/check/test_judge_calls.py",
    "certify_function": "takes a function: tests/exact/test_certify_function.py",
    "stop": "gives back what it does not know",
    "square": "what the others call",
    "scored": "what the others call",
    "with_final": "what the others call",
    **dict.fromkeys(
        ("gaussian_moments", "uniform_moments", "singular_value_map"),
        "arithmetic on any number type, symbols too",
    ),
    **dict.fromkeys(INITIALIZERS, "what initialize calls after its checks"),
}

WRONG = {
    "name": NAMES,
    "shape": ((2,), (2, 0), (2, 2.5), "ab", None, 3),
    "rng": (None, 0, "rng"),
    "margin": (None, True, "wide", -1, float("nan")),
    "alpha": ("x", True, float("nan")),
    "length": (0, 2.5, "x", None),
    "params": (None, {}, [1], {"Whh": 1}),
    "x": (None, [1.0], np.ones((T, B)), np.ones((T, B, D), str)),
    "direction": (None, {"nothing": W}, {"by": np.ones((1, C))}, [1]),
    "array": (np.array(["a"]), "a", None, np.array([1j])),
    "kind": ("float", 5),
    "weights": ("no such name", 5, None),
    "widths": (None, 5, (3,), (3, 2.5), (3, 0), "ab", [3, None]),
    "activation": ("rellu", 5, None, np.tanh, "leaky_relu:beta=.1"),
}
"""Bad values by the name of the parameter, for those without a rule."""


def wrong_values(name, parameter):
    rules = getattr(public_functions()[name], "rules", {})
    return rules[parameter].wrong if parameter in rules else WRONG.get(parameter, ())


def bad_arguments():
    for name in GOOD:
        for parameter in {**arguments(name), **parameters(name)}:
            for index in range(len(wrong_values(name, parameter))):
                yield name, parameter, index


def test_every_public_function_has_an_entry():
    assert {*GOOD, *ELSEWHERE} == set(public_functions())
    for name in GOOD:
        missing = {key for key in parameters(name) if not wrong_values(name, key)} - UNCHECKED
        assert not missing, f"{name} says nothing of {missing}"


def arrays_in(value):
    """All numbers in a result but the time it took, as arrays, however it holds them."""
    if isinstance(value, dict):
        value = list(value.values())
    elif is_dataclass(value):
        value = [getattr(value, field.name) for field in fields(value) if field.name != "seconds"]
    if isinstance(value, (list, tuple)):
        return [array for part in value for array in arrays_in(part)]
    return [np.asarray(value)] if isinstance(value, (np.ndarray, np.generic, int, float)) else []


@pytest.mark.parametrize("name", sorted(GOOD))
def test_good_arguments_give_finite_numbers_and_the_same_again(name):
    if name == "certify":
        pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    result, again = (public_functions()[name](**arguments(name)) for _ in range(2))
    assert result is not None and type(result) is type(again)
    for a, b in zip(arrays_in(result), arrays_in(again), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.dtype == object or np.isfinite(a).all() and a.tobytes() == b.tobytes()


def garbage():
    return st.one_of(
        st.none(),
        st.text(max_size=5),
        st.floats(),
        st.integers(),
        st.booleans(),
        st.complex_numbers(),
        st.binary(max_size=3),
        st.lists(st.floats(), max_size=3),
        st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
        st.builds(object),
        hnp.arrays(
            st.sampled_from([np.float32, np.float64, np.int8, complex, bool, "U1"]),
            hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        ),
    )


@pytest.mark.parametrize("name, parameter, index", list(bad_arguments()))
def test_a_bad_argument_is_named(name, parameter, index):
    value = wrong_values(name, parameter)[index]
    with pytest.raises((ValueError, TypeError)) as raised:
        public_functions()[name](**{**arguments(name), parameter: value})
    said_well(raised.value)


@given(st.data(), st.sampled_from(sorted(set(GOOD) - {"certify"})))
@hypothesis.settings(max_examples=800)
def test_garbage_gives_a_result_or_a_documented_error(data, name):
    """Any value for any parameter: only documented exceptions, each in one line."""
    given = arguments(name)
    parameter = data.draw(st.sampled_from(sorted(given)))
    value = data.draw(garbage())
    if isinstance(value, int):
        value = min(value, 3)  # a large one is right, and slow
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            public_functions()[name](**{**given, parameter: value})
        except Exception as error:
            said_well(error)
