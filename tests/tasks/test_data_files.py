"""A data set's files: where they are looked for, downloads, and every way to be wrong."""

import errno
import gzip
import io
import os
import struct
import threading
import tracemalloc
import zlib
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.check import store
from refnet.compiled import info
from refnet.compiled._jit import JIT, jit
from refnet.tasks import files
from refnet.tasks.files import Source, find, load, parse_idx, unpack
from support.arguments import refused
from support.packages import hide


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


SHAPE = (5, 3, 2)
IMAGES = np.arange(30, dtype=np.uint8).reshape(SHAPE)
GOOD = idx(IMAGES)
SOURCE = Source("digits", "some-idx3-ubyte", len(GOOD), sha256(GOOD).hexdigest())
OTHER = idx(IMAGES[::-1])  # right in all but its bytes
BAD = {
    "wrong magic": (b"\0\0\x09\x03" + GOOD[4:], "magic number is 2307; need 2051"),
    "labels": (idx(IMAGES.ravel()), r"magic number is 2049; need 2051"),
    "other size": (idx(IMAGES[:4]), r"dimensions are \(4, 3, 2\); need \(5, 3, 2\)"),
    "short": (GOOD[:-1], "29 bytes follow the header; need 30"),
    "header only": (GOOD[:10], "has 10 bytes; an IDX header of 3 dimensions has 16"),
    "empty": (b"", "has 0 bytes; an IDX header"),
    "trailing byte": (GOOD + b"\0", "goes on after the 46 bytes"),
    "truncated gz": (gzip.compress(GOOD)[:-9], "damaged or truncated gz"),
    "gz without its end": (gzip.compress(GOOD)[:12], "damaged or truncated gz"),
    "gz with a wrong crc": (gzip.compress(GOOD)[:-8] + bytes(8), "damaged or truncated gz"),
    "gz and garbage": (gzip.compress(GOOD) + b"garbage", "damaged or truncated gz"),
    "gz of more": (gzip.compress(GOOD + b"\0"), "goes on after the 46 bytes"),
    "two gz": (gzip.compress(GOOD) * 2, "goes on after the 46 bytes"),
    "bomb": (gzip.compress(bytes(2**24)), "goes on after the 46 bytes"),
    "not gz": (b"\x1f\x8b" + GOOD, "damaged or truncated gz"),
    "web page": (b"<html>Not Found</html>", "magic number is 1013478509; need 2051"),
    "wrong checksum": (
        OTHER,
        f"sha256 of the unpacked bytes is {sha256(OTHER).hexdigest()}; need {SOURCE.sha256}",
    ),
}


def get(mirrors=()):
    return load(SOURCE, lambda data, where: parse_idx(data, SHAPE, where), mirrors, "Get it.")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Folders for REFNET_DATA and the cache, both empty."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("REFNET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    return tmp_path


@pytest.fixture
def server():
    """A web server on this machine: what ``pages`` maps a path to is sent, else 404."""
    pages, asked = {}, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path not in pages:
                return self.send_error(404)
            body, length = pages[self.path]
            self.send_response(200)
            if length == "chunked":
                self.send_header("Transfer-Encoding", "chunked")
            elif length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{web.server_port}/"

    def serve(folder, body, length=-1):
        pages[f"/{folder}/{SOURCE.name}.gz"] = body, len(body) if length == -1 else length
        return f"{address}{folder}/"

    serve.asked = asked
    yield serve
    web.shutdown()
    thread.join()
    web.server_close()


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("where", ["data/digits", "data", "cache/refnet/digits"])
@pytest.mark.parametrize("packed", [False, True])
def test_data_is_found_in_every_usual_place(places, where, packed):
    path = places / where / (SOURCE.name + (".gz" if packed else ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(GOOD) if packed else GOOD)
    assert find(SOURCE) == path
    assert (get() == IMAGES).all() and get().dtype == np.uint8


def test_the_first_place_wins(places):
    for where, data in (("data/digits", GOOD), ("data", OTHER), ("cache/refnet/digits", OTHER)):
        (places / where).mkdir(parents=True, exist_ok=True)
        (places / where / SOURCE.name).write_bytes(data)
    assert (get() == IMAGES).all()


def test_a_folder_of_the_files_name_is_not_the_file(places):
    (places / "data" / SOURCE.name).mkdir()
    assert find(SOURCE) is None


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("REFNET_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.folders("digits") == [tmp_path / ".cache" / "refnet" / "digits"]
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert files.user_cache() == tmp_path / ".cache" / "refnet"


def test_a_user_without_a_home_has_no_cache(monkeypatch, caplog):
    for name in ("REFNET_DATA", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "REFNET_JUDGE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert files.folders("digits") == [] and store.folder() is None
    assert info()["cache"] == "none"
    with refused("set XDG_CACHE_HOME to a folder", FileNotFoundError):
        get()
    if JIT:
        kernel, y = jit(lambda x: x[0] + 1), np.ones(1)
        assert kernel(y) == 2 and "compiled kernels are not kept: this user has" in caplog.text


def test_refnet_data_that_is_no_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("REFNET_DATA", str(tmp_path / "typo"))
    with refused("REFNET_DATA is '.*typo', which is not a folder", FileNotFoundError):
        get()


def test_missing_and_not_to_be_downloaded(places):
    with pytest.raises(FileNotFoundError) as error:
        get()
    for part in (
        SOURCE.name,
        str(places / "data" / "digits"),
        "Get it. Put it, plain or gz, into",
        str(places / "cache" / "refnet" / "digits"),
        "REFNET_DATA",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("case", BAD)
def test_bad_file_here(places, case):
    """An error that names the file; a file of the user's own is left alone."""
    data, message = BAD[case]
    path = places / "data" / SOURCE.name
    path.write_bytes(data)
    with refused(message) as error:
        get()
    assert str(path) in str(error.value)
    assert files_in(places) == [f"data/{SOURCE.name}"] and path.read_bytes() == data


def test_a_file_that_is_packed_twice_is_said(places):
    zeros = Source("digits", "zeros", 10_000, sha256(bytes(10_000)).hexdigest())
    path = places / "data" / "zeros"
    path.write_bytes(gzip.compress(gzip.compress(bytes(10_000))))
    with refused("zeros: is packed twice; unpack it once with gunzip"):
        load(zeros, lambda data, where: data, (), "")
    path.write_bytes(gzip.compress(bytes(10_000)))
    assert load(zeros, lambda data, where: data, (), "") == bytes(10_000)


@pytest.mark.parametrize("case", BAD)
def test_bad_file_there(places, server, case):
    data, message = BAD[case]
    mirror = server("a", data)
    with refused(message, FileNotFoundError) as error:
        get([mirror])
    assert mirror in str(error.value) and files_in(places) == []


def test_download(places, server, monkeypatch):
    packed = gzip.compress(GOOD)
    mirrors = [server("a", packed)]
    steps = []

    @contextmanager
    def bar(label, total):
        steps.append(total)
        yield lambda *step: steps.append(step)

    monkeypatch.setattr(files, "_bar", bar)
    assert (get(mirrors) == IMAGES).all()
    assert steps[0] == len(packed) and steps[-1] == (len(packed), len(packed))
    assert files_in(places) == [f"cache/refnet/digits/{SOURCE.name}.gz"]
    assert (get(mirrors) == IMAGES).all() and len(server.asked) == 1


@pytest.mark.parametrize("case", ["a file in its place", "a full disk"])
def test_a_download_that_cannot_be_kept_is_used(places, server, monkeypatch, caplog, case):
    if case == "a full disk":

        def full(path, write):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(files, "write_atomically", full)
    else:
        (places / "cache" / "refnet").write_text("")
    before = files_in(places)
    assert (get([server("a", gzip.compress(GOOD))]) == IMAGES).all()
    assert f"{SOURCE.name} is used, but not kept for the next run: " in caplog.text
    assert files_in(places) == before


def test_download_without_rich(places, server, monkeypatch, capsys):
    hide(monkeypatch, "rich")
    assert (get([server("a", gzip.compress(GOOD))]) == IMAGES).all()
    assert f"downloading {SOURCE.name}: " in capsys.readouterr().err


def test_the_next_mirror_is_tried(places, server):
    mirrors = [
        server("a", b"")[:-2] + "nowhere/",
        server("b", gzip.compress(OTHER)),
        server("c", gzip.compress(GOOD)),
    ]
    assert (get(mirrors) == IMAGES).all() and len(server.asked) == 3


def test_no_mirror_answers(places, server):
    mirrors = [server("a", b"")[:-2] + "nowhere/", "http://127.0.0.1:1/"]
    with refused("HTTP Error 404.*[Cc]onnection refused", FileNotFoundError):
        get(mirrors)
    assert files_in(places) == []


def test_a_connection_that_breaks_off(places, server):
    packed = gzip.compress(GOOD)
    with refused(f"broke off after {len(packed) - 5} of {len(packed)} bytes", FileNotFoundError):
        get([server("a", packed[:-5], len(packed))])
    assert files_in(places) == []


def test_an_improper_http_answer_is_refused(places, server):
    mirror = server("a", b"400\r\n" + gzip.compress(GOOD), "chunked")
    with refused("not a proper answer .IncompleteRead", FileNotFoundError):
        get([mirror])
    assert files_in(places) == []


@pytest.mark.parametrize("length", [-1, None])
def test_a_download_without_end_is_given_up(places, server, length):
    zeros = bytes(2**20)
    with refused("more than 65582 bytes; gave up", FileNotFoundError):
        get([server("a", zeros, length)])
    assert files_in(places) == []


def test_interrupted_download_keeps_nothing(places, server, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_checked", interrupt)
    with pytest.raises(KeyboardInterrupt):
        get([server("a", gzip.compress(GOOD))])
    assert files_in(places) == []


def test_a_bomb_is_not_unpacked():
    """256 MiB behind 256 KiB: the memory stays within what the packed bytes and zlib need."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(256)) + packer.flush()
    tracemalloc.start()
    with refused("goes on after the 1000 bytes"):
        unpack(io.BytesIO(bomb), 1000, "bomb")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


shapes = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple)


@given(shapes, st.randoms(use_true_random=False))
def test_idx_round_trip(shape, random):
    array = np.frombuffer(random.randbytes(int(np.prod(shape))), np.uint8).reshape(shape)
    read = parse_idx(idx(array), shape, "here")
    assert (read == array).all() and read.shape == shape and not read.flags.writeable


def with_a_bit_flipped(data, bit):
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


@given(shapes, st.data())
def test_any_other_idx_is_refused(shape, data):
    """Cut anywhere, longer, or with any bit of its header flipped."""
    good = idx(np.zeros(shape, np.uint8))
    header = 4 + 4 * len(shape)
    flipped = with_a_bit_flipped(good, data.draw(st.integers(0, 8 * header - 1)))
    for bad in (
        good[: data.draw(st.integers(0, len(good) - 1))],
        good + data.draw(st.binary(min_size=1, max_size=9)),
        flipped,
    ):
        with refused("^here: "):
            parse_idx(bad, shape, "here")


@given(st.binary(max_size=200), st.data())
def test_a_gz_cut_or_flipped_anywhere_is_refused_or_whole(content, data):
    """What a flipped bit leaves legible (a time stamp, a flag) is still the same content."""
    good = gzip.compress(content)
    assert unpack(io.BytesIO(good), len(content), "here") == content
    flipped = with_a_bit_flipped(good, data.draw(st.integers(16, 8 * len(good) - 1)))
    for bad in (good[: data.draw(st.integers(2, len(good) - 1))], flipped):
        try:
            assert unpack(io.BytesIO(bad), len(content), "here") == content
        except ValueError as error:
            assert str(error).startswith("here: ")
    for end in range(2, len(good)):
        with refused("damaged or truncated gz"):
            unpack(io.BytesIO(good[:end]), len(content), "here")
