"""Checks of a certified function that share no rule with its certificate.

The first check compares, in balls, the gradient along a random direction with differences to both
sides. The differences use no derivative, and they disagree at a kink or a jump. They do run on
recorded arrays, so the second check compares the values on recorded arrays with those on NumPy's
own, at the arguments and near them: where the arguments hide a mistake, as ones hide a product, the
nearby ones do not. Because the values agree all around, so do their derivatives, to more digits
than differences in floats would show.

Checked by: tests/exact/test_certify_function.py.
"""

from functools import partial

import numpy as np

from refnet.batch import Array, Scalar
from refnet.exact.convert import in_balls, in_float64, lift
from refnet.exact.precision import Enclosures
from refnet.exact.recorder import Node, Operation, same
from refnet.exact.reverse import gradients, tape
from refnet.exact.running import (
    Arguments,
    Runs,
    called,
    copied,
    joined,
    mapped,
    parts,
    recorded,
    sides,
)

CHECK_BITS = 768
"""Precision of the differences; their step is 2**(-bits / 3)."""
AGREE = 2.0**-128
"""The relative difference allowed between slope and difference."""
SMALLER = 2.0**-64
"""The factor by which a second step, tried where the first does not agree, is smaller. It shrinks
the error of a right slope by as much or more, and leaves that of a wrong slope: in between lies the
root of this."""
NEAR = 2.0**-10
"""How far off the arguments are at which values are compared, too: relative to them, so that most
comparisons come out as they do at the arguments themselves."""
SIGNS: tuple[Operation, ...] = (np.zeros_like, abs, same)
"""Of the distances from the arguments: none, all upwards, both ways."""
ROUNDINGS = 2.0**16
"""Rounding errors allowed for each number that f computes: it may be a sum of as many terms, added
one after the other. A mistake changes the value by some 2**-10, and eps times this is 2**-36."""
REMEDY = (
    "f has a kink or a jump exactly here, stop() changes its gradient, or the "
    "certificate is wrong; certify_function(..., check=False) leaves out this check, and "
    "refnet.check.compare judges by what that returns"
)


def check_differences(
    f: Runs, arguments: Arguments, cotangent: Array | None, named: Enclosures, bits: int
) -> None:
    """ArithmeticError where the gradients are not what differences give along a direction."""
    from refnet.exact import balls

    rng = np.random.default_rng(0)

    with balls.precision(max(CHECK_BITS, 3 * bits)):
        direction = {
            name[1:]: in_balls(rng.normal(size=enclosure.value.shape), name)
            for name, enclosure in named.items()
            if name != "value"
        }
        weight = np.ones(()) if cotangent is None else cotangent
        is_complex = named["value"].value.ndim > weight.ndim
        weight = in_balls(parts(weight + 0j if is_complex else weight), "cotangent")

        def at(step: Scalar) -> Scalar:
            inputs, arrays = recorded(arguments, in_balls)
            for name, part in direction.items():
                for side, along in zip(arrays[name], sides(part, len(arrays[name]))):
                    side.raw[...] += step * along  # in its order in memory
            return np.sum(joined([y.raw for y in called(f, inputs, in_balls)]) * weight)

        here = at(0) if bits else np.sum(lift(named["value"].exact, "ball") * weight)

        def slopes(step: Scalar) -> list[Scalar]:
            return [(at(side * step) - here) / (side * step) for side in (1, -1)]

        step = balls.arb((1, -max(CHECK_BITS, 3 * bits) // 3))
        terms = [
            lift(named[f"d{name}"].exact, "ball") * entries for name, entries in direction.items()
        ]
        total = sum((np.sum(term) for term in terms), balls.arb(0))
        size = sum((np.sum(abs(term)) for term in terms), balls.arb(0))
        differences = slopes(step)
        if any(
            abs(difference - total) > AGREE * (abs(difference) + size) for difference in differences
        ) and any(
            abs(nearer - total) > SMALLER**0.5 * abs(difference - total)
            for difference, nearer in zip(differences, slopes(SMALLER * step))
        ):
            raise ArithmeticError(
                f"certify_function: along a random direction the gradient gives {total.str(12)}, "
                f"differences to both sides {' and '.join(d.str(12) for d in differences)}; "
                f"{REMEDY}"
            )


def check_plain(f: Runs, arguments: Arguments, named: Enclosures) -> None:
    """ArithmeticError where the value is not NumPy's own, at the arguments or near them. Nothing is
    decided where rounding leaves no digits, or f fails at the arguments nearby."""
    rng = np.random.default_rng(1)
    for n, sign in enumerate(SIGNS):
        shift = partial(_shifted, sign, rng)
        nearby = {name: mapped(value, name, shift) for name, value in arguments.items()}
        with np.errstate(all="ignore"):
            try:
                plain = parts(f.f(*map(copied, nearby.values()))).astype(float)
                results = called(f, recorded(nearby, in_float64)[0], in_float64)
            except Exception:
                if not n:
                    raise
                continue
            value = joined([y.raw for y in results]) if n else named["value"].value
            if plain.shape != value.shape:
                raise ArithmeticError(
                    f"certify_function: f gives an array of shape {value.shape}, "
                    f"on NumPy's own arrays one of {plain.shape}; {REMEDY}"
                )
            weight = np.asarray(rng.normal(size=value.shape))
            distance = abs(np.sum(weight * (plain - value)))
            allowed = sum(
                _rounding(y.node, along) for y, along in zip(results, sides(weight, len(results)))
            )
        if allowed < distance < np.inf:
            raise ArithmeticError(
                f"certify_function: on NumPy's own arrays f is off by {distance:.3g} from the "
                f"certified value{', near the arguments' * bool(n)}; {REMEDY}"
            )


def _shifted(sign: Operation, rng: np.random.Generator, name: str, value: Array) -> Array:
    """Each entry moved by NEAR times its part of itself, 0 by that of the largest; in the same
    order in memory."""
    if value.dtype.kind == "c":
        real, imag = (_shifted(sign, rng, name, part) for part in (value.real, value.imag))
        return real + 1j * imag
    shifted = value.astype(float)
    largest = np.abs(shifted).max(initial=0) or 1.0
    shift = NEAR * sign(rng.normal(size=value.shape))
    shifted += shift * np.where(shifted == 0, largest, shifted)
    return shifted


def _rounding(y: Node, weight: Array) -> float:
    """To first order, how far rounding may carry the weighted sum of y in float64."""
    nodes, floats = tape(y), np.finfo(float)
    return ROUNDINGS * float(
        sum(
            np.sum(abs(g) * (floats.eps * abs(node.raw) + floats.tiny))
            for node, g in zip(nodes, gradients(y, weight, nodes, in_float64))
        )
    )
