"""Golden vectors: the same bytes each time, three encodings, judged from C and JavaScript."""

import hashlib
import io
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from refnet.check import vectors
from refnet.check.encodings import ENCODINGS, decode, encode, from_json, to_json
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import TRANSITIONS
from support.arguments import refused
from support.vectors import reference_answers, small

pytestmark = pytest.mark.needs("flint")

CLIENTS = Path(__file__).parents[1] / "support/clients"
PINNED = "d812a7d65fd0d03fcb43b669b7bc3577c1b3f2284320c419f8409df140fa365d"


def test_float64_is_judged_below_the_smallest_number_of_float32(tmp_path):
    """Of a gradient that vanishes: the file's sigma ends there, and zeros are no pass."""
    vectors.write(tmp_path / "golden", small("rnn-vanishing"))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    reference_answers(tmp_path / "golden", theirs, np.float64)
    assert vectors.judge(tmp_path / "golden", theirs)["rnn-vanishing"].passed
    path = theirs / "rnn-vanishing.npz"
    arrays = dict(decode(path)[0])
    arrays["dx"] = np.where(np.arange(len(arrays["dx"]))[:, None, None] < 75, 0, arrays["dx"])
    path.write_bytes(encode(arrays, "npz", {"dtype": "float64"}))
    verdict = vectors.judge(tmp_path / "golden", theirs)["rnn-vanishing"]
    assert verdict.verdict == NOT_ROUNDING and verdict.worst.name == "dx"


def test_catalogue_covers_what_it_says(folder):
    cases = vectors.load(folder)
    nets = [case.net for case in cases.values()]
    for name, values in {
        "cell": {"rnn", "lstm", "gru", "gru_before", "cifg"},
        "readout": {"last", "every", "none"},
        "reduction": {"mean", "sum", "batch_mean"},
        "loss": {"cross_entropy", "squared_error", "none"},
        "layers": {1, 2, 3},
        "projection": {0, 2, 3},
    }.items():
        assert {getattr(net, name) for net in nets if hasattr(net, name)} == values
    assert len({net.activation.name for net in nets}) == len(ACTIVATIONS)
    assert {len(cases[f"stacked-{cell}-784"].batch.x) for cell in ("rnn", "lstm", "gru")} == {784}
    assert len({type(net.transition) for net in nets}) == 1 + len(TRANSITIONS)
    assert any(case.batch.mask is not None for case in cases.values())
    assert any("h0" in case.params for case in cases.values())
    assert any(len(case.batch.x) == 1 for case in cases.values())
    huge = cases["rnn-huge-logits"].outputs.value
    assert abs(huge).max() > 1000
    saturated = cases["rnn-saturated"].states["h"].value
    assert np.median(abs(saturated[1:])) > 0.999
    assert abs(cases["rnn-vanishing"].gradients["x"].value[0]).max() < 1e-100
    assert abs(cases["rnn-exploding"].gradients["x"].value).max() > 1e10


def test_inputs_are_exact_and_kinks_are_met(folder):
    for name, case in vectors.load(folder).items():
        assert {value.dtype.name for value in (*case.params.values(), case.batch.x)} == {"float32"}
        if name.endswith("-kink"):
            assert (case.states["h"].value[:, 0] == 0).all()


@pytest.mark.parametrize(
    "dtype, encoding", [*((np.float32, each) for each in ENCODINGS), (np.float64, "npz")]
)
def test_the_reference_passes_in_every_encoding(folder, few, tmp_path, dtype, encoding):
    golden = folder if encoding == "npz" else few
    reference_answers(golden, tmp_path, dtype, encoding)
    verdicts = vectors.judge(golden, tmp_path)
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
    hashes = {}
    for case in manifest["cases"].values():
        hashes |= case["sha256"]
    assert hashes == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files
    }


def test_three_encodings_hold_the_same(folder):
    for name in ("rnn-last", "lstm-masked", "rnn-wide"):
        first, *others = (decode(folder / f"{name}.{kind}")[0] for kind in ENCODINGS)
        for other in others:
            assert set(first) == set(other)
            for key, value in first.items():
                assert value.dtype == other[key].dtype and value.shape == other[key].shape
                assert value.tobytes() == other[key].tobytes()


@pytest.mark.needs("safetensors")
def test_safetensors_and_numpy_read_them(folder):
    from safetensors.numpy import load_file

    theirs = load_file(folder / "lstm-masked.safetensors")
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
def test_a_number_beyond_its_dtype_is_refused(dtype, number):
    entry = {"shape": [2], "dtype": dtype, "data": [1, number]}
    with refused(f"holds a number that is no {dtype}"):
        from_json(entry)
    assert from_json({**entry, "data": [1, 0]}).tolist() == [1, 0]


def compiled(tmp_path, source=CLIENTS / "net.c", real="float"):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    program = tmp_path / "net"
    options = ["-O2", "-Wall", "-Werror", f"-DREAL={real}", "-lm"]
    subprocess.run(["gcc", source, *options, "-o", program], check=True)
    return program


def agrees(folder, out, least=80):
    """What a client wrote is right: of every stack and of other cases."""
    cases = vectors.load(folder)
    verdicts = {
        name: verdict
        for name, verdict in vectors.judge(folder, out).items()
        if (out / f"{name}.json").exists()
    }
    stacks = {name: case.net for name, case in cases.items() if "stacked" in name}
    assert len(verdicts) >= least and (least < 80 or set(stacks) <= set(verdicts))
    assert {stacks[name].cell for name in stacks if name in verdicts} == {"rnn", "lstm", "gru"}
    assert {verdict.verdict for verdict in verdicts.values()} == {EXPLAINED}, verdicts


@pytest.mark.parametrize("real, every", [("float", 1), ("double", 4)])
def test_client_in_c(folder, tmp_path, real, every):
    program = compiled(tmp_path, real=real)
    for name in [*vectors.load(folder)][::every]:
        status = subprocess.run([program, folder / f"{name}.json", tmp_path / f"{name}.json"])
        assert status.returncode in (0, 2)
    agrees(folder, tmp_path, 80 // every)


def test_client_in_javascript(folder, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    subprocess.run(["node", CLIENTS / "net.js", folder, tmp_path], check=True)
    agrees(folder, tmp_path)


@pytest.mark.parametrize(
    "before, after, convention",
    [
        ("cell->Whh[r * P + j] * h[j]", "cell->Whh[j * P + r] * h[j]", ""),
        (
            "dh[j] += rec * cell->Whh[r * P + j]",
            "dh[j] += rec * cell->Whh[j * P + r]",
            "the gradient that is carried through Whh takes Whh transposed",
        ),
        (
            "dWhh[r * P + j] += rec * h[j]",
            "dWhh[r * P + j] += rec * h[B * P + j]",
            "the gradient of Whh takes h[t+1] for h[t]",
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
def test_a_wrong_client_is_rejected(few, tmp_path, before, after, convention):
    source = (CLIENTS / "net.c").read_text()
    assert before in source
    (tmp_path / "wrong.c").write_text(source.replace(before, after))
    program = compiled(tmp_path, tmp_path / "wrong.c")
    subprocess.run([program, few / "rnn-last.json", tmp_path / "rnn-last.json"], check=True)
    verdict = vectors.judge(few, tmp_path)["rnn-last"]
    assert verdict.verdict == NOT_ROUNDING
    assert convention == "" or verdict.convention == convention


def test_two_results_of_a_case_are_an_error(few, tmp_path):
    for encoding in ("json", "npz"):
        reference_answers(few, tmp_path, encoding=encoding)
    (tmp_path / "lstm-last.json").unlink()
    verdicts = vectors.judge(few, tmp_path)
    assert "two results, rnn-last.json and rnn-last.npz" in verdicts["rnn-last"].note
    assert not verdicts["rnn-last"].passed and verdicts["lstm-last"].passed


def half(data):
    return data[: len(data) // 2]


def pickled(_):
    file = io.BytesIO()
    np.savez(file, dWhh=np.array([{}], object))
    return file.getvalue()


def edited(change):
    """A change of what JSON holds."""

    def damage(data):
        content = json.loads(data)
        change(content)
        return json.dumps(content).encode()

    return damage


def described(change):
    """A change of what the manifest says of a case."""
    return edited(lambda manifest: change(manifest["cases"]["rnn-last"]))


def dWhh(array):
    return b'{"arrays": {"dWhh": {' + array + b"}}}"


DAMAGE = {
    "theirs/rnn-last.json": [
        (None, "no result for this case"),
        ("a folder", "cannot be read"),
        (half, "cannot be read"),
        (bytes(range(256)), "cannot be read"),
        (b"[]", 'it has no "arrays"'),
        (b'{"arrays": ' + b"[" * 100_000, "nested"),
        (b" " * 2**21, "need at most"),
        (b'{"arrays": {}}', "is missing"),
        (b'{"dtype": {}, "arrays": {}}', "none of float16"),
        (lambda data: data.replace(b'"dtype":"float32"', b'"dtype":"int8"'), "int8"),
        (lambda data: data.replace(b'"dWhh"', b'"extra"'), "is not the name of a result"),
        (dWhh(b'"shape": [2], "data": [1]'), "which do not make shape [2]"),
        (dWhh(b'"shape": [1], "data": [null]'), "not a number"),
        (dWhh(b'"shape": [1], "data": ["NaN"]'), "shape"),
        (dWhh(b'"shape": [1], "dtype": [], "data": [1]'), "none of"),
        (dWhh(b'"shape": [1], "data": [1' + b"0" * 400 + b"]"), "is no float64"),
        (
            edited(lambda file: file["arrays"]["dWhh"]["data"].__setitem__(3, "NaN")),
            "not finite, the first at [0, 3]",
        ),
    ],
    "theirs/rnn-last.npz": [
        (half, "cannot be read"),
        (lambda data: data.replace(b"dWhh.npy", b"dWhh.txt"), "is not the name of a result"),
        (pickled, "allow_pickle"),
    ],
    "theirs/rnn-last.safetensors": [
        (lambda data: data[:-8], "cannot be read"),
        (lambda data: data[:5], "cannot be read"),
        ((4).to_bytes(8, "little") + b"[[]]", "JSON object"),
    ],
    "golden/rnn-last.npz": [(None, "is missing"), (b"x", "is altered")],
    "golden/manifest.json": [
        (described(lambda case: case.pop("sha256")), "lacks something"),
        (described(lambda case: case.pop("net")), "lacks something"),
        (described(lambda case: case["net"].update(cell=[])), "another form"),
        (described(lambda case: case["net"].update(kind="x")), "another form"),
        (described(lambda case: case["net"].update(hidden=5)), "manifest.json: case rnn-last"),
        (edited(lambda manifest: manifest["cases"].update({"rnn-last": 3})), "lacks something"),
        (None, "not a manifest"),
        (b"{}", "not a manifest"),
        (b'{"format": "other", "version": 1, "cases": {}}', "another format"),
        (b"[" * 100_000, "not a manifest"),
    ],
}


@pytest.mark.parametrize(
    "place, content, note", [(place, *row) for place, rows in DAMAGE.items() for row in rows]
)
def test_damage_never_passes_and_leaves_the_other_cases(few, tmp_path, place, content, note):
    path, theirs = tmp_path / place, tmp_path / "theirs"
    golden = shutil.copytree(few, tmp_path / "golden")
    theirs.mkdir()
    reference_answers(few, theirs, encoding=path.suffix[1:] if "theirs" in place else "npz")
    data = path.read_bytes()
    path.unlink()
    if content == "a folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content(data) if callable(content) else content)
    if "golden" in place:
        with refused(note):
            vectors.load(golden)
    if "manifest" in note and "case" not in note or note == "another format":
        with refused(note):
            vectors.judge(golden, theirs)
        return
    verdicts = vectors.judge(golden, theirs)
    bad = verdicts.pop("rnn-last")
    assert bad.verdict == NOT_ROUNDING and any(note in part.note for part in bad.parts), bad
    assert {name: verdict.verdict for name, verdict in verdicts.items()} == dict.fromkeys(
        ("lstm-last", "rnn-every"), EXPLAINED
    )


def test_no_file_outside_the_folder_is_read(few, tmp_path):
    golden = shutil.copytree(few, tmp_path / "golden")
    path = golden / "manifest.json"
    path.write_bytes(
        edited(lambda manifest: manifest["cases"].update({"../x": 3}))(path.read_bytes())
    )
    with refused("is missing"):
        vectors.load(golden)


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


def test_a_folder_without_results_is_refused(few, tmp_path):
    with refused("holds no result of any case"):
        vectors.judge(few, tmp_path)
    with refused("is not a folder"):
        vectors.judge(few, tmp_path / "nowhere")
