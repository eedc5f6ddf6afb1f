"""Certificates and sigmas on the disk: found again only where nothing that decides them differs,
bounded, never unpickled, and never believed when damaged."""

import os
import subprocess
import sys
from collections import UserDict
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from refnet import RecurrentNet, transitions
from refnet.check import judge, kept, store
from refnet.check.cases import random_batch, random_params, reference_results
from refnet.maths.activations import ACTIVATIONS, Activation

pytestmark = pytest.mark.needs("flint")

NET = RecurrentNet(2, 3, 4, "lstm", transition=transitions.transition("cayley"))
PARAMS = random_params(NET, np.random.default_rng(0), np.float32)
BATCH = random_batch(NET, np.random.default_rng(1), np.float32, 4, 2)
SCALE, X = 2.0, np.linspace(-1, 1, 5)


def helper(x):
    return np.tanh(x) * SCALE


def function(x, power=2):
    return sum(helper(row) ** power for row in x)


def gradient(x):
    h = np.tanh(x)
    return {"dx": 2 * SCALE**2 * h * (1 - h * h)}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REFNET_JUDGE_CACHE", str(tmp_path / "judge"))
    monkeypatch.setattr(kept, "WORTH", -1.0)
    forget()
    yield tmp_path / "judge"
    forget()


def forget():
    for one in (kept.certificate, kept.sigma_of, kept.readings_of):
        one.cache_clear()


@pytest.fixture
def made(monkeypatch):
    """How often a certificate or a sigma is made, not found."""
    count = {"certify": 0, "certify_function": 0, "spread": 0}
    for name in count:
        own = getattr(kept, name)

        def counting(*arguments, own=own, name=name, **options):
            count[name] += 1
            return own(*arguments, **options)

        monkeypatch.setattr(kept, name, counting)
    return count


def test_a_net_is_found_again(made, own_folder):
    theirs = reference_results(NET, PARAMS, BATCH)
    first = judge(NET, theirs, PARAMS, BATCH)
    assert made == {"certify": 1, "certify_function": 0, "spread": 1}
    forget()
    again = judge(replace(NET), theirs, PARAMS, BATCH)
    assert made == {"certify": 1, "certify_function": 0, "spread": 1}
    assert again == first and len(list(own_folder.iterdir())) == 2
    wrong = {**theirs, "dx": theirs["dx"] * 2}
    assert judge(NET, wrong, PARAMS, BATCH).convention == "dx is doubled"


@pytest.mark.parametrize(
    "change",
    [
        lambda: (replace(NET, reduction="sum"), PARAMS, BATCH),
        lambda: (NET, {**PARAMS, "by": PARAMS["by"] + 1}, BATCH),
        lambda: (NET, PARAMS, BATCH._replace(x=2 * BATCH.x)),
        lambda: (replace(NET, transition=transitions.transition("orthogonal")), None, BATCH),
    ],
)
def test_another_case_is_another(change, made):
    judge(NET, {}, PARAMS, BATCH)
    forget()
    net, params, batch = change()
    judge(
        net,
        {},
        params or random_params(net, np.random.default_rng(0), np.float32, recurrent="orthogonal"),
        batch,
    )
    assert made["certify"] == 2


@pytest.mark.parametrize("kind", [UserDict, MappingProxyType])
def test_parameters_in_another_mapping_decide_too(kind, made):
    for scale in (1, 1 + 1e-12):  # whose texts are the same
        params = {name: value.astype(float) * scale for name, value in PARAMS.items()}
        assert judge(NET, reference_results(NET, params, BATCH), kind(params), BATCH).passed
    assert made["certify"] == 2


def test_a_cotangent_may_be_a_list(made):
    for dtype in (np.float64, np.float32):
        forget()
        assert judge(lambda x: x * x, {"dx": 2 * X}, X, cotangent=[1] * 5, dtype=dtype).passed
    assert made["certify_function"] == 1 and made["spread"] == 2


def test_containers_are_told_apart(made):
    """x[1, 0] is an entry, x[[1, 0]] are two rows; and where a table ends decides, too."""

    def chosen(x, index):
        return x[index].sum()

    for index in ((1, 0), [1, 0]):
        judge(chosen, {}, np.arange(4.0).reshape(2, 2), index)
    assert made["certify_function"] == 2
    for one, other in (
        ((1, 0), [1, 0]),
        ({0: 1}, [(0, 1)]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "c": 2}),
    ):
        assert [*store.pieces(one)] != [*store.pieces(other)]
        assert store.described(lambda: one) != store.described(lambda: other)


def test_the_order_in_memory_decides(made):
    """What a reshaped array shares its entries with."""

    def cleared(x):
        x.transpose(0, 2, 1).reshape(-1)[0] = 0
        return x.sum()

    for axes in ((0, 2, 1), (2, 1, 0)):
        x = np.ones((2, 2, 2)).transpose(axes)
        assert judge(cleared, {"value": cleared(x.copy("K"))}, x, required=("value",)).passed
    assert made["certify_function"] == 2


def test_a_table_may_have_names_of_several_kinds(made):
    table = {1: 2.0, "two": 3.0}
    for _ in range(2):
        judge(lambda x, table: (x * table[1] * table["two"]).sum(), {}, X, table)
    assert made["certify_function"] == 1


def test_a_function_is_found_again_unless_what_it_uses_differs(made, monkeypatch):
    def count(what=function, *arguments):
        forget()
        before = made["certify_function"]
        judge(what, {}, X, *arguments)
        return made["certify_function"] - before

    assert count() == 1 and count() == 0
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert count() == 1 and count() == 0
    monkeypatch.setattr(sys.modules[__name__], "helper", lambda x: np.sin(x) * SCALE)
    assert count() == 1 and count() == 0
    monkeypatch.setattr(function, "__defaults__", (3,))
    assert count() == 1
    factor = 1.5
    assert count(lambda x: (factor * x).sum()) == 1
    factor = 2.5
    assert count(lambda x: (factor * x).sum()) == 1
    OPTIONS = 4.0  # beside the global one
    assert count(lambda x: (OPTIONS * x).sum()) == 1
    OPTIONS = 5.0
    assert count(lambda x: (OPTIONS * x).sum()) == 1
    assert store.described(lambda x: x * later) is None
    later = 1.0


def test_which_of_its_functions_it_calls_again_matters():
    def twice(first, second, third):
        return lambda x: (first(x) + second(x) * third(x)).sum()

    assert store.described(twice(helper, np.sin, helper)) == store.described(
        twice(helper, np.sin, helper)
    )
    one, other = (lambda x: x * 2), (lambda x: x * 3)
    assert store.described(twice(one, other, one)) != store.described(twice(one, other, other))


def test_what_cannot_be_told_is_not_kept(made, own_folder):
    class Callable:
        factor = 2

        def __call__(self, x):
            return (self.factor * x).sum()

    held = [Callable()]
    for one in (Callable(), lambda x: held[0](x)):
        forget()
        judge(one, {}, X)
    own = Activation("tanh", ACTIVATIONS["softsign"].value, ACTIVATIONS["softsign"].pull)
    net = RecurrentNet(2, 3, 4, activation=own)
    judge(net, {}, random_params(net, np.random.default_rng(0), np.float32), BATCH)
    assert not own_folder.exists() and store.described(net) is None


class Scaled:
    factor = 2.0

    def value(self, x):
        return (self.factor * helper(x)).sum()


OPTIONS, SCALED, ROOTS = {"scale": 2.0}, Scaled(), np.polynomial.Polynomial([0.0, 1.0])


def attributed(x):
    return (attributed.factor * x).sum()


@pytest.mark.parametrize(
    "what, change",
    [
        (function, (sys.modules[__name__], "SCALE", 3.0)),
        (function, (sys.modules[__name__], "helper", np.sin)),
        (function, (function, "__defaults__", (3,))),
        (lambda x: (x * OPTIONS["scale"]).sum(), (OPTIONS, "scale", 3.0)),
        (SCALED.value, (SCALED, "factor", 3.0)),
        (lambda x: SCALED.value(x), (SCALED, "factor", 3.0)),
        (lambda x: (x * ROOTS(2.0)).sum(), (ROOTS, "coef", np.array([0.0, 2.0]))),
        (attributed, (attributed, "factor", 3.0)),
    ],
)
@pytest.mark.parametrize("from_disk", [False, True])
def test_no_verdict_is_stale(what, change, from_disk, monkeypatch, made):
    monkeypatch.setattr(attributed, "factor", 2.0, raising=False)
    judge(what, {}, X)
    (monkeypatch.setitem if isinstance(change[0], dict) else monkeypatch.setattr)(*change)
    if from_disk:
        forget()
    judge(what, {}, X)
    assert made["certify_function"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "import own_helper; return own_helper.value(x)",
        "return x * np.load('numbers.npy')",
        "return x * np.random.rand()",
        "return x * globals()['c']",
    ],
)
def test_what_is_read_from_elsewhere_is_not_known(text):
    names = {"np": np}
    exec(f"def f(x): {text}", names)
    assert store.described(names["f"]) is None


def test_a_damaged_file_is_made_again(made, own_folder):
    judge(NET, {}, PARAMS, BATCH)
    for path in own_folder.iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    forget()
    assert not judge(NET, {}, PARAMS, BATCH).passed
    assert made["certify"] == 2 == made["spread"]
    for path in own_folder.iterdir():
        path.write_bytes(b"no file of ours")
    forget()
    judge(NET, {}, PARAMS, BATCH)
    assert made["certify"] == 3


def test_changed_numbers_are_not_believed(made, own_folder):
    """A whole .npz file with other numbers than its digest says."""
    judge(NET, {}, PARAMS, BATCH)
    for path in own_folder.iterdir():
        with np.load(path) as file:
            arrays = dict(file)
        name = next(name for name in arrays if name != "digest")
        np.savez(path, **{**arrays, name: arrays[name] + 1})
    forget()
    judge(NET, {}, PARAMS, BATCH)
    assert made["certify"] == 2 == made["spread"]


def test_nothing_is_unpickled(own_folder):
    own_folder.mkdir()
    path = store._path("x")
    np.savez(path, digest=np.array([object()]), allow_pickle=True)
    assert store.kept("x") is None


def test_the_folder_is_bounded(own_folder, monkeypatch):
    one = {"x": np.zeros(1000)}
    store.keep("first", one)
    size = store._path("first").stat().st_size
    monkeypatch.setattr(store, "MOST", 3 * size)
    for n, name in enumerate(("second", "third")):
        store.keep(name, one)
        os.utime(store._path(name), (n + 1, n + 1))
    assert store.kept("first") is not None  # used now
    store.keep("fourth", one)
    assert [store.kept(name) is not None for name in ("first", "second", "third", "fourth")] == [
        True,
        False,
        True,
        True,
    ]
    monkeypatch.setattr(store, "LARGEST", 100)
    store.keep("large", one)
    assert store.kept("large") is None


def test_no_folder_is_needed(made, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("off", str(tmp_path / "file" / "folder"), "/proc/none"):
        monkeypatch.setenv("REFNET_JUDGE_CACHE", place)
        forget()
        assert judge(function, gradient, X, dtype=np.float64).passed
    assert made["certify_function"] == 3


def test_another_process_finds_it(own_folder, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from refnet.check import judge, kept\n"
        "kept.WORTH = -1\n"
        "def f(x):\n    return (np.tanh(x) ** 2).sum()\n"
        "print(judge(f, {'dx': np.zeros(3)}, np.ones(3)).worst.z)\n"
        "print(kept.certificate.cache_info().misses)\n"
    )
    says = [
        subprocess.run(
            [sys.executable, str(tmp_path / "mine.py")],
            capture_output=True,
            text=True,
            check=True,
            cwd=os.getcwd(),
        ).stdout
        for _ in range(2)
    ]
    assert says[0] == says[1] and len(list(own_folder.iterdir())) == 2
