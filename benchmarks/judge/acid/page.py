"""ACID.md's tables, made from the acid test's records; ``benchmarks.readme`` puts them there."""

from collections.abc import Iterator
from textwrap import fill

from benchmarks.judge.acid.faults import faults
from benchmarks.judge.acid.frameworks import FRAMEWORKS
from benchmarks.records import RESULTS, Row, grouped, named_tables, processor, record, rows_in
from refnet.runs.rows import table

FINE = ("explained by rounding", "cannot be judged")
VERDICTS = (*FINE, "suspicious", "not rounding", "refused", "crashed")


def rows() -> Iterator[Row]:
    """All rows, framework by framework."""
    order = [*FRAMEWORKS]
    every = [row for path in (RESULTS / "acid").glob("*.jsonl") for row in rows_in(path)]
    yield from sorted(every, key=lambda row: order.index(row["framework"]))


def label(row: Row) -> str:
    """A framework with its versions, without those of what it only writes models with."""
    known = row["versions"]
    first, *more = (f"{package} {version}" for package, version in known.items())
    return f"{row['framework']} ({', '.join([first, *more])})"


def layer(row: Row) -> tuple[str, str, str]:
    """What rows of a layer have in common."""
    return label(row), row["layer"], row["dtype"]


def informative(row: Row) -> tuple[bool, bool, float]:
    """The order of wrong rows: those with a name, with a location, the largest z."""
    return "convention" in row, "where" in row, float(row["z"])


def acid() -> str:
    """How many of a layer's results have which verdict."""
    shown = []
    for key, group in grouped(rows(), layer).items():
        verdicts = [row["verdict"] for row in group]
        fine = [float(row["z"]) for row in group if row["verdict"] == FINE[0]]
        shown.append([*key, *map(verdicts.count, VERDICTS), max(fine, default=None)])
    header = ["framework", "layer", "dtype", *VERDICTS, "largest z explained"]
    missing = [name for name in FRAMEWORKS if name not in {row["framework"] for row in rows()}]
    rest = fill(f"Not run yet: {'; '.join(missing)}.", 100) + "\n"
    return table(header, shown) + f"\n{rest}" * bool(missing)


def acid_others() -> str:
    """Those that are neither explained nor refused: the worst of each layer and type."""
    shown = []
    for key, group in grouped(rows(), layer).items():
        bad = [row for row in group if row["verdict"] in VERDICTS[2:4]]
        if bad:
            worst = max(bad, key=informative)
            places = [line for line in worst.get("where", ()) if not line.startswith("right")]
            said = worst.get("convention") or "; ".join(places[:2])
            at = f"T = {worst['T']}, H = {worst['H']}" + f", {worst['at']}" * bool(worst["at"])
            theirs, certified = (float(worst[name]) for name in ("theirs", "certified"))
            quantity = f"{worst['worst']}: {theirs:.6g} for {certified:.6g}"
            count = f"{len(bad)} of {len(group)}"
            shown.append([*key, count, at, float(worst["z"]), quantity, said or worst.get("note")])
    header = ["framework", "layer", "dtype", "rows", "worst at", "z", "theirs for certified"]
    return table([*header, "what the judge says"], shown)


def acid_refused() -> str:
    """What frameworks refuse, in their words."""
    seen: dict[tuple[str, ...], list[str]] = {}
    for row in rows():
        if row["verdict"] in ("refused", "crashed"):
            layers = seen.setdefault((label(row), row["dtype"], row["note"][:120]), [])
            if row["layer"] not in layers:
                layers.append(row["layer"])
    shown = [[name, ", ".join(layers), dtype, note] for (name, dtype, note), layers in seen.items()]
    return table(["framework", "layers", "dtype", "it says"], shown)


def acid_machines() -> str:
    """On what it ran."""
    kinds: dict[str, list[str]] = {}
    for row in rows():
        at = row["environment"]
        machine = f"{processor(at['processor'])} ({at['features']}), {at['system']}, Python "
        names = kinds.setdefault(machine + f"{at['python']}, NumPy {at['numpy']}", [])
        if row["framework"] not in names:
            names.append(row["framework"])
    lines = [f"- {kind}: {', '.join(names)}" for kind, names in kinds.items()]
    return "".join(f"{line}\n" for line in lines)


def acid_faults() -> str:
    """Every fault: what is wrong and why, the program, and what it printed."""
    recorded, parts = record("acid_faults"), []
    for entry in faults():
        known = recorded.get(entry.name, {"version": "not run", "output": ""})
        language = "js" if entry.name.endswith(".js") else "python"
        package = entry.package.removeprefix("npm:")
        parts.append(
            f"### {entry.title}\n\n{package} {known['version']}. Known: "
            f"{' '.join(entry.known.split())}.\n\n"
            f"{entry.text.strip()}\n\n```{language}\n{entry.code}\n```\n\n"
            f"```\n{known['output'].rstrip()}\n```\n"
        )
    return "\n".join(parts)


TABLES = named_tables(acid, acid_others, acid_refused, acid_machines, acid_faults)
