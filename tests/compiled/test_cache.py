"""The cache of compiled kernels: nothing in it is run unless it is what this user wrote."""

import hashlib
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from numba.core.bytecode import FunctionIdentity

from refnet.compiled import _cache, _jit, feedforward, kernels
from refnet.compiled._cache import cache_folder
from refnet.compiled._jit import JIT, jit

pytestmark = pytest.mark.skipif(not JIT, reason="nothing is compiled")


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "_SAID", set())


def test_names_that_the_linker_sees_belong_to_one_kernel_each():
    """A process links what it compiles with what it reads from the cache, by these names: with one
    name for two kernels, a GRU's gradients came from another cell's code."""
    assert feedforward and kernels.KERNELS
    made_from: dict[str, set[object]] = {}
    for kernel in _jit._KERNELS:
        if kernel.py_func.__module__.startswith("refnet.compiled.walk_"):
            made_from.setdefault(kernel.py_func.__qualname__, set()).add(kernel._cache._function)
    assert len(made_from) > 20 and all(len(kinds) == 1 for kinds in made_from.values())
    bare = {name.rpartition(".")[0] for name in made_from}
    assert len(bare) < len(made_from) / 2, "a planted bug: names without what they stand for"


def multiplier(n):
    """A kernel that has not been compiled or loaded yet."""

    def multiply(x, y):
        for i in range(len(x)):
            y[i] = n * x[i]

    return jit(multiply)


def result(kernel):
    y = np.zeros(3)
    kernel(np.arange(3.0), y)
    return y.tolist()


def compiled(n):
    """Whether ``n`` times was right, and whether it was compiled, not loaded."""
    kernel = multiplier(n)
    assert result(kernel) == [0, n, 2 * n]
    return not sum(kernel.stats.cache_hits.values())


def stored():
    return sorted(cache_folder().glob("*.nbc"), key=lambda path: path.stat().st_mtime_ns)


def test_a_kernel_is_loaded_by_the_next_process():
    assert compiled(3) and not compiled(3) and compiled(5) and not compiled(3)
    assert cache_folder().stat().st_mode & 0o777 == 0o700 and len(stored()) == 2


def test_the_digest_is_of_all_files_that_kernels_are_written_in():
    """Or one would be run whose helper, in another file, has changed since."""
    sources = _cache.kernel_sources()
    package = Path(_cache.__file__).parents[1]
    written = {
        path
        for path in package.rglob("*.py")
        if path.parent.name != "examples"  # of what a user writes: its file is in its kernels' own
        if "from refnet.compiled._jit import" in path.read_text(encoding="utf-8")
    }
    assert len(written) > 15 and written <= {*sources}


def test_kernels_of_changed_sources_are_not_kept(tmp_path, monkeypatch, caplog):
    """What was imported before the change would be run as if it were of the sources after it."""
    changed = tmp_path / "kernels.py"
    changed.write_text("# another version")
    sources = [*_cache.kernel_sources(), changed]
    monkeypatch.setattr(_cache, "kernel_sources", lambda: sources)
    assert compiled(3) and not stored() and compiled(3)
    assert caplog.text.count("refnet changed since this process began") == 1


def polynomial(n):
    """A kernel, and the function that it calls, as plain Python; too long to be written into it."""
    code = "".join(f"        y[i] = x[i] if y[i] > {k} else y[i] * x[i] + {n}\n" for k in range(40))
    scope = {"__name__": "kernels"}
    exec(f"def inside(x, y):\n    for i in range(len(x)):\n{code}", scope)
    called = jit(scope["inside"], inner=True)
    return jit(lambda x, y: called(x, y)), called.py_func


def test_kernels_of_one_name_are_not_taken_for_each_other(monkeypatch):
    """Numba counts the functions of a process in their symbols. One that another process kept may
    have the number, and the name, of one that is compiled here."""
    x = np.linspace(0.1, 0.9, 5)
    for n in (3, 5):
        monkeypatch.setattr(FunctionIdentity, "_unique_ids", count(10**6))
        kernel, plain = polynomial(n)
        kernel(x, got := np.zeros(5))
        plain(x, want := np.zeros(5))
        assert (got == want).all()


def test_no_flipped_bit_is_executed(caplog):
    compiled(3)
    (path,) = stored()
    whole = path.read_bytes()
    for bit in np.random.default_rng(0).integers(0, 8 * len(whole), 12):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert compiled(3)
        assert path.read_bytes() != damaged  # replaced by a whole one
    assert caplog.text.count("its digest does not hold") == 1  # said once


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a kernel"),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.rename(path.with_suffix(".x")), path.symlink_to(path.with_suffix(".x"))),
    ],
    ids=["short", "empty", "text", "folder", "pipe", "link"],
)
def test_a_file_that_is_not_a_kernel_is_compiled_again(damage):
    compiled(3)
    damage(stored()[0])
    assert compiled(3)


def test_swapped_kernels_are_noticed_and_only_the_digest_tells():
    """Five's kernel in three's file is not run; with a digest made for it, it is: five times."""
    compiled(3), compiled(5)
    three, five = stored()
    whole = three.read_bytes()
    three.write_bytes(five.read_bytes())
    assert compiled(3)
    three.write_bytes(whole)
    kernel = multiplier(3)
    kernel.compile("void(float64[::1], float64[::1])")
    (signature,) = kernel.overloads
    key = kernel._cache._place(signature, kernel.overloads[signature].codegen)[1]
    payload = five.read_bytes()[32:]
    place = kernel._cache._place(signature, kernel.overloads[signature].codegen)[0]
    place.write_bytes(hashlib.sha256(key + payload).digest() + payload)
    planted = multiplier(3)
    planted.compile(kernel.signatures[0])
    assert sum(planted.stats.cache_hits.values()) == 1 and result(planted) == [0, 5, 10]


def test_another_users_folder_is_refused(monkeypatch, caplog):
    compiled(3)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert compiled(3) and compiled(3)
    assert caplog.text.count("belongs to another user") == 1


def test_a_folder_in_which_others_could_write_is_emptied():
    compiled(3)
    cache_folder().chmod(0o777)
    (cache_folder() / "planted.nbc").write_text("")
    assert compiled(3)
    assert cache_folder().stat().st_mode & 0o777 == 0o700 and len(stored()) == 1
    assert not compiled(3)


def test_old_versions_are_removed_and_the_size_is_bounded(monkeypatch):
    base = cache_folder().parent
    for age in range(5):
        old = base / f"{age:016x}"
        old.mkdir(parents=True)
        (old / "a.nbi").write_bytes(bytes(100))
        os.utime(old, (time.time() - 1000 * (age + 1),) * 2)
    (base / "mnist").mkdir()  # a data set
    compiled(3)
    assert sorted(path.name for path in base.iterdir()) == sorted(
        [f"{0:016x}", f"{1:016x}", cache_folder().name, "mnist"]
    )
    size = stored()[0].stat().st_size
    monkeypatch.setattr(_cache, "LIMIT", 2 * size + size // 2)
    for n in range(5, 10):
        compiled(n)
    assert len(stored()) == 2 and not (base / f"{0:016x}" / "a.nbi").exists()
    assert not compiled(9)


def test_what_a_kill_left_is_removed():
    compiled(3)
    left = cache_folder() / ".x.nbc.1234.refnet.part"
    left.write_text("half")
    os.utime(left, (time.time() - 100,) * 2)
    compiled(5)
    assert not left.exists()


def test_a_cache_that_cannot_be_written_is_said_once(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert compiled(3) and compiled(3)
    assert caplog.text.count("are not kept") == 1 and "file/below" in caplog.text


def test_processes_that_write_at_once_end_in_right_results(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_cache as t\n"
        "for n in range(3, 8): t.compiled(n)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, str(Path(__file__).parent)],
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert not process.communicate(timeout=120)[1] and process.returncode == 0
    assert len(stored()) == 5 and not any(compiled(n) for n in range(3, 8))
    assert not list(tmp_path.rglob("*.part"))
