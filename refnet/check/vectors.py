"""Golden vectors: exact inputs, correctly rounded results, and what rounding may change.

``write`` makes a folder that any program in any language can be tested against; ``judge``
reads what that program wrote back. Judging needs nothing but NumPy; writing needs the extra
``certify``.
Checked by: tests/check/test_vectors.py, with clients in C and JavaScript in tests/support/clients.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.arithmetic import arithmetic
from refnet.check.catalogue import Case, catalogue
from refnet.check.encodings import ENCODINGS, decode, encode
from refnet.check.given import NoneFits, by_name, judged_types
from refnet.check.manifest import CONVENTIONS
from refnet.check.noise import spread, unit
from refnet.check.verdict import NOT_ROUNDING, UNJUDGED, Judgement, Verdict, compare
from refnet.exact.enclose import Certified, certified_of, certify
from refnet.exact.precision import Enclosure
from refnet.maths.activations import activation
from refnet.matrices.transitions import TRANSITIONS, transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.runs.files import sweep, write_atomically
from refnet.runs.read import DAMAGE, contents, json_of

__all__ = ["catalogue", "foreign", "judge", "load", "results", "write"]


def _describe(net: Net) -> dict[str, Any]:
    """The net in words and numbers, as the manifest explains them."""
    matrix: dict[str, Any] | None = None
    if net.transition is not None:
        matrix = {
            "name": next(
                name for name, known in TRANSITIONS.items() if known is type(net.transition)
            )
        }
        if hasattr(net.transition, "margin"):
            matrix["margin"] = net.transition.margin
    names = ["loss", "reduction"]
    if isinstance(net, FeedforwardNet):
        about: dict[str, Any] = {"kind": "feedforward", "widths": list(net.widths)}
    else:
        about = {"kind": "stacked" if isinstance(net, StackedNet) else "recurrent"}
        names += "cell inputs hidden outputs readout gain".split()
        names += ["layers", "bidirectional"] * isinstance(net, StackedNet)
        names += ["projection"] * bool(net.projection)
    act = {"activation": net.activation.name, "alpha": net.activation.alpha}
    return {**about, "transition": matrix, **act, **{name: getattr(net, name) for name in names}}


def _net(about: dict[str, Any]) -> Net:
    """The net that ``_describe`` described."""
    facts = dict(about)
    kind, alpha = facts.pop("kind"), facts.pop("alpha")
    matrix = facts.pop("transition")
    facts["transition"] = transition(**matrix) if matrix else None
    facts["activation"] = activation(facts["activation"], alpha or None)
    if kind == "feedforward":
        return FeedforwardNet(tuple(facts.pop("widths")), **facts)
    return {"stacked": StackedNet, "recurrent": RecurrentNet}[kind](**facts)


def _rounded_sigma(sigma: Array) -> Array:
    """The nearest power of two: what is random in sigma, by machine, is far below that."""
    with np.errstate(divide="ignore"):
        return np.where(sigma == 0, 0, np.exp2(np.round(np.log2(sigma))))


def _arrays(case: Case) -> Params:
    """Everything about a case, under in., out., radius. and sigma."""
    _, net, params, batch = case
    certified = certify(net, params, batch)
    sigma = spread(certified, np.float32)
    inputs = {**params, "x": batch.x, "y": batch.y}
    if batch.mask is not None:
        inputs["mask"] = batch.mask
    arrays = {f"in.{name}": value for name, value in inputs.items()}
    for name, enclosure in certified.named().items():
        arrays[f"out.{name}"] = enclosure.value
        # half a unit in the last place: a bound, and the same with every version of python-flint
        arrays[f"radius.{name}"] = np.spacing(abs(enclosure.value)) / 2
        arrays[f"sigma.{name}"] = _rounded_sigma(sigma[name])
    return arrays


def write(
    folder: Path | str,
    cases: Iterator[Case] | None = None,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Write every case in the three encodings, and manifest.json with the sha256 of each.

    The same bytes on every machine. An existing folder's files of these names are replaced.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    entries = {}
    for case in cases or catalogue():
        name, net = case[:2]
        if progress is not None:
            progress(name)
        about = {"name": name, "net": _describe(net)}
        arrays = _arrays(case)
        hashes = {}
        for encoding in ENCODINGS:
            data = encode(arrays, encoding, about)
            hashes[f"{name}.{encoding}"] = hashlib.sha256(data).hexdigest()
            write_atomically(folder / f"{name}.{encoding}", methodcaller("write", data))
        entries[name] = {
            "net": about["net"],
            "sha256": hashes,
            "arrays": {
                key: [str(value.dtype), list(value.shape)] for key, value in sorted(arrays.items())
            },
        }
    manifest = {
        "format": "refnet golden vectors",
        "version": 1,
        "conventions": CONVENTIONS,
        "cases": entries,
    }
    text = json.dumps(manifest, sort_keys=True, indent=1) + "\n"
    write_atomically(folder / "manifest.json", methodcaller("write", text.encode()))


def load(folder: Path | str) -> dict[str, Certified]:
    """The cases of a folder that ``write`` made, with ``exact`` the rounded values.

    Raises ValueError if the manifest is not one, or a file is missing or altered.
    """
    folder = Path(folder)
    return {name: _case_of(folder, name, entry)[0] for name, entry in _entries(folder).items()}


def _entries(folder: Path) -> dict[str, Any]:
    """What the manifest says of every case."""
    path = folder / "manifest.json"
    try:
        manifest = json_of(contents(path, 2**24))
        known = manifest["format"] == "refnet golden vectors" and repr(manifest["version"]) == "1"
        cases = dict(manifest["cases"])
    except (OSError, KeyError, TypeError, *DAMAGE) as error:
        raise ValueError(
            f"{path} is not a manifest of golden vectors ({error}); write them with: "
            "refnet vectors write DIR"
        ) from None
    if not known:
        raise ValueError(
            f"{path} is of another format or version; write it again with: refnet vectors write DIR"
        )
    return cases


def _case_of(folder: Path, name: str, entry: Any) -> tuple[Certified, Params]:
    """A case and the sigma of its results; ValueError if its file is missing or altered, or the
    manifest does not describe it."""
    file = folder / f"{name}.npz"
    if file.name != f"{name}.npz" or not file.exists():
        raise ValueError(f"{file} is missing, although the manifest names it")
    try:
        net, expected = _net(entry["net"]), str(entry["sha256"][file.name])
    except (KeyError, TypeError, AttributeError, *DAMAGE) as error:
        raise ValueError(
            f"{folder / 'manifest.json'}: case {name[:80]!r} lacks something, or has "
            f"it in another form ({type(error).__name__}: {error}); write the "
            "vectors again with: refnet vectors write DIR"
        ) from None
    digest = hashlib.sha256(contents(file, 2**26)).hexdigest()
    if digest != expected:
        raise ValueError(
            f"{file} is altered: its sha256 is {digest[:12]}..., the manifest's "
            f"{expected[:12]}...; write the vectors again"
        )
    try:
        return _certified(f"{folder / 'manifest.json'}: case {name}", net, decode(file)[0])
    except KeyError as error:
        raise ValueError(f"{file} has no array {error}; write the vectors again") from None


def _certified(name: str, net: Net, arrays: Params) -> tuple[Certified, Params]:
    """The case and the sigma of its results; ValueError, with ``name``, for arrays that are not
    the net's."""

    def part(prefix: str) -> Params:
        return {
            name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)
        }

    params, values, radius = part("in."), part("out."), part("radius.")
    batch = Batch(params.pop("x"), params.pop("y"), params.pop("mask", None))
    enclosures = {key: Enclosure(value, value, radius[key]) for key, value in values.items()}
    net.admit(name, params, batch.x, batch.mask)
    return certified_of(net, params, batch, enclosures, "ball", 0, 0.0), part("sigma.")


def judge(folder: Path | str, theirs: Path | str) -> dict[str, Verdict]:
    """The verdict on every case, from what another program wrote to ``theirs``.

    ``theirs`` holds NAME.json, NAME.npz or NAME.safetensors for every case it ran, with
    arrays named loss, outputs, h, dWhh, ...; JSON may say "dtype": "float32" beside "arrays".
    A case without a file or with two, or whose golden file or result cannot be read or judged, is
    *not rounding* with a note. A case whose names are all unknown *cannot be judged*. The other
    cases are judged all the same.
    Raises ValueError if ``folder`` has no manifest or ``theirs`` is not a folder with results.
    """
    folder, theirs = Path(folder), Path(theirs)
    if not theirs.is_dir():
        raise ValueError(f"{theirs} is not a folder; it has to hold results such as rnn-last.json")
    entries = _entries(folder)
    if not any(results(theirs, name) for name in entries):
        raise ValueError(
            f"{theirs} holds no result of any case; name the files after the cases, "
            f"such as {next(iter(entries), 'rnn-last')}.json"
        )
    return {name: _judged(folder, name, entry, theirs) for name, entry in entries.items()}


def results(theirs: Path, name: str) -> list[Path]:
    """The files that a case has there, dead links among them."""
    return [path for kind in ENCODINGS if os.path.lexists(path := theirs / f"{name}.{kind}")]


def foreign(theirs: Path, names: Iterable[str]) -> dict[str, str]:
    """The files there that look like results and are of no case, each with what may help."""
    names = list(names)
    known = {path.name for name in names for path in results(theirs, name)} | {"manifest.json"}
    files = {}
    for path in sorted(theirs.iterdir()):
        if path.name not in known and path.suffix[1:].lower() in ENCODINGS:
            near = get_close_matches(path.stem, names, 1)
            files[path.name] = (
                f"did you mean {near[0]}{path.suffix.lower()}?"
                if near
                else ("name files after the cases")
            )
    return files


def _judged(folder: Path, name: str, entry: Any, theirs: Path) -> Verdict:
    paths = results(theirs, name)
    if not paths:
        return _refused("there is no result for this case")
    if len(paths) > 1:
        return _refused(f"it has two results, {paths[0].name} and {paths[1].name}; keep one")
    try:
        certified, sigma = _case_of(folder, name, entry)
        numbers = sum(np.size(enclosure.value) for enclosure in certified.named().values())
        arrays, about = decode(paths[0], 2**20 + 64 * numbers)
        return _verdict(certified, sigma, arrays, about.get("dtype"))
    except NoneFits as error:
        return _refused(f"{paths[0].name}: {error}", UNJUDGED)
    except ValueError as error:
        return _refused(str(error))
    except Exception as error:  # whatever a file holds, the other cases are judged
        return _refused(f"cannot be judged: {type(error).__name__}: {error}")


def _verdict(certified: Certified, sigma: Params, arrays: Params, dtype: Any) -> Verdict:
    if dtype is not None and dtype not in ("float16", "float32", "float64"):
        raise ValueError(f"dtype {dtype!r} is none of float16, float32, float64")
    arrays = by_name(arrays, certified.named())
    types, _ = judged_types(arrays, dtype)
    # below float32's smallest number there are float64's, of which the file says nothing
    least = arithmetic(np.float32).tiny
    small = {
        name: (value == least) & (certified.named()[name].value != 0)
        for name, value in sigma.items()
    }
    finer = (
        spread(certified, np.float64)
        if any(
            sigmas.any() and arithmetic(types.get(name, types[""])).tiny < least
            for name, sigmas in small.items()
        )
        else {}
    )

    def in_type(name: str, value: Array) -> Array:
        # to first order, spreads grow with u, and end at the smallest number
        if name in finer:
            value = np.where(
                small[name], finer[name] * (unit(np.float32) / unit(np.float64)), value
            )
        kind = arithmetic(types.get(name, types[""]))
        grown = np.where(value, np.maximum(value * (kind.u / unit(np.float32)), kind.tiny), 0)
        return np.asarray(np.maximum(grown, unit(np.float64) * abs(certified.named()[name].value)))

    return compare(
        arrays,
        certified,
        dtype=dtype,
        sigma={name: in_type(name, value) for name, value in sigma.items()},
    )


def _refused(note: str, verdict: str = NOT_ROUNDING) -> Verdict:
    part = Judgement("everything", NOT_ROUNDING, np.inf, np.inf, note=note)
    return Verdict(verdict, (part,), "", "")
