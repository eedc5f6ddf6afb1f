"""The planted bugs before the checkers that people use today.

Checked by: tests/test_errorrates.py::test_checkers_side_by_side.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.bugs import CORRECT, bugs
from refnet.check.cases import random_batch, random_params
from refnet.check.conventions import Readings
from refnet.check.mistakes import Mistake
from refnet.check.naive import run
from refnet.check.noise import spread
from refnet.check.verdict import compare
from refnet.exact.enclose import certify
from refnet.nets.recurrent import RecurrentNet

__all__ = ["checker_rows"]

Rows = Iterator[dict[str, Any]]
NET = RecurrentNet(2, 4, 3)


def _gradcheck(bug: Mistake, params: Params, batch: Batch) -> bool:
    """Whether torch.autograd.gradcheck, in float64 as it advises, passes the bug."""
    import torch
    names = [*params, "x"]

    class Function(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            arrays = {name: value.detach().numpy() for name, value in zip(names, values)}
            ctx.found = bug.run(NET, arrays, batch._replace(x=arrays.pop("x")))
            return torch.tensor(ctx.found["loss"])

        @staticmethod
        def backward(ctx: Any, dloss: Any) -> Any:
            return tuple(dloss * torch.from_numpy(ctx.found[f"d{name}"].copy()) for name in names)

    inputs = [torch.from_numpy(value.copy()).requires_grad_()
              for value in (*params.values(), batch.x)]
    return bool(torch.autograd.gradcheck(Function.apply, inputs, raise_exception=False))


def _check_grads(bug: Mistake, params: Params, batch: Batch) -> bool:
    """Whether jax.test_util.check_grads, in float64, passes the bug in reverse mode."""
    import jax
    from jax.test_util import check_grads

    def call(p: Any, x: Any) -> Any:
        return jax.pure_callback(
            lambda p, x: bug.run(NET, {k: np.asarray(v) for k, v in p.items()},
                                 batch._replace(x=np.asarray(x)))["loss"],
            jax.ShapeDtypeStruct((), x.dtype), p, x)

    def pull(kept: Any, dloss: Any) -> Any:
        p, x = kept
        found = bug.run(NET, {k: np.asarray(v) for k, v in p.items()},
                        batch._replace(x=np.asarray(x)))
        return {name: dloss * found[f"d{name}"] for name in p}, dloss * found["dx"]

    function = jax.custom_vjp(call)
    function.defvjp(lambda p, x: (call(p, x), (p, x)), pull)
    with jax.enable_x64(True):
        at = {name: jax.numpy.asarray(value) for name, value in params.items()}
        try:
            check_grads(function, (at, jax.numpy.asarray(batch.x)), order=1, modes=("rev",))
        except AssertionError:
            return False
    return True


def checker_rows(seed: int = 0, few: tuple[str, ...] = ()) -> Rows:
    """Which checker passes which bug: True is a pass. The first row of a case is correct.

    ``gradcheck`` and ``check_grads`` see float64, as their authors advise, with their defaults;
    ``allclose`` (rtol 1e-5, atol 1e-8) and ``assert_allclose`` (rtol 1e-7) compare the float32
    gradients with the certified ones. Two cases: a short net, and one of 40 steps whose
    gradients fade.
    """
    for case, T, scale in (("short", 5, 1.0), ("fading", 40, 0.4)):
        net = NET
        rng = np.random.default_rng([seed, T])
        params, batch = random_params(net, rng, np.float32), random_batch(
            net, rng, np.float32, T, 2)
        params["Whh"] = (params["Whh"] * scale).astype(np.float32)
        certified = certify(net, params, batch)
        true = {name: value.value for name, value in certified.named().items()}
        sigma = {dtype: spread(certified, dtype) for dtype in (np.float32, np.float64)}
        wide = {name: value.astype(float) for name, value in params.items()}
        checked = {**wide, "h0": np.zeros((2, 4))}  # an input, so that its gradient is checked
        wide_batch = batch._replace(x=batch.x.astype(float))
        readings, right = Readings(certified, pairs=False), run(net, params, batch)
        for bug in (CORRECT, *bugs(certified)):
            if few and bug.name not in ("none", *few):
                continue
            narrow, exact = bug.run(net, params, batch), bug.run(net, wide, wide_batch)
            if bug is not CORRECT and all(np.array_equal(narrow[name], right[name])
                                          for name in right):
                continue
            names = [name for name in narrow if name.startswith("d")]

            def close(rtol: float, atol: float) -> bool:
                return all(np.allclose(narrow[name], true[name], rtol, atol) for name in names)

            yield {"case": case, "bug": bug.label, "forward": bug.forward,
                   "refnet float32": compare(narrow, certified, sigma=sigma[np.float32],
                                             readings=readings).passed,
                   "refnet float64": compare(exact, certified, sigma=sigma[np.float64],
                                             readings=readings).passed,
                   "gradcheck": _gradcheck(bug, checked, wide_batch),
                   "check_grads": _check_grads(bug, checked, wide_batch),
                   "allclose": close(1e-5, 1e-8), "assert_allclose": close(1e-7, 0)}
