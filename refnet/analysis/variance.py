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
Checked by: tests/test_analysis_variance.py.
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.nets.base import Initializer
from refnet.nets.feedforward import FeedforwardNet

__all__ = ["Variances", "predicted_variances", "simulated_variances"]


class Variances(NamedTuple):
    """Mean squares by layer, 1 .. L + 1, each (L + 1,): of the pre-activations v, of the gradient
    in v, and of the gradient in W."""

    v: Array
    dv: Array
    dW: Array


def _gaussian_mean(values: Array, weights: Array) -> float:
    return float((values * weights).sum())


def predicted_variances(widths: tuple[int, ...], weight_variances: Array, x: float = 1,
                        gradient: float = 1, activation: Activation = ACTIVATIONS["identity"]
                        ) -> Variances:
    """What the formulas above say.

    ``widths``: inputs, hidden layers, outputs, (L + 2,); ``weight_variances`` (L + 1,); ``x``: the
    mean square of an input; ``gradient``: that of dE/dv_{L+1}, the gradient at the outputs.
    ``activation``: one that acts on each unit by itself (not oplu).
    Means over v by Gauss-Hermite quadrature with 100 nodes (none at the kink 0), in float64.
    Raises ValueError if the numbers do not fit the widths.

    >>> predicted_variances((3, 2, 1), np.array([1.0, 9.0])).v.tolist()
    [3.0, 54.0]
    """
    layers = len(widths) - 1
    if np.shape(weight_variances) != (layers,):
        raise ValueError(f"predicted_variances: weight_variances has shape "
                         f"{np.shape(weight_variances)}; need ({layers},), one a matrix, because "
                         f"the widths are {widths}")
    if activation.name == "oplu":
        raise ValueError("predicted_variances: oplu sorts pairs of units; need an activation that "
                         "acts on each unit by itself")
    own = activation.init(1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    h, v, slopes = [x], [], []
    for layer in range(layers):
        v.append(widths[layer] * weight_variances[layer] * h[-1])
        a = (v[-1] ** 0.5 * nodes)[:, None]
        value = activation.forward(a, own)
        slope = activation.backward(a, value, np.ones_like(a), own)[0]
        h.append(_gaussian_mean(value[:, 0] ** 2, weights))
        slopes.append(_gaussian_mean(slope[:, 0] ** 2, weights))
    dv = [gradient]
    for layer in reversed(range(layers - 1)):
        dv.append(widths[layer + 2] * weight_variances[layer + 1] * slopes[layer] * dv[-1])
    dv = dv[::-1]
    return Variances(np.array(v), np.array(dv), np.array(dv) * np.array(h[:-1]))


def simulated_variances(widths: tuple[int, ...], weights: Initializer, rng: np.random.Generator,
                        runs: int = 50, activation: Activation = ACTIVATIONS["identity"]
                        ) -> tuple[Variances, Array, Array]:
    """The same of ``runs`` random nets, each on one input x ~ N(0, I) and with one gradient
    ~ N(0, I) at its outputs; their standard errors over the nets, (3, L + 1), in the order of
    Variances; and the variances of the weights drawn, (L + 1,).

    A net's mean squares are means over a layer's units, so a standard error says how far the
    mean over the nets may be from the expectation.
    """
    net = FeedforwardNet(widths, activation=activation)
    layers = len(widths) - 1
    found, variances = np.empty((runs, 3, layers)), np.empty((runs, layers))
    for run in range(runs):
        params = net.init(rng, np.float64, weights)
        outputs, tape = net.forward(params, rng.normal(size=(1, widths[0])))
        grads = net.backward(params, tape, rng.normal(size=outputs.shape), inputs=False)
        found[run] = _mean_squares(tape.cell, outputs, grads, layers)
        variances[run] = [(params[f"W{layer + 1}"] ** 2).mean() for layer in range(layers)]
    errors = found.std(axis=0) / runs ** 0.5
    return Variances(*found.mean(axis=0)), errors, variances.mean(axis=0)


def _mean_squares(tape: list[tuple[Array, Array]], outputs: Array, grads: Params, layers: int
                  ) -> Array:
    v = [a for _, a in tape] + [outputs]
    return np.array([[(a ** 2).mean() for a in v],
                     [(grads[f"b{layer + 1}"] ** 2).mean() for layer in range(layers)],
                     [(grads[f"W{layer + 1}"] ** 2).mean() for layer in range(layers)]])
