"""The tables and figures of Vorontsov et al., under the protocol of their text."""

import os
import time
from dataclasses import replace
from statistics import median

from refnet.runs.read import Record
from refnet.runs.rows import table
from refnet.studies.comparison import stated
from refnet.studies.declared import FINDINGS, declared
from refnet.studies.published import place_of
from refnet.studies.spectra import evolution
from refnet.studies.study import Measurement, Published, Study, View, spread
from refnet.training.experiment import build
from refnet.training.protocols import preset
from refnet.training.steps import Run, step

__all__ = ["STUDIES"]

PROTOCOL = "vorontsov/text"
TITLE_5 = "Table 5 of Vorontsov et al.: run time of SGD and geoSGD, copy task, T = 100"
TABLE_5 = {128: (21.9, 40.4), 500: (46.7, 161.4), 1000: (95.4, 711.2)}


def time_steps(hidden: int, seed: int, steps: int) -> Record:
    """Median seconds of 1000 steps of SGD, and of SGD with geodesic steps on both bases, on the
    copy task at T = 100; the two take turns, so that both see the same machine."""
    runs = {}
    for name, transition in (("sgd", "dense"), ("geosgd", "svd:margin=1")):
        e = build(
            preset(
                "copy",
                protocol=PROTOCOL,
                length=100,
                hidden=hidden,
                seed=seed,
                optimizer="sgd",
                transition=transition,
            )
        )
        runs[name] = (e, Run.start(e)[0])
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(steps + 2):
        for name, (e, state) in runs.items():
            batch = e.task.batch(number, e.config.batch, seed)
            started = time.perf_counter()
            runs[name] = (e, step(e, state, batch)[0])
            taken[name].append(time.perf_counter() - started)
    # the first two steps compile and warm up
    return {name: round(1000 * median(times[2:]), 2) for name, times in taken.items()} | {
        "load": round(os.getloadavg()[0], 1)
    }


TIMINGS = Measurement(
    time_steps,
    {f"{hidden} units": {"hidden": hidden, "steps": 30} for hidden in TABLE_5},
    {"steps": 5},
)


def _timing_table(view: View) -> str:
    lines, ended = [], {}
    for (hidden, (sgd, geosgd)), rows in zip(TABLE_5.items(), TIMINGS.rows(view).values()):
        ended[str(hidden)] = rows
        lines.append(
            [
                hidden,
                spread([row["sgd"] for row in rows], ".1f"),
                sgd,
                spread([row["geosgd"] for row in rows], ".1f"),
                geosgd,
                spread([row["geosgd"] / row["sgd"] for row in rows]),
                f"{geosgd / sgd:.2f}",
                spread([row["load"] for row in rows], ".1f"),
            ]
        )
    said = [] if view.quick else stated(FINDINGS["table-5"], ended)
    return table(
        [
            "units",
            "SGD, s for 1000 median steps",
            "printed (GTX 770)",
            "geoSGD",
            "printed",
            "ratio",
            "printed",
            "load of the machine",
        ],
        lines,
    ) + "".join(f"\n{text}\n" for text in said)


def _ratios(view: View) -> list[Published]:
    numbers = []
    for (sgd, geosgd), (case, rows) in zip(TABLE_5.values(), TIMINGS.rows(view).items()):
        values = tuple(row["geosgd"] / row["sgd"] for row in rows)
        what = f"{case}, geoSGD / SGD"
        numbers.append(
            Published(place_of(TITLE_5), what, geosgd / sgd, values, "table-5", 0.1, False)
        )
    return numbers


_TABLE_3_CODE = replace(declared("table-3-code", evolution).study(), switched=None)


def _table_3_by_the_code(protocol: str) -> Study:
    return _TABLE_3_CODE


STUDIES = [
    Study("table-5", TITLE_5, TIMINGS.jobs, _timing_table, published=_ratios),
    declared("figure-1").study(),
    declared("figure-4").study(),
    declared("table-1", evolution).study(),
    declared("table-2", evolution).study(),
    replace(declared("table-3", evolution).study(), switched=_table_3_by_the_code),
    _TABLE_3_CODE,
    declared("table-4", evolution).study(),
    declared("figure-5").study(),
    declared("appendix").study(),
    declared("copy-10000").study(),
]
