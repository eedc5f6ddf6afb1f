"""The rows of a study on the disk: torn, damaged, changed, added at once."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from refnet.runs.read import FileError
from refnet.studies.store import Store


@pytest.fixture
def whole(tmp_path):
    """A store of three rows."""
    store = Store(tmp_path / "whole")
    for number in range(3):
        store.append({"key": str(number), "settings": {}, "final": {"accuracy": number / 3}})
    return store


@pytest.mark.parametrize(
    "torn", [b"{", b'{"key": "abc', b'{"key": "abc"', b'{"key": "ab\0\0', b"\0" * 9]
)
def test_a_torn_line_does_not_count_and_is_cut_off(tmp_path, torn):
    store = Store(tmp_path)
    store.append({"key": "one", "settings": {}})
    with open(store.path, "ab") as file:
        file.write(torn)
    assert set(store.rows()) == {"one"}
    store.append({"key": "two", "settings": {}})
    assert set(store.rows()) == {"one", "two"}


def test_a_last_row_that_an_editor_left_without_its_end_counts(whole):
    rows = whole.rows()
    whole.path.write_bytes(whole.path.read_bytes()[:-1])
    assert whole.rows() == rows
    whole.append({"key": "more", "settings": {}})
    assert list(whole.rows()) == [*rows, "more"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.decode().encode("utf-16"),
    ],
    ids=["Mac", "BOM", "UTF-16"],
)
def test_a_file_that_was_saved_otherwise_is_refused_and_left_alone(whole, change):
    whole.path.write_bytes(before := change(whole.path.read_bytes()))
    for call in (whole.rows, lambda: whole.append({"key": "more", "settings": {}})):
        with pytest.raises(
            FileError,
            match="saved in another encoding, or without line feeds "
            "between its lines; put back a whole copy of it",
        ):
            call()
    assert whole.path.read_bytes() == before


def test_line_ends_of_windows_are_read(whole):
    rows = whole.rows()
    whole.path.write_bytes(whole.path.read_bytes().replace(b"\n", b"\r\n"))
    assert whole.rows() == rows


@pytest.mark.parametrize(
    "last",
    [b'{"key": "x", "settings": {}, "sha256": "0"}', b'{"key": "x"}', b"\xff", b"key", b"{}\r{}"],
)
def test_a_last_line_that_no_kill_leaves_is_not_cut_off(whole, last):
    with open(whole.path, "ab") as file:
        file.write(last)
    before = whole.path.read_bytes()
    with pytest.raises(FileError):
        whole.append({"key": "more", "settings": {}})
    assert whole.path.read_bytes() == before


def test_a_row_of_other_settings_is_replaced(whole):
    whole.append({"key": "x", "settings": {"rate": 1}, "made": "before"})
    whole.append({"key": "x", "settings": {"rate": 2}, "made": "then"})
    assert whole.rows()["x"]["made"] == "then"
    whole.append({"key": "x", "settings": {"rate": 2}, "made": "again"})
    assert whole.rows()["x"]["made"] == "then"


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"key"', "Expecting"),
        (b"[" * 100_000, "nested more than"),
        (b"{}", "not a row; need"),
        (b'{"key": "x", "settings": {}, "mean": NaN}', "not JSON compliant"),
        (b'{"key": 3, "settings": {}}', "not a row; need"),
        (b'{"key": "x"}', "not a row; need"),
        (b"\xff", "codec"),
    ],
    ids=["cut", "deep", "empty", "NaN", "number", "no settings", "bytes"],
)
def test_a_damaged_row_is_named_and_nothing_added(tmp_path, line, message):
    store = Store(tmp_path)
    store.append({"key": "one", "settings": {}})
    with open(store.path, "ab") as file:
        file.write(line + b"\n")
    before = store.path.read_bytes()
    for call in (store.rows, lambda: store.append({"key": "two", "settings": {}})):
        with pytest.raises(FileError, match=f"rows.jsonl: line 2: .*{message}.*; remove that line"):
            call()
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["final"].update(accuracy=0.5),
        lambda row: row.pop("sha256"),
        lambda row: row.update(sha256=None),
    ],
    ids=["number", "no digest", "null"],
)
def test_a_changed_row_is_noticed(whole, change):
    lines = whole.path.read_bytes().splitlines()
    row = json.loads(lines[1])
    change(row)
    lines[1] = json.dumps(row, sort_keys=True).encode()
    whole.path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(FileError, match="rows.jsonl: line 2: does not match its own sha256"):
        whole.rows()


def test_rows_are_bounded_in_size(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.append({"key": "one", "settings": {}})
    monkeypatch.setattr("refnet.studies.store.LIMIT", 10)
    with pytest.raises(FileError, match="need at most 10; put back a whole copy of it"):
        store.rows()


def test_many_append_at_once(tmp_path):
    """Threads, each with a store of its own: every row is there, once."""

    def add(number):
        Store(tmp_path).append({"key": str(number % 20), "settings": {}})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert {*Store(tmp_path).rows()} == {str(n) for n in range(20)}
    assert len(Store(tmp_path).path.read_bytes().splitlines()) == 20
