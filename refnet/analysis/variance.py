"""Variances of signals and gradients in a deep net at its start, layer by layer.

Layer l of L + 1 has ``v_l = W_l h_{l-1} + b_l``, ``h_l = f(v_l)``. With independent weights of
mean 0 and variance Var W_l, and n the number of units::

    E v_l^2      = n_{l-1} Var W_l E h_{l-1}^2                    (forward: the fan-in)
    E (dE/dv_l)^2 = n_{l+1} Var W_{l+1} E f'(v_l)^2 E (dE/dv_{l+1})^2   (backward: the fan-out)
    E (dE/dW_l)^2 = E (dE/dv_l)^2 E h_{l-1}^2

Glorot & Bengio take f(v) = v, which makes E h^2 = E v^2 and E f'^2 = 1; for any other f the
means are those over v ~ N(0, E v_l^2), exact for wide layers (Poole et al. 2016; Schoenholz
et al. 2017).
Source: Manchev & Spratling, eqs. 7-14 (errata 4, 7, 8, 9); Glorot & Bengio (2010).
Checked by: tests/analysis/test_analysis_theory.py::test_variances.
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import GENERATOR, count, numbers, real, takes
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.nets.base import Initializer
from refnet.nets.feedforward import FeedforwardNet


class Variances(NamedTuple):
    """Mean squares by layer, 1 .. L + 1, each (L + 1,): of the pre-activations v, of the gradient
    in v, and of the gradient in W."""

    v: Array
    dv: Array
    dW: Array


def _gaussian(sd: float, kinks: list[float]) -> tuple[Array, Array]:
    """Nodes and weights for means over N(0, sd^2) of functions that vary over units of 1 and are
    smooth between 0 and +-``kinks``: Gauss's rule on panels, none of which has a kink inside, in u
    with a = sinh u, in which they are dense around 0 however large sd is."""
    if sd == 0:
        return np.zeros(1), np.ones(1)
    edge = float(np.arcsinh(13 * sd))
    ends = sorted({0.0, edge, *(u for u in np.arcsinh(np.abs(kinks)).tolist() if u < edge)})
    panels = np.concatenate(
        [np.linspace(a, b, 8 + int(4 * (b - a)), endpoint=False) for a, b in zip(ends, ends[1:])]
        + [[edge]]
    )
    t, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(panels)[:, None] / 2
    u = (panels[:-1, None] + half + half * t).ravel()
    nodes = np.sinh(u)
    weights = (half * weights).ravel() * np.exp(-((nodes / sd) ** 2) / 2) * np.cosh(u)
    return np.concatenate([nodes, -nodes]), np.tile(weights / weights.sum() / 2, 2)


@takes(weight_variances=numbers("[0, inf)"), x=real("[0, inf)"), gradient=real("[0, inf)"))
def predicted_variances(
    widths: tuple[int, ...],
    weight_variances: Array,
    x: float = 1,
    gradient: float = 1,
    activation: Activation | str = ACTIVATIONS["identity"],
) -> Variances:
    """The variances of a net ``v_l = W_l h_{l-1}``, ``h_l = f(v_l)``, by layer, from the fan-in
    n_{l-1} and the fan-out n_{l+1} of layer l with n_l units::

        E v_l^2       = n_{l-1} Var W_l E h_{l-1}^2
        E (dE/dv_l)^2 = n_{l+1} Var W_{l+1} E f'(v_l)^2 E (dE/dv_{l+1})^2
        E (dE/dW_l)^2 = E (dE/dv_l)^2 E h_{l-1}^2

    with the means of f^2 and f'^2 over ``v_l ~ N(0, E v_l^2)``; float64.

    ``widths``: inputs, hidden layers, outputs, (L + 2,); ``weight_variances`` (L + 1,); ``x``: the
    mean square of an input; ``gradient``: that of dE/dv_{L+1}, the gradient at the outputs.
    ``activation``: one that acts on each unit by itself (not on ``pairs``).
    Raises ValueError if the numbers do not fit the widths.
    Source: Manchev & Spratling, eqs. 7-14 (errata 4, 7, 8, 9); Glorot & Bengio (2010).
    Checked by: tests/analysis/test_analysis_theory.py::test_variances,
    tests/analysis/test_analysis_theory.py::test_gaussian_means.

    >>> predicted_variances((3, 2, 1), np.array([1.0, 9.0])).v.round(9).tolist()
    [3.0, 54.0]
    """
    net = FeedforwardNet(widths, activation=activation, backend="reference")
    activation, widths, layers = net.activation, net.widths, net.depth + 1
    if weight_variances.shape != (layers,):
        raise ValueError(
            f"predicted_variances: weight_variances has shape "
            f"{weight_variances.shape}; need ({layers},), one a matrix, because "
            f"the widths are {widths}"
        )
    if activation.pairs:
        raise ValueError(
            f"predicted_variances: activation {activation.name} acts on pairs of units; need one "
            "that acts on each unit by itself"
        )
    params = activation.init(1)
    kinks = [float(value) for start in params.values() for value in np.ravel(start)]
    h, v, slopes = [float(x)], [], []
    for layer in range(layers):
        v.append(widths[layer] * weight_variances[layer] * h[-1])
        nodes, weights = _gaussian(float(v[-1]) ** 0.5, kinks)
        a = nodes[:, None]
        value = activation.forward(a, params)
        slope = activation.backward(a, value, np.ones_like(a), params)[0]
        h.append(float(value[:, 0] ** 2 @ weights))
        slopes.append(float(slope[:, 0] ** 2 @ weights))
    dv = [gradient]
    for layer in reversed(range(layers - 1)):
        dv.append(widths[layer + 2] * weight_variances[layer + 1] * slopes[layer] * dv[-1])
    dv = dv[::-1]
    return Variances(np.array(v), np.array(dv), np.array(dv) * np.array(h[:-1]))


@takes(rng=GENERATOR, runs=count(2))
def simulated_variances(
    widths: tuple[int, ...],
    weights: Initializer | str,
    rng: np.random.Generator,
    runs: int = 50,
    activation: Activation | str = ACTIVATIONS["identity"],
) -> tuple[Variances, Array, Array]:
    """The variances measured over ``runs`` random nets, each on one input x ~ N(0, I) and with one
    gradient ~ N(0, I) at its outputs; their standard errors over the nets, (3, L + 1), in the order
    of Variances; and the variances of the weights drawn, (L + 1,).

    A net's mean squares are means over a layer's units, so a standard error says how far the
    mean over the nets may be from the expectation.
    Checked by: tests/analysis/test_analysis_theory.py::test_variances.

    >>> means, errors, drawn = simulated_variances((50, 50, 50), "glorot_uniform",
    ...                                            np.random.default_rng(0))
    >>> bool((abs(means.v - 1) < 5 * errors[0]).all())
    True
    """
    net = FeedforwardNet(widths, activation=activation, backend="reference")
    widths, layers = net.widths, net.depth + 1
    squares, variances = np.empty((runs, 3, layers)), np.empty((runs, layers))
    for run in range(runs):
        params = net.init(rng, np.float64, weights)
        outputs, tape = net.forward(params, rng.normal(size=(1, widths[0])))
        grads = net.backward(params, tape, rng.normal(size=outputs.shape), inputs=False)
        squares[run] = _mean_squares(tape.cell, outputs, grads, layers)
        variances[run] = [(params[f"W{layer + 1}"] ** 2).mean() for layer in range(layers)]
    errors = squares.std(axis=0) / runs**0.5
    return Variances(*squares.mean(axis=0)), errors, variances.mean(axis=0)


def _mean_squares(
    tape: list[tuple[Array, Array]], outputs: Array, grads: Params, layers: int
) -> Array:
    v = [a for _, a in tape] + [outputs]
    return np.array(
        [
            [(a**2).mean() for a in v],
            [(grads[f"b{layer + 1}"] ** 2).mean() for layer in range(layers)],
            [(grads[f"W{layer + 1}"] ** 2).mean() for layer in range(layers)],
        ]
    )
