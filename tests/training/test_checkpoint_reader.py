"""The reader: what is refused, in one line, and before it is unpacked."""

import json
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from refnet.runs.read import FileError, contents, json_of, reading, toml_of
from refnet.runs.unpack import npz_of, safetensors_of
from support.arguments import refused

ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.asfortranarray(np.ones((3, 2), "f4")),
    "c": np.array(7),
    "d": np.zeros((0, 4), bool),
    "text": np.array("é"),
    "e": np.arange(3, dtype=">i2"),
}


def npz(path, arrays=ARRAYS, save=np.savez):
    save(path, **arrays)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_what_numpy_gives(tmp_path, save):
    path = npz(tmp_path / "x.npz", save=save)
    arrays = npz_of(path, 2**20)
    with np.load(path) as theirs:
        assert arrays.keys() == set(theirs.files)
        for name, array in arrays.items():
            assert array.dtype == theirs[name].dtype and array.shape == theirs[name].shape
            assert array.tobytes() == theirs[name].tobytes()
            assert array.flags.f_contiguous == theirs[name].flags.f_contiguous
            assert array.flags.writeable and array.flags.aligned


def patch(path, mark, offset, value):
    """Bytes of the first directory record altered."""
    data = bytearray(path.read_bytes())
    place = data.index(mark) + offset
    data[place : place + len(value)] = value
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda p: patch(p, b"PK\1\2", 10, b"\x63\0"), "packed or encrypted"),
        (lambda p: patch(p, b"PK\1\2", 8, b"\1\0"), "packed or encrypted"),
        (lambda p: patch(p, b"PK\1\2", 24, b"\xff\xff\xff\x7f"), "packed or encrypted"),
        (lambda p: patch(p, b"PK\1\2", 42, b"\xff\xff\0\0"), "damaged"),
        (lambda p: patch(p, b"PK\3\4", 0, b"XX"), "damaged"),
        (lambda p: p.write_bytes(p.read_bytes()[:-30]), "does not end with a directory"),
        (lambda p: npz(p, save=np.savez_compressed), "packed or encrypted"),
    ],
)
def test_damaged_archives_are_refused(tmp_path, damage, message):
    path = npz(tmp_path / "x.npz")
    damage(path)
    with refused(message):
        npz_of(path)


@pytest.mark.parametrize(
    "old, new, message",
    [
        (b"(2, 3)", b"(2,3e)", "header is malformed"),
        (b"'<f8'", b"'|O8'", "allow_pickle"),
        (b"'<f8'", b"'<f7'", "malformed: descr is not a valid dtype"),
        (b"(2, 3), }      ", b"(2, 3000000), }", "do not make shape"),
        (b"'shape'", b"'shade'", "does not contain the correct keys"),
        (b"NUMPY\1", b"NUMPY\7", "malformed"),
        (b"\x93NUMPY", b"\x93BUMPY", "magic string is not correct"),
    ],
)
def test_damaged_headers_are_refused(tmp_path, old, new, message):
    """In one member; the archive's checksums hold."""
    path = npz(tmp_path / "x.npz")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert old in members["a.npy"]
    members["a.npy"] = members["a.npy"].replace(old, new)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with refused(message):
        npz_of(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(tmp_path):
    path = npz(tmp_path / "x.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", archive.read("a.npy"))
    with refused("has two arrays named 'a'"):
        npz_of(path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """300 MB of zeros in 300 kB; the same member named 1,000 times in the directory."""
    path = npz(tmp_path / "x.npz", {"a": np.zeros(300_000_000, "i1")}, np.savez_compressed)
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    with refused("would take 300,000,128 bytes; need at most 1,048,576"):
        npz_of(path, 2**20)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    path = npz(tmp_path / "y.npz", {"a": np.zeros(10_000)})
    data = path.read_bytes()
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    many = b"".join(data[start:end].replace(b"a.npy", b"%05d" % n) for n in range(1000))
    path.write_bytes(
        data[:start]
        + many
        + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1000, 1000, len(many), start, 0)
    )
    with refused("would take 80,128,000 bytes"):
        npz_of(path)
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text, message",
    [
        ("[" * 100_000, "nested more than 30 deep at character 31"),
        ('{"a":' * 100_000, "nested more than 30 deep"),
        ('"[[[["' * 20_000, "Extra"),
        ('"' + '\\"' * 100_000, "Unterminated"),
        ("{", "line 1 column 2"),
        ("", "Expecting value"),
        ("9" * 5000, "digits"),
    ],
)
def test_json_is_bounded_in_depth(text, message):
    with refused(message):
        json_of(text.encode())
    assert json_of(b'["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "\\"[[[["]')[1] == '"[[[['
    assert json_of(json.dumps([[1]] * 100).encode()) == [[1]] * 100


def test_an_object_of_json_has_no_name_twice():
    with refused("the name 'b' more than once"):
        json_of(b'[{"a": {"b": 1, "c": 2, "b": 1}}]')
    assert json_of(b'[{"b": 1}, {"b": 1}]') == [{"b": 1}] * 2


@pytest.mark.parametrize(
    "text, message",
    [
        ("a = " + "[" * 100_000, "more than 30"),
        ("[a" + ".a" * 20_000 + "]", "more than 500"),
        ("a = {" * 1000, "more than 30"),
        ("a =", "Invalid value"),
        ("\xff", "Invalid"),
    ],
)
def test_toml_is_bounded_in_depth(text, message):
    with refused(message):
        toml_of(text.encode())


def entry(**changes):
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}


def safetensors(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "truncated, or no"),
        (b"\xff" * 20, "truncated, or no"),
        (safetensors([]), "JSON object"),
        (safetensors(b"[" * 1000), "nested"),
        (safetensors({"a": 1}), "'a': 1; need a dtype"),
        (safetensors({"a": entry(dtype=["F32"])}, bytes(4)), "need"),
        (safetensors({"a": entry(shape=[-1])}, bytes(4)), "need"),
        (safetensors({"a": entry(shape=[2])}, bytes(4)), "make"),
        (
            safetensors({"a": entry(data_offsets=[2, 6])}, bytes(4)),
            "within the 4 bytes after the header: otherwise the file is truncated",
        ),
        (safetensors({"a": entry(), "b": entry()}, bytes(4)), "overlaps"),
        (
            safetensors({"a": entry(shape=[0, 10**30], data_offsets=[0, 0])}),
            "dimension|convert|large",
        ),
    ],
)
def test_damaged_safetensors_are_refused(data, message):
    with refused(message, (ValueError, OverflowError)):
        safetensors_of(data)


def test_sizes_kinds_of_files_and_errors_of_one_line(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    assert contents(path, 100) == bytes(100)
    for place, most, message in (
        (path, 99, "has 100 bytes; need at most 99"),
        (tmp_path, 99, "is not a regular file"),
        (tmp_path / "y", 9, "No such file or directory"),
    ):
        with refused(f"{tmp_path}.*: {message}; mend it$", FileError):
            with reading(path, "mend it"):
                contents(place, most)
    with refused("not a regular file"):
        npz_of(tmp_path)


def test_a_byte_order_mark_is_no_part_of_settings():
    assert toml_of(b"\xef\xbb\xbfa = 1") == {"a": 1}
