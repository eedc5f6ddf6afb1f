"""Which planted bugs the checkers find that people use today, beside this judge.

``python -m benchmarks.judge.checkers --json benchmarks/results/check_checkers.json``: which checker
accepts which bug, and the seconds that each took, in some minutes.
Checked by: tests/check/test_error_rates.py::test_checkers_side_by_side.
"""

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from benchmarks.judge.bugs import CORRECT, bugs
from benchmarks.judge.cases import table, wide
from benchmarks.records import Row
from refnet.batch import Params
from refnet.check.cases import with_drawn
from refnet.check.conventions import Readings
from refnet.check.mistakes import Mistake
from refnet.check.noise import spread
from refnet.check.tables import save, show, target
from refnet.check.verdict import compare
from refnet.exact.enclose import Certified
from refnet.exact.precision import float_values
from refnet.nets.recurrent import RecurrentNet

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
CASES = table("""
rnn                          2   4   3   5   2
rnn fading                   2   4   3  40   2
rnn relu gain                2   4   3   5   2
rnn every mask               2   4   3   6   3
rnn orthogonal               2   4   3   6   2
rnn svd                      2   4   3   6   2
lstm                         2   3   3   6   2
lstm every mask peepholes    2   3   3   6   3
gru                          2   3   3   6   2
gru_before mask h0           2   3   3   6   3
feedforward                  4   5   3   2   4
feedforward relu             4   5   3   2   4
stacked lstm mask            2   3   3   5   3
stacked gru every            2   3   3   5   2
""")
Foreign: TypeAlias = Any
"""A tensor of PyTorch's, or an array of JAX's or a tree of them."""
Program = Callable[[Params], Params]
"""Every quantity that an implementation gives, from its parameters and x."""


def _gradcheck(program: Program, at: Params) -> bool:
    """Whether torch.autograd.gradcheck, in float64 as it advises, passes the bug."""
    import torch

    class Function(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Foreign, *values: Foreign) -> Foreign:
            ctx.results = program({name: value.detach().numpy() for name, value in zip(at, values)})
            return torch.tensor(ctx.results["loss"])

        @staticmethod
        def backward(ctx: Foreign, dloss: Foreign) -> Foreign:
            return tuple(dloss * torch.from_numpy(ctx.results[f"d{name}"].copy()) for name in at)

    inputs = [torch.from_numpy(value.copy()).requires_grad_() for value in at.values()]
    return bool(torch.autograd.gradcheck(Function.apply, inputs, raise_exception=False))


def _check_grads(program: Program, at: Params) -> bool:
    """Whether jax.test_util.check_grads, in float64, passes the bug in reverse mode."""
    import jax
    from jax.test_util import check_grads

    def run(values: Foreign) -> Params:
        return program({name: np.asarray(value) for name, value in values.items()})

    def call(values: Foreign) -> Foreign:
        loss = jax.ShapeDtypeStruct((), values["x"].dtype)
        return jax.pure_callback(lambda values: run(values)["loss"], loss, values)

    def pull(values: Foreign, dloss: Foreign) -> Foreign:
        results = run(values)
        return ({name: dloss * results[f"d{name}"] for name in values},)

    function = jax.custom_vjp(call)
    function.defvjp(lambda values: (call(values), values), pull)
    with jax.enable_x64(True):
        try:
            check_grads(function, (jax.tree.map(jax.numpy.asarray, at),), order=1, modes=("rev",))
        except AssertionError:
            return False
    return True


def _program(certified: Certified) -> tuple[Callable[[Mistake, Params], Params], Params]:
    """The naive net in float64 as a program with a bug, and the parameters and x that it takes."""
    net, (at, batch) = certified.net, wide(certified)
    if isinstance(net, RecurrentNet):  # so that initial states are checked, too
        starts = with_drawn(net, at, ("h0",), np.random.default_rng(0), batch.x.shape[1])
        at = {name: 0 * value for name, value in starts.items()} | at

    def program(bug: Mistake, values: Params) -> Params:
        rest = {name: value for name, value in values.items() if name != "x"}
        return bug.run(net, rest, batch._replace(x=values["x"]))

    return program, {**at, "x": batch.x}


def _timed(checks: Iterable[Callable[[], bool]]) -> dict[str, bool | float]:
    """What each of CHECKERS says, and its seconds."""
    row: dict[str, bool | float] = {}
    for name, check in zip(CHECKERS, checks):
        started = perf_counter()
        with np.errstate(all="ignore"):
            row[name] = check()
        row[f"{name}, seconds"] = perf_counter() - started
    return row


def checker_rows(seed: int = 0, few: Collection[str] = ()) -> Iterator[Row]:
    """Which checker passes which bug, True is a pass, and the seconds that each takes.

    ``gradcheck`` and ``check_grads`` see float64, as their authors advise, with their defaults;
    ``allclose`` (rtol 1e-5, atol 1e-8) and ``assert_allclose`` (rtol 1e-7) compare the float32
    gradients with the certified ones. The first row of a case is correct; its bugs are KINDS of
    the catalogue that no case before had, drawn at random, or ``few``, by their labels.
    ``prepared`` are the seconds for the certificate and the sigmas of both types, once a case.
    """
    had: set[str] = set()
    for number, case in enumerate(CASES):
        started = perf_counter()
        certified = case.certified(np.random.default_rng([seed, number]), np.float32)
        sigma = {dtype: spread(certified, dtype) for dtype in (np.float32, np.float64)}
        prepared = perf_counter() - started
        judged = partial(compare, certified=certified, readings=Readings(certified, pairs=False))
        true = float_values(certified.named())
        program, at = _program(certified)
        right = program(CORRECT, at)
        catalogue, planted = bugs(certified), 0
        drawn = np.random.default_rng([seed, len(had)]).permutation(len(catalogue))
        for bug in (CORRECT, *(catalogue[n] for n in drawn)):
            if bug.label in had or (
                bug is not CORRECT and (bug.label not in few if few else planted == KINDS)
            ):
                continue
            with np.errstate(all="ignore"):
                narrow = bug.run(certified.net, certified.params, certified.batch)
                exact = program(bug, at)
            if bug is not CORRECT:
                if all(np.array_equal(exact[name], right[name]) for name in right) or any(
                    exact[name].shape != right[name].shape for name in exact
                ):
                    continue  # it changes nothing here, or a shape, which nobody accepts
                had.add(bug.label)
                planted += 1
            pairs = [(narrow[name], true[name]) for name in narrow if name.startswith("d")]
            run = partial(program, bug)
            checks = (
                lambda: judged(narrow, sigma=sigma[np.float32]).passed,
                lambda: judged(exact, sigma=sigma[np.float64]).passed,
                lambda: _gradcheck(run, at),
                lambda: _check_grads(run, at),
                lambda: all(np.allclose(*pair) for pair in pairs),
                lambda: all(np.allclose(*pair, 1e-7, 0) for pair in pairs),
            )
            facts = {"case": case.name, "bug": bug.label, "forward": bug.forward}
            yield {**facts, "prepared": prepared, **_timed(checks)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Put planted bugs to this judge and to others.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=target, metavar="FILE", help="where the rows go")
    args = parser.parse_args()
    columns = {"case": 25, "bug": 60, **{name: len(name) for name in CHECKERS}}
    save(args.json, show(checker_rows(args.seed), columns))


if __name__ == "__main__":
    main()
