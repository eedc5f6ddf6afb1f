"""Which planted bugs today's checkers find.

Checked by: tests/check/test_error_rates.py::test_checkers_side_by_side.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.bugs import CORRECT, bugs
from refnet.check.cases import random_batch, random_mask, random_params
from refnet.check.conventions import Readings
from refnet.check.mistakes import of_the_stack
from refnet.check.mistakes.stacked import Stacking
from refnet.check.noise import spread
from refnet.check.verdict import compare
from refnet.exact.enclose import Certified, certify
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["CASES", "CHECKERS", "checker_rows"]

Rows = Iterator[dict[str, Any]]
CHECKERS = (
    "refnet float32",
    "refnet float64",
    "gradcheck",
    "check_grads",
    "allclose",
    "assert_allclose",
)
KINDS = 9
"""How many kinds of bugs are planted in a case, each in one case alone."""
RELU = ACTIVATIONS["relu"]
CASES: dict[str, tuple[Net, int, int]] = {
    "rnn": (RecurrentNet(2, 4, 3), 5, 2),
    "rnn fading": (RecurrentNet(2, 4, 3), 40, 2),
    "rnn relu gain": (
        RecurrentNet(2, 4, 3, activation=RELU, loss="squared_error", gain=1.25),
        5,
        2,
    ),
    "rnn every mask": (RecurrentNet(2, 4, 3, readout="every"), 6, 3),
    "rnn orthogonal": (RecurrentNet(2, 4, 3, transition=transition("orthogonal")), 6, 2),
    "rnn svd": (RecurrentNet(2, 4, 3, transition=transition("svd")), 6, 2),
    "lstm": (RecurrentNet(2, 3, 3, cell="lstm"), 6, 2),
    "lstm every mask peepholes": (RecurrentNet(2, 3, 3, cell="lstm", readout="every"), 6, 3),
    "gru": (RecurrentNet(2, 3, 3, cell="gru"), 6, 2),
    "gru_before mask h0": (RecurrentNet(2, 3, 3, cell="gru_before", learn_h0=True), 6, 3),
    "feedforward": (FeedforwardNet((4, 5, 5, 3)), 0, 4),
    "feedforward relu": (FeedforwardNet((4, 5, 5, 3), activation=RELU, loss="squared_error"), 0, 4),
    "stacked lstm mask": (StackedNet(2, 3, 3, "lstm", layers=2, bidirectional=True), 5, 3),
    "stacked gru every": (
        StackedNet(2, 3, 3, "gru", layers=2, bidirectional=True, readout="every"),
        5,
        2,
    ),
}
"""Net, T and B by name; the names say what else."""


@dataclass(frozen=True)
class _Program:
    """An implementation with a bug: its loss and gradients in float64."""

    bug: Any
    net: Net
    params: Params
    batch: Batch

    def run(self, values: Params) -> Params:
        """Every quantity at these values of the parameters, of h0 and x."""
        arrays = {name: np.asarray(value) for name, value in values.items()}
        found: Params = self.bug.run(self.net, arrays, self.batch._replace(x=arrays.pop("x")))
        return found


def _gradcheck(program: _Program) -> bool:
    """Whether torch.autograd.gradcheck, in float64 as it advises, passes the bug."""
    import torch

    names = [*program.params, "x"]

    class Function(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            ctx.found = program.run(
                {name: value.detach().numpy() for name, value in zip(names, values)}
            )
            return torch.tensor(ctx.found["loss"])

        @staticmethod
        def backward(ctx: Any, dloss: Any) -> Any:
            return tuple(dloss * torch.from_numpy(ctx.found[f"d{name}"].copy()) for name in names)

    inputs = [
        torch.from_numpy(value.copy()).requires_grad_()
        for value in (*program.params.values(), program.batch.x)
    ]
    return bool(torch.autograd.gradcheck(Function.apply, inputs, raise_exception=False))


def _check_grads(program: _Program) -> bool:
    """Whether jax.test_util.check_grads, in float64, passes the bug in reverse mode."""
    import jax
    from jax.test_util import check_grads

    def call(values: Any) -> Any:
        return jax.pure_callback(
            lambda values: program.run(values)["loss"],
            jax.ShapeDtypeStruct((), values["x"].dtype),
            values,
        )

    def pull(values: Any, dloss: Any) -> Any:
        found = program.run(values)
        return ({name: dloss * found[f"d{name}"] for name in values},)

    function = jax.custom_vjp(call)
    function.defvjp(lambda values: (call(values), values), pull)
    with jax.enable_x64(True):
        at = {
            name: jax.numpy.asarray(value)
            for name, value in {**program.params, "x": program.batch.x}.items()
        }
        try:
            check_grads(function, (at,), order=1, modes=("rev",))
        except AssertionError:
            return False
    return True


def _case(name: str, seed: int) -> Certified:
    net, T, B = CASES[name]
    rng = np.random.default_rng([seed, list(CASES).index(name)])
    params = random_params(net, rng, np.float32, "peepholes" in name)
    if "fading" in name:
        params["Whh"] = (params["Whh"] * 0.4).astype(np.float32)
    batch = random_batch(net, rng, np.float32, T, B)
    return certify(
        net, params, batch._replace(mask=random_mask(rng, T, B)) if "mask" in name else batch
    )


def _wide(certified: Certified) -> tuple[Params, Batch]:
    """Parameters, initial states included, so that their gradients are checked, and batch in
    float64."""
    net, batch = certified.net, certified.batch
    params = {name: value.astype(float) for name, value in certified.params.items()}
    if isinstance(net, RecurrentNet):
        params |= {
            name: np.zeros([batch.x.shape[1] if size == "B" else int(size) for size in shapes[-1]])
            for name, shapes in net.shapes.items()
            if name.startswith("h0") and name not in params
        }
    y = batch.y if batch.y.dtype.kind in "iu" else batch.y.astype(float)
    return params, batch._replace(x=batch.x.astype(float), y=y)


def checker_rows(seed: int = 0, few: tuple[str, ...] = ()) -> Rows:
    """Which checker passes which bug, True is a pass, and the seconds that each takes.

    ``gradcheck`` and ``check_grads`` see float64, as their authors advise, with their defaults;
    ``allclose`` (rtol 1e-5, atol 1e-8) and ``assert_allclose`` (rtol 1e-7) compare the float32
    gradients with the certified ones. The first row of a case is correct; its bugs are KINDS of
    the catalogue that no case before had, drawn at random, or ``few``, by their labels.
    ``prepared`` are the seconds for the certificate and the sigmas of both types, once a case.
    """
    had: set[str] = set()
    for case in CASES:
        started = perf_counter()
        certified = _case(case, seed)
        net, params, batch = certified.net, certified.params, certified.batch
        sigma = {dtype: spread(certified, dtype) for dtype in (np.float32, np.float64)}
        prepared = perf_counter() - started
        true = {name: value.value for name, value in certified.named().items()}
        wide, wide_batch = _wide(certified)
        readings = Readings(certified, pairs=False)
        catalogue: list[Any] = (
            list(of_the_stack(net, params, batch))
            if isinstance(net, StackedNet)
            else bugs(certified)
        )
        correct: Any = Stacking("none") if isinstance(net, StackedNet) else CORRECT
        right = correct.run(net, wide, wide_batch)
        order = np.random.default_rng([seed, len(had)]).permutation(len(catalogue))
        planted = 0
        for bug in (correct, *(catalogue[n] for n in order)):
            if bug is not correct and (
                planted == KINDS and not few or bug.label in had or few and bug.label not in few
            ):
                continue
            with np.errstate(all="ignore"):
                narrow, exact = bug.run(net, params, batch), bug.run(net, wide, wide_batch)
            if bug is not correct:
                if all(np.array_equal(exact[name], right[name]) for name in right) or any(
                    exact[name].shape != right[name].shape for name in exact
                ):
                    continue  # it changes nothing here, or a shape, which nobody accepts
                had.add(bug.label)
                planted += 1
            names = [name for name in narrow if name.startswith("d")]
            program = _Program(bug, net, wide, wide_batch)
            row: dict[str, Any] = {
                "case": case,
                "bug": bug.label,
                "forward": bug.forward,
                "prepared": prepared,
            }
            checkers: dict[str, Callable[[], bool]] = {
                "refnet float32": lambda: (
                    compare(narrow, certified, sigma=sigma[np.float32], readings=readings).passed
                ),
                "refnet float64": lambda: (
                    compare(exact, certified, sigma=sigma[np.float64], readings=readings).passed
                ),
                "gradcheck": lambda: _gradcheck(program),
                "check_grads": lambda: _check_grads(program),
                "allclose": lambda: all(np.allclose(narrow[n], true[n]) for n in names),
                "assert_allclose": lambda: all(
                    np.allclose(narrow[n], true[n], 1e-7, 0) for n in names
                ),
            }
            for name in CHECKERS:
                started = perf_counter()
                with np.errstate(all="ignore"):
                    row[name] = checkers[name]()
                row[f"{name}, seconds"] = perf_counter() - started
            yield row
