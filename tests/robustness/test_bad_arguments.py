"""Every public function, and every kind of bad argument: one clear line, or a result."""

import inspect
import warnings
from dataclasses import fields, is_dataclass
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

ROOMS = (
    "analysis",
    "analysis.flow",
    "analysis.geometry",
    "analysis.memory",
    "analysis.orthogonalization",
    "analysis.powers",
    "analysis.spectra",
    "analysis.variance",
    "exact",
    "check",
    "tasks",
    "matrices.initializers",
    "matrices.orthogonality",
    "matrices.transitions",
    "maths.activations",
    "nets.gradients",
    "nets.states",
    "training.optimizers",
)
"""The modules whose names are public; the functions in all others get arguments from these."""


def public_functions():
    """Every function with a public name, by that name; a name has one function."""
    functions = {}
    for module in (refnet, *(import_module(f"refnet.{room}") for room in ROOMS)):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isroutine(value):
                assert functions.setdefault(name, value) is value, name
    return functions


def net_problem():
    net = RecurrentNet(D, H, C)
    params, batch = problem(net)
    return {"net": net, "params": params, "batch": batch}


def net_and_x():
    problem = net_problem()
    return {"net": problem["net"], "params": problem["params"], "x": problem["batch"].x}


GOOD = {
    "initialize": lambda: {"name": "gaussian", "shape": (2, 3), "rng": rng()},
    "activation": lambda: {"name": "prelu", "start": 1},
    "optimizer": lambda: {"name": "rmsprop", "rate": 0.1, "form": "torch"},
    "clip_by_norm": lambda: {"grads": {"W": W}, "limit": 1},
    "clip_by_value": lambda: {"grads": {"W": W}, "limit": 1},
    "weight_decay": lambda: {"weights": {"W": W}, "strength": 1},
    "defect": lambda: {"W": W, "form": "squared", "side": None},
    "defect_and_gradient": lambda: {"W": W, "form": "squared", "side": None},
    "orthogonalize": lambda: {
        "W": W,
        "rate": 0.1,
        "stop_cost": 1e-6,
        "stop_gradient": None,
        "max_steps": 5,
        "form": "squared",
        "name": "W",
    },
    "orthogonalize_params": lambda: {"weights": {"W": W}, "parallel": False},
    "open_penalty": lambda: {"weights": {"W": W}, "strength": 1, "form": "squared"},
    "open_update": lambda: {"W": W, "rate": 0.1, "strength": 1, "form": "squared"},
    "transition": lambda: {"name": "svd", "margin": 0.1},
    "make_task": lambda: {"name": "adding", "length": 20},
    "options": lambda: {"name": "copy"},
    "loss_and_gradients": lambda: {**net_problem(), "divisor": 3},
    "per_example_gradients": net_problem,
    "jvp": lambda: {**net_problem(), "direction": {}},
    "hvp": lambda: {**net_problem(), "direction": {}},
    "state_jacobians": net_and_x,
    "step_jacobians": net_and_x,
    "state_gradients": net_problem,
    "lift": lambda: {"array": W, "kind": "fraction", "name": "W"},
    "certify": lambda: {
        **net_problem(),
        "kind": None,
        "radius": 1.0,
        "bits": 64,
        "max_bits": 128,
        "max_seconds": 5,
    },
    "noise_covariance": lambda: {"W": W / 4, "noise": 2, "horizon": 3},
    "fisher_memory": lambda: {"W": W / 4, "v": W[0], "delays": 2, "noise": 1, "horizon": 3},
    "total_memory": lambda: {"W": W / 4, "v": W[0], "noise": 1},
    "chain_memory": lambda: {"gain": 1.1, "delays": 3},
    "normal_memory": lambda: {"eigenvalues": W[0] / 4, "weights": W[0], "delays": 3},
    "signal_to_noise": lambda: {"W": W, "v": W[0], "steps": 3, "noise": 1},
    "peak_order": lambda: {"h": np.ones((2, 1, 3)), "W": W, "widest": 1},
    "defect_moments": lambda: {"m": 2, "n": 3, "moments": (1, 3, 15, 105)},
    "basin": lambda: {"rate": 0.1},
    "orthogonalization_experiment": lambda: {
        "distribution": "gaussian",
        "runs": 1,
        "size": 2,
        "rate": 0.1,
        "threshold": 1e-3,
        "seed": 0,
        "max_steps": 3,
    },
    "gradient_norms": lambda: {**net_problem(), "last": True},
    "jacobian_spectra": net_and_x,
    "lyapunov_exponents": net_and_x,
    "step_bounds": net_and_x,
    "retraction_errors": lambda: {
        "shape": (3, 2),
        "rates": W[0],
        "rng": rng(),
        "retraction": "qr",
        "metric": "euclidean",
    },
    "descents": lambda: {"n": 3, "runs": 2, "rng": rng()},
    "defect_over_steps": lambda: {
        "n": 3,
        "steps": 5,
        "points": 2,
        "rng": rng(),
        "dtype": "float32",
        "rate": 0.1,
        "guarded": False,
    },
    "margin_steps": lambda: {"margins": W[0], "p": W[0], "spectrum_rate": "plain"},
    "predicted_variances": lambda: {
        "widths": (3, 2),
        "weight_variances": W[0, :1],
        "x": 1,
        "gradient": 1,
        "activation": "tanh",
    },
    "simulated_variances": lambda: {
        "widths": (3, 2),
        "weights": "he",
        "rng": rng(),
        "runs": 2,
        "activation": "tanh",
    },
    "power_norms": lambda: {"W": W, "steps": 3},
    "power_radii": lambda: {"N": 2, "runs": 2, "n": 2, "rng": rng()},
    "fibonacci": lambda: {"n": 5},
    "spectral_radius": lambda: {"W": W},
    "singular_values": lambda: {"W": W},
    "henrici": lambda: {"W": W},
    "schur_form": lambda: {"W": W},
    "numerical_range": lambda: {"W": W, "angles": 3},
    "pseudospectrum": lambda: {"W": W, "z": W[0]},
}
"""Good arguments of every public function; what is bad is derived from its rules and below."""

ELSEWHERE = {
    "settle": "takes no arguments",
    "train": "a Config checks its settings: tests/training/test_config.py",
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


def bad_arguments():
    for name, function in public_functions().items():
        if name in GOOD:
            rules = getattr(function, "rules", {})
            for parameter in GOOD[name]():
                wrong = rules[parameter].wrong if parameter in rules else WRONG[parameter]
                yield from ((name, parameter, index) for index in range(len(wrong)))


def test_every_public_function_has_an_entry():
    assert {*GOOD, *ELSEWHERE} == set(public_functions())
    for name, function in public_functions().items():
        if name in GOOD:
            known = {*getattr(function, "rules", {}), *WRONG}
            missing = (
                set(inspect.signature(function).parameters)
                - known
                - {"inputs", "penalty", "options", "chosen", "progress"}
            )
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
    found, again = (public_functions()[name](**GOOD[name]()) for _ in range(2))
    assert found is not None and type(found) is type(again)
    for a, b in zip(arrays_in(found), arrays_in(again), strict=True):
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
    function = public_functions()[name]
    rules = getattr(function, "rules", {})
    value = (rules[parameter].wrong if parameter in rules else WRONG[parameter])[index]
    with pytest.raises((ValueError, TypeError)) as found:
        function(**{**GOOD[name](), parameter: value})
    said_well(found.value)


@given(st.data(), st.sampled_from(sorted(set(GOOD) - {"certify"})))
@hypothesis.settings(max_examples=1500)
def test_garbage_gives_a_result_or_a_documented_error(data, name):
    """Any value for any parameter: only documented exceptions, each in one line."""
    function, arguments = public_functions()[name], GOOD[name]()
    parameter = data.draw(st.sampled_from(sorted(arguments)))
    value = data.draw(garbage())
    if parameter in (
        "runs",
        "size",
        "max_steps",
        "delays",
        "seed",
        "N",
        "angles",
        "horizon",
        "m",
        "n",
        "steps",
        "widest",
        "points",
    ) and isinstance(value, int):
        value = min(value, 3)  # a large one is right, and slow
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(**{**arguments, parameter: value})
        except Exception as error:
            said_well(error)
