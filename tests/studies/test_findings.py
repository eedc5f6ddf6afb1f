"""What is said of runs: the rule, and every finding under it."""

import re
from math import log, sqrt

import numpy as np
import pytest

from benchmarks import studies
from refnet.studies.catalogue import STUDIES
from refnet.studies.comparison import (
    ONE_RUN,
    REPEATED,
    Claim,
    Finding,
    Of,
    Verdict,
    ahead,
    compare,
    slower,
    solved,
    stated,
)
from refnet.studies.declared import FINDINGS
from refnet.studies.ladder import NETS, TABLES
from refnet.studies.study import View
from refnet.training.papers import SYNTHETIC

ALL = [(study, finding) for study, findings in FINDINGS.items() for finding in findings]


def means(more, less):
    """A rule that is too bold."""
    return np.mean(more) > np.mean(less)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 5), (3, 2), (3, None)])
@pytest.mark.parametrize("rule, errs", [(compare, False), (means, True)])
def test_the_rule_errs_as_seldom_as_it_says(sizes, rule, errs):
    """Of kinds of runs that differ by nothing up to three standard deviations: how often a claim
    holds and a repetition has it the other way round."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for difference in (0, 0.5, 1, 2, 3):
        turned, trials = 0, 1000
        for _ in range(trials):
            (more, less), again = (
                [
                    difference + rng.normal(size=sizes[0]),
                    rng.normal(size=sizes[1]) if sizes[1] else 0.0,
                ]
                for _ in range(2)
            )
            turned += bool(rule(list(more), list(less) if sizes[1] else less)) and bool(
                np.mean(again[0]) < np.mean(again[1])
            )
        worst = max(worst, turned / trials)
    # three standard deviations of a count of 1,000
    assert (worst > 1 / 40 + 3 * sqrt(1 / 40 / 1000)) == errs, worst


@pytest.mark.parametrize(
    "more, less, by, floor, verdict",
    [
        ([5, 6, 7], [1, 2, 3], 0, 0, Verdict.HOLDS),
        ([1, 2, 3], [5, 6, 7], 0, 0, Verdict.NO),
        ([5, 6, 7], [1, 2, 3], 3, 0, Verdict.NO),
        ([5, 6, 7], [1, 2, 3], 0, 5, Verdict.NO),
        ([3, 3, 3], [2, 2, 2], 0, 0, Verdict.HOLDS),
        ([3, 3, 3], [2, 2, 2], 0, 1, Verdict.NO),
        ([9, 6, 3], [1, 2, 8], 0, 0, Verdict.NO),
        ([2], [1, 1, 1], 0, 0, Verdict.ONE_RUN),
        ([1], [2], 0, 0, Verdict.NO),
        ([2], 1, 0, 0, Verdict.ONE_RUN),
        (1, [2], 0, 0, Verdict.NO),
        ([9], [1], 0, 2, Verdict.ONE_RUN),
        ([9], [1], 0, 3, Verdict.NO),
        ([], 1, 0, 0, Verdict.NO),
        ([2, 2], [], 0, 0, Verdict.NO),
        ([1, 2], [1, 2], 0, 0, Verdict.NO),
        ([float("nan"), 1], 0, 0, 0, Verdict.NO),
    ],
)
def test_what_runs_say_of_a_claim(more, less, by, floor, verdict):
    assert compare(more, less, by, floor) is verdict


def run(iterations, state="solved", **best):
    return {"state": state, "iterations": iterations, "best": best, "final": best}


def test_a_run_that_did_not_solve_its_task_is_slow_and_never_fast():
    rows = {"slow": [run(9000, "finished")] * 3, "fast": [run(n) for n in (100, 110, 90)]}
    assert slower("slow", "fast", 40).verdict(rows) is Verdict.HOLDS
    assert slower("slow", "fast", 100).verdict(rows) is Verdict.NO
    assert slower("fast", "slow").verdict(rows) is Verdict.NO
    assert solved("fast", 1000).verdict(rows) is Verdict.HOLDS
    assert solved("fast", 120).verdict(rows) is Verdict.NO
    assert solved("slow", 10_000).verdict(rows) is Verdict.NO
    for lost in (run(100, "diverged"), run(100, "finished")):
        assert solved("fast", 1000).verdict({"fast": [*rows["fast"], lost]}) is Verdict.NO


def test_a_sentence_says_of_itself_that_it_has_one_run():
    more, settings = Finding("a", "More.", (ahead(float, "a", "b", 0),)), Finding("b", "Set.")
    for rows, said in (
        ({"a": [3, 4, 3], "b": [1, 1, 2]}, ["More."]),
        ({"a": [3]}, []),
        ({}, []),
        ({"a": [3], "b": [1]}, [ONE_RUN + "More."]),
        ({"a": [3, 4, 3], "b": [3, 1, 2]}, []),
        ({"a": [1, 1, 2], "b": [3, 4, 3]}, []),
    ):
        assert stated([more, settings], rows) == [*said, "Set."]


def recorded(study):
    """The recorded rows of a study that have ended, by the labels that its findings have."""
    row_of, rows = studies.recorded(study), {}
    for job in study.jobs(View(seeds=studies.seeds(study))):
        label = re.sub(r"( units)?, seed \d+$", "", job.name)
        rows.setdefault(label, [])
        if row := row_of(job):
            rows[label].append(row)
    return rows


def labels(study):
    if study in TABLES:
        return {f"{task}, {method}" for task in SYNTHETIC for method in NETS.values()}
    return set(recorded(study))


def sides(claim):
    return [side for side in (claim.more, claim.less) if isinstance(side, Of)]


@pytest.mark.parametrize("study, finding", ALL, ids=[f"{name}: {each.name}" for name, each in ALL])
def test_every_finding_is_of_cells_that_there_are(study, finding):
    """And what compares has claims, which only the rule decides."""
    assert [each.name for each in FINDINGS[study]].count(finding.name) == 1
    assert all(type(claim) is Claim and sides(claim) for claim in finding.claims)
    known = labels(STUDIES[study])
    for side in (side for claim in finding.claims for side in sides(claim)):
        assert side.label in known
    words = r"\b(than|ahead|faster|slower|above|below|behind|solves?|solved|learns?|reache?s?)\b"
    assert finding.claims or not re.search(words, finding.text), "a sentence without claims"


def test_every_sentence_beneath_a_table_is_a_finding():
    """Of the rows as recorded, whatever a table is followed by is among the findings, or has no
    comparison: a heading, a table, or what is said of settings and of errors."""
    texts = {text for _, finding in ALL for text in (finding.text, ONE_RUN + finding.text)}
    for study in STUDIES.values():
        text = study.table(View(studies.recorded(study), studies.seeds(study)))
        said = {
            line.removeprefix("- ") for line in text.splitlines() if line and line[0] not in "|#"
        }
        others = " ".join(said - texts)
        assert not re.search(r"\b(faster|slower|ahead of|behind|better|worse|suits)\b", others)
        assert study.name not in FINDINGS or said & texts


@pytest.mark.parametrize(
    "study, finding",
    [(study, each) for study, each in ALL if each.claims if STUDIES[study] not in TABLES],
)
def test_rows_that_reverse_a_comparison_take_the_sentence_off(study, finding):
    """Each claim of two cells with their rows exchanged, and each with a cell's rows gone; with a
    second seed that blurs it: nothing is said."""
    rows = recorded(STUDIES[study])
    before = stated([finding], rows)
    for claim in finding.claims:
        assert stated([finding], {**rows, sides(claim)[0].label: []}) == []
        if len(sides(claim)) == 2 and before and claim.by >= 0:
            more, less = (side.label for side in sides(claim))
            assert stated([finding], {**rows, more: rows[less], less: rows[more]}) == []
            assert (
                stated(
                    [finding],
                    {
                        **rows,
                        more: [*rows[more], *rows[less]] * 2,
                        less: [*rows[less], *rows[more]] * 2,
                    },
                )
                == []
            )


def steps(*iterations):
    return [run(n, "finished" if n == 20_000 else "solved") for n in iterations]


@pytest.mark.parametrize(
    "none, said",
    [
        ((8000, 5200, 20_000), True),
        ((8000, 5200, 1000), False),
        ((900, 5200, 20_000), False),
        ((800, 700, 600), False),
        ((), False),
    ],
)
def test_weaker_penalties_are_slower_only_beyond_their_spread(none, said):
    rows = {
        "factorised T = 500, lambda 1": steps(900, 1200, 1100),
        "factorised T = 500, lambda 0.1": steps(800, 1000, 800),
        "factorised T = 500, lambda 0": steps(*none),
    }
    (finding,) = (each for each in FINDINGS["figure-4"] if each.name == "weak penalties")
    assert stated([finding], rows) == [finding.text] * said


@pytest.mark.parametrize(
    "name, reached, said",
    [
        ("table-i", {"plain": (10, 10, 10), "open": (140, 140, 140)}, "goes beyond the printed"),
        ("table-i", {"plain": (10, 10, 10), "open": (80, 140, 140)}, ""),
        ("table-i", {"plain": (10, 10, 10), "open": (70, 60, 70)}, ""),
        ("table-i", {"plain": (10, 60, 10), "open": (140, 140, 140)}, ""),
        ("table-i", {"plain": (10,), "open": (140,)}, ONE_RUN + "With the code's default"),
        ("table-i", {}, ""),
        (
            "table-i-text",
            {
                "plain": (40,),
                "open": (80,),
                "oinit": (60,),
                "temporal-order-3bit, plain": (20,),
                "temporal-order-3bit, open": (90,),
                "temporal-order-3bit, oinit": (70,),
                "random-permutation, oinit": (40,),
            },
            ONE_RUN + "On temporal order",
        ),
        ("table-i-text", {"plain": (40,), "open": (90,), "oinit": (60,)}, ""),
        ("table-i-sgd", {"plain": (10, 10, 10), "open": (140, 140, 140)}, ""),
    ],
)
def test_what_is_said_of_table_i_is_what_its_lengths_say(name, reached, said):
    def row_of(job):
        task, method, length, seed = re.fullmatch(
            r"(.*), (.*), T = (\d+), seed (\d+)", job.name
        ).groups()
        ends = reached.get(f"{task}, {method}") or reached.get(method)
        if ends is None or int(seed) >= len(ends):
            return None
        return {"state": "solved" if int(length) <= ends[int(seed)] else "finished", "best": {}}

    text = STUDIES[name].table(View(row_of, 3))
    notes = [each.text for each in FINDINGS.get(name, ()) if each.text in text]
    assert len(notes) == bool(said) and said in text


def test_the_spread_of_repetitions_is_that_of_recorded_runs_that_differ():
    known = {}
    for study in STUDIES.values():
        for row in studies.store_of(study).rows().values():
            if row.get("state") == "solved":
                known.setdefault(row["key"], []).append(log(row["iterations"]))
    twice = [np.var(values, ddof=1) for values in known.values() if len({*values}) > 1]
    assert len(twice) > 10 and 0.5 * REPEATED < sqrt(np.mean(twice)) <= REPEATED


def test_the_page_counts_what_rows_know_of_their_machines(tmp_path, monkeypatch):
    from refnet.studies.store import Store, line_of

    monkeypatch.setattr(studies, "FOLDER", tmp_path)
    rows = [
        {
            "key": key,
            "settings": {},
            "commit": "",
            "state": "solved",
            "iterations": at,
            "best": {},
            "environment": facts,
            **more,
        }
        for key, at, facts, more in (
            ("a", 1, {}, {}),
            ("b", 2, {"processor": "znver4"}, {}),
            ("c", 3, {"processor": "znver4"}, {"machines": ["znver4 0, Linux"]}),
        )
    ]
    for name, lines in (("table-iii", rows), ("table-iv", [rows[0], {**rows[1], "iterations": 9}])):
        (tmp_path / name).mkdir()
        Store(tmp_path / name).path.write_bytes(b"".join(map(line_of, lines)))
    text = studies.origins()
    assert "Of 5 rows 3 name their processor, and 1 its" in text
    assert "2 runs are recorded in two studies: 1 of them ended otherwise" in text
