"""Long computations in two halves: the same numbers as in one piece, with one core and with two."""

import os
import sys
from dataclasses import replace
from itertools import count
from mmap import mmap
from time import sleep

import numpy as np
import pytest

from refnet import RecurrentNet
from refnet.check import noise
from refnet.check.cases import random_batch, random_params
from refnet.exact import balls, enclose, parts, precision
from refnet.exact.convert import lift
from support.arguments import refused
from support.masked import GIVEN, NETS, case

pytestmark = pytest.mark.needs("flint")

LENGTHS = (6, 2, 0, 5, 1)


@pytest.mark.parametrize("given", [(), GIVEN], ids=["alone", "given"])
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_halves_give_what_the_whole_gives(net, given, monkeypatch):
    params, batch = case(net, LENGTHS, given=given)
    with balls.precision(300):
        whole = enclose._balls(net, params, batch)
        monkeypatch.setattr(enclose, "WORK", 0)
        results = enclose._balls(net, params, batch)
    assert list(results) == list(whole)
    for name, value in whole.items():
        assert results[name].shape == value.shape
        for a, b in zip(map(balls.arb, value.ravel()), map(balls.arb, results[name].ravel())):
            assert abs(a - b) < 1e-60, name


def test_one_core_and_two_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(enclose, "WORK", 0)
    monkeypatch.setattr(noise, "LARGE", 0)
    net = NETS["lstm"]
    params, batch = case(net, LENGTHS)

    def both():
        certified = enclose.certify(net, params, batch)
        return {
            **{name: enclosure.radius for name, enclosure in certified.named().items()},
            **{
                f"{name}, sigma": value
                for name, value in noise.spread(certified, np.float32).items()
            },
        }

    two = both()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    single = both()
    assert list(single) == list(two) and all((single[name] == two[name]).all() for name in single)


def test_runs_in_halves_are_those_of_the_whole(monkeypatch):
    certified = enclose.certify(NETS["lstm"], *case(NETS["lstm"], LENGTHS))
    whole = noise._all_passes(certified, np.float32, 9, 0, parts.Clock(24, None))
    monkeypatch.setattr(noise, "LARGE", 0)
    results = noise._all_passes(certified, np.float32, 9, 0, parts.Clock(24, None))
    for name, value in whole.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-9, atol=1e-12)


def test_balls_travel_as_they_are():
    arrays = {
        "x": lift(np.array([[0.5, -3.0, 0.0], [1e-300, 1e300, -7.25]]), "ball"),
        "": lift(np.array(2.5), "ball"),
        "none": np.empty((0, 3), object),
    }
    with balls.precision(700):
        arrays["thirds"] = lift(np.arange(-4, 5), "ball") / 3
    with balls.precision(20):
        results = parts.unpacked(parts.packed(arrays))
    for name, value in arrays.items():
        assert results[name].shape == value.shape
        for a, b in zip(value.ravel(), results[name].ravel()):
            assert a.mid() == b.mid() and a.rad() <= b.rad() and b.rad() * (1 - 1e-6) <= a.rad()


def test_a_ball_without_bounds_does_not_travel():
    with refused("raise the precision", ArithmeticError):
        parts.packed({"x": np.array([balls.arb(1) / balls.arb(0, 1)], object)})


def test_floats_travel_as_they_are():
    arrays = {"x": np.array([[1.5, np.nan], [-0.0, np.inf]]), "y": np.array(3.0), "z": np.ones(0)}
    results = parts.unpacked(parts.packed(arrays))
    assert list(results) == list(arrays)
    assert all(results[name].tobytes() == arrays[name].tobytes() for name in arrays)


def result(value):
    return lambda: {"x": np.full(3, float(value))}


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_second_part_runs_in_another_process_on_linux(platform, monkeypatch):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    monkeypatch.setattr(sys, "platform", platform)

    def process():
        return {"pid": np.array(float(os.getpid()))}

    first, second = parts.side_by_side(process, process)
    assert first["pid"] == os.getpid()
    assert (second["pid"] == os.getpid()) == (platform == "darwin")


def test_what_fails_there_is_done_here(capfd, monkeypatch):
    here, fork, children = os.getpid(), os.fork, []

    def noted():
        pid = fork()
        children.append(pid)
        return pid

    def second(end):
        if os.getpid() != here:
            os.write(1, b"not to be seen")
            end()
        return {"x": np.ones(3)}

    monkeypatch.setattr(os, "fork", noted)
    for end in (lambda: os._exit(3), lambda: 1 / 0, lambda: os.kill(os.getpid(), 9)):
        assert parts.side_by_side(result(2), lambda: second(end))[1]["x"].sum() == 3
    with pytest.raises(ZeroDivisionError):
        parts.side_by_side(result(1), lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        parts.side_by_side(lambda: 1 / 0, result(1))
    assert capfd.readouterr() == ("", "")
    assert children
    for pid in children:  # none is left over
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_the_first_precision_is_enough(monkeypatch):
    """Of long sequences, at weights that widen balls by little and by much."""
    tried = []
    search = enclose.search

    def counted(run, name, limits, *rest):
        tried.append(limits["bits"])
        results = search(run, name, limits, *rest)
        assert results[1] == limits["bits"]
        return results

    monkeypatch.setattr(enclose, "search", counted)
    for cell, scale in (("rnn", 0.1), ("rnn", 1.0), ("gru", 2.0), ("lstm", 1.0)):
        net = RecurrentNet(2, 6, 3, cell)
        rng = np.random.default_rng(0)
        params = random_params(net, rng, np.float32)
        params["Whh"] *= np.float32(scale)
        enclose.certify(net, params, random_batch(net, rng, np.float32, 120, 2))
        enclose.certify(
            replace(net, readout="every"),
            params,
            random_batch(replace(net, readout="every"), rng, np.float32, 120, 2),
        )
    assert max(tried) > 1.2 * min(tried)


def test_clock_counts_both_parts_and_goes_on_while_one_is_waited_for(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    calls = []
    clock = parts.Clock(24, lambda *call: calls.append(call))
    go_on = np.frombuffer(mmap(-1, 8), np.int64)  # the second part waits for what the first sets

    def second():
        for _ in range(1000):
            if go_on[0]:
                break
            sleep(0.01)
        clock.tick(5)
        return {"go on": go_on.astype(float)}

    def waiting():
        go_on[0] = 1
        clock.last = -np.inf
        clock.tick(0)

    def first():
        clock.tick(2)
        return {}

    _, results = parts.side_by_side(first, second, waiting)
    assert results["go on"].tolist() == [1] and clock.done.sum() == 7
    assert calls and calls[0][:2] in ((24, 2), (24, 7))


def test_certificate_and_sigma_report_their_products(monkeypatch):
    for module in (parts, enclose, precision):
        monkeypatch.setattr(module, "perf_counter", count().__next__)
    calls = []
    certified = enclose.certify(
        NETS["lstm"], *case(NETS["lstm"], LENGTHS), progress=lambda *call: calls.append(call)
    )
    assert [bits for bits, *_ in calls] == [certified.bits] * len(calls) and len(calls) > 10
    calls.clear()
    noise.spread(certified, np.float32, progress=lambda *call: calls.append(call))
    assert calls and {bits for bits, *_ in calls} == {24}
    assert [done for _, done, _ in calls] == list(range(1, len(calls) + 1))


@pytest.mark.parametrize("bits", [70, 300])  # of which the first decides some entries only
def test_rounding_in_halves_is_that_of_the_whole(bits, monkeypatch):
    net = NETS["lstm"]
    with balls.precision(bits):
        results = enclose._run(net, *case(net, LENGTHS), "ball")
        whole, doubt = precision._enclosures(results, None)
        monkeypatch.setattr(precision, "LARGE", 0)
        parted, same = precision._enclosures(results, None)
    assert doubt == same and (doubt is None) == (bits == 300)
    assert list(whole) == list(parted) == list(results)
    for name, enclosure in whole.items():
        assert (
            enclosure.exact is parted[name].exact and enclosure.value.shape == results[name].shape
        )
        for part in ("value", "radius"):
            assert getattr(enclosure, part).tobytes() == getattr(parted[name], part).tobytes(), name
