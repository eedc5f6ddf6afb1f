"""What a study says while its runs go on."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType

from refnet.studies import costs, runner
from refnet.studies.progress import progress
from refnet.studies.runner import run
from refnet.studies.store import Store
from refnet.studies.work import begun
from refnet.training import loop
from support.studies import slow_study, tiny_jobs, tiny_study


def test_the_whole_and_each_run_have_their_time_left(tmp_path):
    jobs, store = tiny_jobs(), Store(tmp_path)
    loop.train(replace(jobs[0].config, iterations=20), store.unfinished(jobs[0].key) / "run")
    keys = {job.key: job for job in jobs}

    def text(going, left=tuple(keys), measured=MappingProxyType({})):
        return progress(
            keys, left, going, store, lambda job: store.done(job, store.rows()), {}, measured
        ).splitlines()

    seconds = begun(jobs[0], store)["seconds"]
    each = f"{seconds / 60:.1f} min at most left"
    whole, first = text([jobs[0].key])
    assert whole == f"0 of 3 runs done; {5 * seconds / 60:.1f} min at most left"
    assert first == f"  seed 0: 20 of 40 iterations, {each}"
    # two at a time: the longest of 40, 40 and 20 iterations, or half of their sum
    assert text([job.key for job in jobs[:2]])[::2] == [
        f"0 of 3 runs done; {max(2, 2.5) * seconds / 60:.1f} min at most left",
        f"  seed 1: begun, {2 * seconds / 60:.1f} min at most left",
    ]
    # with more processes than runs, the longest alone
    assert text([job.key for job in jobs])[0] == (
        f"0 of 3 runs done; {2 * seconds / 60:.1f} min at most left"
    )
    assert text([], [jobs[0].key])[0] == f"0 of 3 runs done; {each}"  # the others have failed
    # its own pace counts, not what was measured before
    assert text([], [jobs[0].key], {costs.kind(jobs[0]): 1e6})[0].endswith(each)


def test_what_was_measured_is_the_time_of_runs_that_were_never_made(tmp_path):
    jobs, store = tiny_jobs(number=2), Store(tmp_path)
    keys = {job.key: job for job in jobs}
    for measured, said in (
        ({}, "0 of 2 runs done; no time known of 2"),
        ({costs.kind(jobs[0]): 90.0}, "0 of 2 runs done; 2.0 h at most left"),
    ):
        assert progress(keys, keys, [], store, lambda job: None, {}, measured) == said


def test_a_study_tells_its_progress_again_and_again(tmp_path, monkeypatch):
    """At once, and in between: also of runs that have no evaluations."""
    monkeypatch.setattr(runner, "EVERY", 0.01)
    told = []
    with ThreadPoolExecutor(1) as pool:
        assert run(slow_study(2), Store(tmp_path / "slow"), executor=pool, tell=told.append) == {}
    assert told[0].startswith("0 of 2 runs done; no time known of 2\n  slow 0: begun")
    ends = [n for n, text in enumerate(told) if text.startswith("[")]
    assert len(ends) == 2 and ends[0] > 2 and "1 of 2 runs done; " in told[ends[0] + 1]
    told.clear()
    with ThreadPoolExecutor(1) as pool:
        run(tiny_study(), Store(tmp_path / "tiny"), executor=pool, tell=told.append)
        assert told[0].startswith("0 of 3 runs done")
        told.clear()
        run(tiny_study(), Store(tmp_path / "tiny"), executor=pool, tell=told.append)
        assert told == []
