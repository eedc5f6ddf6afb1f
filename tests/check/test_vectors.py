"""Golden vectors: the same bytes each time, three encodings, judged from C and JavaScript."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from refnet.check import vectors
from refnet.check.encodings import ENCODINGS, decode, encode, from_json, to_json
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from support.vectors import reference_answers, small

CLIENTS = Path(__file__).parents[1] / "support/clients"
PINNED = "d812a7d65fd0d03fcb43b669b7bc3577c1b3f2284320c419f8409df140fa365d"


def test_float64_is_judged_below_the_smallest_number_of_float32(tmp_path):
    """Of a gradient that vanishes: the file's sigma ends there, and zeros are no pass."""
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    vectors.write(tmp_path / "golden", small("rnn-vanishing"))
    own = tmp_path / "own"
    own.mkdir()
    reference_answers(tmp_path / "golden", own, np.float64)
    assert vectors.judge(tmp_path / "golden", own)["rnn-vanishing"].passed
    path = own / "rnn-vanishing.npz"
    arrays = dict(decode(path)[0])
    arrays["dx"] = np.where(np.arange(len(arrays["dx"]))[:, None, None] < 75, 0, arrays["dx"])
    path.write_bytes(encode(arrays, "npz", {"dtype": "float64"}))
    verdict = vectors.judge(tmp_path / "golden", own)["rnn-vanishing"]
    assert verdict.verdict == NOT_ROUNDING and verdict.worst.name == "dx"


def test_catalogue_covers_what_it_says(folder):
    cases = vectors.load(folder)
    recurrent = [case.net for case in cases.values() if hasattr(case.net, "cell")]
    assert {net.cell for net in recurrent} == {"rnn", "lstm", "gru", "gru_before", "cifg"}
    assert len({case.net.activation.name for case in cases.values()}) == 10
    assert {net.readout for net in recurrent} == {"last", "every", "none"}
    assert {net.reduction for net in recurrent} == {"mean", "sum", "batch_mean"}
    assert {case.net.loss for case in cases.values()} == {"cross_entropy", "squared_error", "none"}
    assert {getattr(net, "layers", 0) for net in recurrent} == {0, 1, 2, 3}
    assert any(net.projection for net in recurrent)
    assert {len(cases[f"stacked-{cell}-784"].batch.x) for cell in ("rnn", "lstm", "gru")} == {784}
    assert len({type(case.net.transition) for case in cases.values()}) == 9
    assert any(case.batch.mask is not None for case in cases.values())
    assert any("h0" in case.params for case in cases.values())
    assert any(len(case.batch.x) == 1 for case in cases.values())
    huge = cases["rnn-huge-logits"].outputs.value
    assert abs(huge).max() > 1000
    saturated = cases["rnn-saturated"].states["h"].value
    assert np.median(abs(saturated[1:])) > 0.999
    assert abs(cases["rnn-vanishing"].gradients["x"].value[0]).max() < 1e-100
    assert abs(cases["rnn-exploding"].gradients["x"].value).max() > 1e10


def test_inputs_are_exact_in_float32(folder):
    for case in vectors.load(folder).values():
        for value in (*case.params.values(), case.batch.x):
            assert value.dtype == np.float32


def test_kinks_are_met_exactly(folder):
    for name, case in vectors.load(folder).items():
        if name.endswith("-kink"):
            assert (case.states["h"].value[:, 0] == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_reference_passes_in_every_encoding(folder, tmp_path, dtype, encoding):
    reference_answers(folder, tmp_path, dtype, encoding)
    verdicts = vectors.judge(folder, tmp_path)
    assert {name for name, verdict in verdicts.items() if not verdict.passed} == set()
    assert {verdict.dtype for verdict in verdicts.values()} == {np.dtype(dtype).name}


def test_same_bytes_each_time(folder, tmp_path):
    vectors.write(tmp_path, small("rnn-last", "lstm-masked"))
    again = sorted(path.name for path in tmp_path.iterdir() if path.name != "manifest.json")
    assert len(again) == 6
    for name in again:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_bytes_are_those_of_every_machine(folder):
    """Pinned: a machine that writes other bytes has another catalogue, and must say so."""
    data = (folder / "rnn-last.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == PINNED


def test_manifest_has_every_hash(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {path.name for path in folder.iterdir()} - {"manifest.json"}
    hashes = {
        name: digest
        for case in manifest["cases"].values()
        for name, digest in case["sha256"].items()
    }
    assert set(hashes) == files
    for name in files:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == hashes[name]


def test_three_encodings_hold_the_same(folder):
    for name in ("rnn-last", "lstm-masked", "rnn-wide"):
        first, *others = (decode(folder / f"{name}.{kind}")[0] for kind in ENCODINGS)
        for other in others:
            assert set(first) == set(other)
            for key, value in first.items():
                assert value.dtype == other[key].dtype and value.shape == other[key].shape
                assert value.tobytes() == other[key].tobytes()


def test_safetensors_and_numpy_read_them(folder):
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    theirs = numpy.load_file(folder / "lstm-masked.safetensors")
    ours, _ = decode(folder / "lstm-masked.safetensors")
    assert set(theirs) == set(ours)
    assert all((theirs[name] == ours[name]).all() for name in ours)
    with np.load(folder / "lstm-masked.npz", allow_pickle=False) as archive:
        assert all((archive[name] == ours[name]).all() for name in ours)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_order_in_memory_does_not_matter(tmp_path, encoding):
    """The plain safetensors writer corrupts F-ordered arrays, as those of scipy's qr."""
    c = np.arange(6.0).reshape(2, 3)
    for array in (c, np.asfortranarray(c), np.repeat(c, 2, axis=1)[:, ::2], c.astype(">f8")):
        data = encode({"a": array.astype(array.dtype.newbyteorder("="), order="K")}, encoding, {})
        (tmp_path / f"f.{encoding}").write_bytes(data)
        assert (decode(tmp_path / f"f.{encoding}")[0]["a"] == c).all()


def test_a_byte_order_mark_is_no_part_of_the_json(tmp_path):
    """Editors and shells of Windows begin files with it."""
    (tmp_path / "f.json").write_bytes(b"\xef\xbb\xbf" + encode({"a": np.arange(3.0)}, "json", {}))
    assert (decode(tmp_path / "f.json")[0]["a"] == np.arange(3.0)).all()


def test_json_round_trips_every_float():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**63, 2000, dtype=np.int64).view(np.float64)
    values = np.concatenate([bits, -bits, [np.nan, np.inf, -np.inf, 0, -0.0, 5e-324]])
    back = from_json(json.loads(json.dumps(to_json(values), allow_nan=False)))
    assert back.tobytes() == np.where(np.isnan(values), np.nan, values).tobytes()


@pytest.mark.parametrize(
    "dtype, number",
    [("int64", 0.5), ("int64", "NaN"), ("int64", 2**63), ("bool", 2), ("float64", 10**400)],
)
def test_a_number_that_its_dtype_has_not_got_is_refused(dtype, number):
    entry = {"shape": [2], "dtype": dtype, "data": [1, number]}
    with pytest.raises(ValueError, match=f"holds a number that is no {dtype}"):
        from_json(entry)
    assert from_json({**entry, "data": [1, 0]}).tolist() == [1, 0]


def compiled(tmp_path, real):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    program = tmp_path / "net"
    subprocess.run(
        [
            "gcc",
            "-O2",
            "-Wall",
            "-Werror",
            f"-DREAL={real}",
            CLIENTS / "net.c",
            "-lm",
            "-o",
            program,
        ],
        check=True,
    )
    return program


def verdicts_of(folder, out):
    return {
        name: verdict
        for name, verdict in vectors.judge(folder, out).items()
        if (out / f"{name}.json").exists()
    }


@pytest.mark.parametrize("real", ["float", "double"])
def test_client_in_c(folder, tmp_path, real):
    program = compiled(tmp_path, real)
    out = tmp_path / "out"
    out.mkdir()
    for name in vectors.load(folder):
        status = subprocess.run([program, folder / f"{name}.json", out / f"{name}.json"])
        assert status.returncode in (0, 2)
    verdicts = verdicts_of(folder, out)
    assert len(verdicts) >= 80 and {
        case.net.cell for case in vectors.load(folder).values() if hasattr(case.net, "layers")
    } == {"rnn", "lstm", "gru"}
    assert {name for name in vectors.load(folder) if "stacked" in name} <= set(verdicts)
    assert {verdict.verdict for verdict in verdicts.values()} == {EXPLAINED}, verdicts


def test_client_in_javascript(folder, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    subprocess.run(["node", CLIENTS / "net.js", folder, tmp_path], check=True)
    verdicts = verdicts_of(folder, tmp_path)
    assert len(verdicts) >= 80 and {
        case.net.cell for case in vectors.load(folder).values() if hasattr(case.net, "layers")
    } == {"rnn", "lstm", "gru"}
    assert {name for name in vectors.load(folder) if "stacked" in name} <= set(verdicts)
    assert {verdict.verdict for verdict in verdicts.values()} == {EXPLAINED}, verdicts


@pytest.mark.parametrize(
    "before, after, convention",
    [
        ("cell->Whh[r * P + j] * h[j]", "cell->Whh[j * P + r] * h[j]", ""),
        (
            "dh[j] += rec * cell->Whh[r * P + j]",
            "dh[j] += rec * cell->Whh[j * P + r]",
            "Whh is transposed in the backward recursion only",
        ),
        (
            "dWhh[r * P + j] += rec * h[j]",
            "dWhh[r * P + j] += rec * h[B * P + j]",
            "the gradient of Whh takes h[t] for h[t-1]",
        ),
        (
            "case TANH: return 1 - h * h",
            "case TANH: return 1 - a * a",
            "tanh' is taken of a where h belongs",
        ),
        ("for (int s = T - 1; s >= 0; --s)", "for (int s = T - 1; s > 0; --s)", ""),
        (
            "dbh[r] += d;",
            "dbh[r] += 2 * d;",
            "dbh is doubled: the gradients of two biases are added",
        ),
    ],
    ids=["W transposed forward", "W transposed back", "h[t]", "tanh'", "first step", "two biases"],
)
def test_a_wrong_client_is_found_out(few, tmp_path, before, after, convention):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source = (CLIENTS / "net.c").read_text()
    assert before in source
    (tmp_path / "wrong.c").write_text(source.replace(before, after))
    subprocess.run(
        ["gcc", "-O1", tmp_path / "wrong.c", "-lm", "-o", tmp_path / "wrong"], check=True
    )
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run([tmp_path / "wrong", few / "rnn-last.json", out / "rnn-last.json"], check=True)
    verdict = vectors.judge(few, out)["rnn-last"]
    assert verdict.verdict == NOT_ROUNDING
    assert convention == "" or verdict.convention == convention


def test_of_two_results_none_is_picked(few, tmp_path):
    for encoding in ("json", "npz"):
        reference_answers(few, tmp_path, encoding=encoding)
    (tmp_path / "lstm-last.json").unlink()
    found = vectors.judge(few, tmp_path)
    assert "two results, rnn-last.json and rnn-last.npz" in found["rnn-last"].note
    assert not found["rnn-last"].passed and found["lstm-last"].passed


@pytest.mark.parametrize(
    "encoding, damage, note",
    [
        ("json", lambda data: data[: len(data) // 2], "cannot be read"),
        ("npz", lambda data: data[: len(data) // 2], "cannot be read"),
        ("safetensors", lambda data: data[:-8], "cannot be read"),
        ("safetensors", lambda data: data[:5], "cannot be read"),
        ("json", lambda data: b"[]", 'it has no "arrays"'),
        ("json", lambda data: data.replace(b'"dtype":"float32"', b'"dtype":"int8"'), "int8"),
        ("json", lambda data: b'{"arrays": {"dWhh": {"shape": [2], "data": [1]}}}', "2"),
        (
            "json",
            lambda data: b'{"arrays": {"dWhh": {"shape": [1], "data": [null]}}}',
            "not a number",
        ),
        ("json", lambda data: b'{"arrays": {"dWhh": {"shape": [1], "data": ["NaN"]}}}', "shape"),
        ("json", lambda data: b'{"arrays": {}}', "is missing"),
        ("json", lambda data: b'{"arrays": ' + b"[" * 100_000, "nested"),
        (
            "json",
            lambda data: b'{"arrays": {"dWhh": {"shape": [1], "dtype": [], "data": [1]}}}',
            "none of",
        ),
        ("json", lambda data: b'{"dtype": {}, "arrays": {}}', "none of float16"),
        ("json", lambda data: data.replace(b'"dWhh"', b'"extra"'), "is not the name of a result"),
        ("json", lambda data: b" " * 2**21, "need at most"),
        ("npz", lambda data: data.replace(b"dWhh.npy", b"dWhh.txt"), "is not the name of a result"),
        ("safetensors", lambda data: (4).to_bytes(8, "little") + b"[[]]", "JSON object"),
    ],
)
def test_damaged_results_never_pass(few, tmp_path, encoding, damage, note):
    reference_answers(few, tmp_path, encoding=encoding)
    path = tmp_path / f"rnn-last.{encoding}"
    path.write_bytes(damage(path.read_bytes()))
    verdict = vectors.judge(few, tmp_path)["rnn-last"]
    assert verdict.verdict == NOT_ROUNDING
    assert any(note in part.note for part in verdict.parts), verdict


def test_one_case_that_cannot_be_judged_leaves_the_others(few, tmp_path, monkeypatch):
    reference_answers(few, tmp_path)
    compare = vectors.compare

    def failing(arrays, certified, **options):
        if certified.net.cell == "lstm":
            raise AttributeError("planted")
        return compare(arrays, certified, **options)

    monkeypatch.setattr(vectors, "compare", failing)
    verdicts = vectors.judge(few, tmp_path)
    assert "AttributeError: planted" in verdicts.pop("lstm-last").worst.note
    assert {verdict.verdict for verdict in verdicts.values()} == {EXPLAINED}


def spoil_case(folder, change):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest["cases"])
    path.write_text(json.dumps(manifest))


def test_nan_and_missing_results_never_pass(few, tmp_path):
    reference_answers(few, tmp_path, encoding="json")
    path = tmp_path / "rnn-last.json"
    content = json.loads(path.read_text())
    content["arrays"]["dWhh"]["data"][3] = "NaN"
    path.write_text(json.dumps(content))
    (tmp_path / "lstm-last.json").unlink()
    verdicts = vectors.judge(few, tmp_path)
    assert "not finite, the first at [0, 3]" in verdicts["rnn-last"].worst.note
    assert "no result for this case" in verdicts["lstm-last"].worst.note
    assert {
        verdict.verdict
        for name, verdict in verdicts.items()
        if name not in ("rnn-last", "lstm-last")
    } == {EXPLAINED}


def test_pickles_are_not_opened(few, tmp_path):
    reference_answers(few, tmp_path, encoding="npz")
    np.savez(tmp_path / "rnn-last.npz", dWhh=np.array([{}], object))
    verdict = vectors.judge(few, tmp_path)["rnn-last"]
    assert verdict.verdict == NOT_ROUNDING and "allow_pickle" in verdict.worst.note


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda d: (d / "manifest.json").unlink(), "not a manifest"),
        (lambda d: (d / "manifest.json").write_text("{}"), "not a manifest"),
        (lambda d: (d / "manifest.json").write_text("{"), "not a manifest"),
        (
            lambda d: (d / "manifest.json").write_text(
                '{"format": "other", "version": 1, "cases": {}}'
            ),
            "another format",
        ),
        (lambda d: (d / "manifest.json").write_text('{"cases": ' + "[" * 100000), "not a manifest"),
        (lambda d: (d / "manifest.json").write_text("[" * 100_000), "not a manifest"),
    ],
)
def test_damaged_vectors_are_refused(few, tmp_path, spoil, message):
    copy = tmp_path / "copy"
    shutil.copytree(few, copy)
    spoil(copy)
    with pytest.raises(ValueError, match=message):
        vectors.judge(copy, few)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda cases: cases["rnn-last"].pop("sha256"), "lacks something"),
        (lambda cases: cases["rnn-last"].pop("net"), "lacks something"),
        (lambda cases: cases["rnn-last"]["net"].update(cell=[]), "another form"),
        (lambda cases: cases.update({"rnn-last": 3}), "lacks something"),
        (lambda cases: cases.update({"../x": 3}), "is missing"),
    ],
)
def test_a_case_that_the_manifest_does_not_describe_is_refused(few, tmp_path, change, message):
    copy = tmp_path / "copy"
    shutil.copytree(few, copy)
    spoil_case(copy, change)
    with pytest.raises(ValueError, match=message):
        vectors.load(copy)
    reference_answers(few, tmp_path)
    verdicts = vectors.judge(copy, tmp_path)
    assert verdicts["lstm-last"].verdict == EXPLAINED


def test_a_folder_without_results_is_refused(few, tmp_path):
    with pytest.raises(ValueError, match="holds no result of any case"):
        vectors.judge(few, tmp_path)
    with pytest.raises(ValueError, match="is not a folder"):
        vectors.judge(few, tmp_path / "nowhere")


@pytest.mark.parametrize(
    "spoil, note",
    [
        (lambda golden, own: (golden / "rnn-last.npz").unlink(), "is missing"),
        (lambda golden, own: (golden / "rnn-last.npz").write_bytes(b"x"), "is altered"),
        (lambda golden, own: own.write_text('{"arrays": ' + "[" * 100000), "nested"),
        (
            lambda golden, own: own.write_text(
                '{"arrays": {"dWhh": {"shape": [1], "data": [1' + "0" * 400 + "]}}}"
            ),
            "is no float64",
        ),
        (
            lambda golden, own: own.write_text(
                '{"arrays": {"dWhh": {"shape": [1], "dtype": [], "data": [1]}}}'
            ),
            "",
        ),
        (lambda golden, own: own.write_text('{"dtype": ["x"], "arrays": {}}'), "none of float16"),
        (lambda golden, own: (own.unlink(), own.mkdir()), "cannot be read"),
        (lambda golden, own: own.write_bytes(bytes(range(256))), "cannot be read"),
    ],
)
def test_one_bad_file_does_not_end_the_judgement(few, tmp_path, spoil, note):
    golden, theirs = tmp_path / "golden", tmp_path / "theirs"
    shutil.copytree(few, golden)
    theirs.mkdir()
    reference_answers(few, theirs, encoding="json")
    spoil(golden, theirs / "rnn-last.json")
    verdicts = vectors.judge(golden, theirs)
    assert set(verdicts) == {"rnn-last", "lstm-last", "rnn-every"}
    bad = verdicts.pop("rnn-last")
    assert bad.verdict == NOT_ROUNDING and note in bad.worst.note
    assert all(verdict.passed for verdict in verdicts.values())


def test_gradients_that_are_exactly_zero_are_judged(tmp_path):
    """After one step from h0 = 0, dWhh is 0: another value for it is a bug, not a crash."""
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    golden, theirs = tmp_path / "golden", tmp_path / "theirs"
    vectors.write(golden, small("rnn-one-step"))
    theirs.mkdir()
    reference_answers(golden, theirs)
    assert vectors.judge(golden, theirs)["rnn-one-step"].passed
    arrays = decode(theirs / "rnn-one-step.npz")[0]
    arrays["dWhh"] = arrays["dWhh"] + np.float32(1e-3)
    (theirs / "rnn-one-step.npz").write_bytes(encode(arrays, "npz", {}))
    assert vectors.judge(golden, theirs)["rnn-one-step"].verdict == NOT_ROUNDING


def test_each_array_of_a_file_is_judged_by_its_own_type(few, tmp_path):
    reference_answers(few, tmp_path, np.float64)
    arrays = decode(tmp_path / "rnn-last.npz")[0]
    arrays["dby"] = arrays["dby"].astype(np.float16)
    (tmp_path / "rnn-last.npz").write_bytes(encode(arrays, "npz", {}))
    verdict = vectors.judge(few, tmp_path)["rnn-last"]
    assert verdict.passed and verdict.dtype == "float16, float64"
    arrays["dWhh"] = arrays["dWhh"] * (1 + 5e-4)
    (tmp_path / "rnn-last.npz").write_bytes(encode(arrays, "npz", {}))
    assert vectors.judge(few, tmp_path)["rnn-last"].verdict == NOT_ROUNDING
