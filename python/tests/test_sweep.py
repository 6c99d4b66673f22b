"""Sweeps: the same store and bytes with any executor; finished simulations are not run again."""

import concurrent.futures
import os
import signal

import pytest

import homa

TABLES = ["plan.toml", "manifest.json", "summary.csv", "slowdown.csv", "slowdown.parquet"]

SWEEP = """
title = "Small"
seeds = [1, 2]
[scenario]
stop = { messages = 200 }
fabric.shape = { kind = "single-switch", hosts = 4 }
[axes]
"load.fraction" = [0.3, 0.6]
"traffic.workload" = ["w1", "w2"]
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SWEEP)
    return path


def tables(folder):
    return [(folder / name).read_bytes() for name in TABLES]


class Inline(concurrent.futures.Executor):
    """Runs the last task first, here."""

    def __init__(self):
        self.waiting = []

    def submit(self, function, *args):
        future = concurrent.futures.Future()
        self.waiting.insert(0, (future, function, args))
        if len(self.waiting) == 8:
            for promised, run, given in self.waiting:
                promised.set_result(run(*given))
        return future


class Mortal(concurrent.futures.ProcessPoolExecutor):
    """Its worker dies of the fifth task."""

    submitted = 0

    def submit(self, function, *args):
        self.submitted += 1
        if self.submitted == 5:
            return super().submit(os._exit, 9)
        future = super().submit(function, *args)
        concurrent.futures.wait([future])
        return future


def test_neither_order_nor_executor_changes_a_byte(tmp_path, plan, program):
    program("sweep", plan, "--out", tmp_path / "program")
    expected = tables(tmp_path / "program")
    here = homa.sweep(plan, out=tmp_path / "here", threads=1)
    assert tables(tmp_path / "here") == expected
    homa.sweep(plan, Inline(), tmp_path / "inline")
    assert tables(tmp_path / "inline") == expected
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        spread = homa.sweep(plan, pool, tmp_path / "pool")
    assert tables(tmp_path / "pool") == expected
    assert spread.summary["load.fraction"] == here.summary["load.fraction"]
    assert len(spread) == len(spread.summary) == 8
    assert spread.charts == here.charts
    assert "<img" in spread._repr_html_()


def test_a_sweep_goes_on_from_either_side(tmp_path, plan, program):
    program("sweep", plan, "--shard", "1/2", "--out", tmp_path / "store")
    heard = []
    homa.sweep(plan, out=tmp_path / "store", progress=lambda *said: heard.append(said))
    assert heard[-1][0] == 1.0
    assert "8 found" in program("sweep", plan, "--out", tmp_path / "store")
    # The other way round, and with an executor that has nothing left to do.
    homa.sweep(plan, Inline(), tmp_path / "other")
    assert "8 found" in program("sweep", plan, "--out", tmp_path / "other")
    homa.sweep(plan, None, tmp_path / "other")


def test_what_is_finished_stays_when_a_worker_dies(tmp_path, plan):
    with Mortal(1) as pool, pytest.raises(concurrent.futures.process.BrokenProcessPool):
        homa.sweep(plan, pool, tmp_path / "store")
    left = []
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        homa.sweep(plan, threads, tmp_path / "store", progress=lambda *said: left.append(said))
    assert len(left) == 4, "of eight, four were finished"
    homa.sweep(plan, out=tmp_path / "whole")
    assert tables(tmp_path / "store") == tables(tmp_path / "whole")


class Losing(concurrent.futures.ThreadPoolExecutor):
    """Loses the results of the first simulations that it has run."""

    def __init__(self, losses):
        super().__init__(1)
        self.losses = losses

    def submit(self, function, *args):
        def lose():
            function(*args)
            raise ValueError("its worker was lost")

        self.losses -= 1
        return super().submit(lose) if self.losses >= 0 else super().submit(function, *args)


def test_simulations_whose_results_are_lost_run_again(tmp_path, plan):
    heard = []
    with Losing(9) as pool:
        homa.sweep(plan, pool, tmp_path / "store", progress=lambda *said: heard.append(said))
    assert len(heard) == 8
    homa.sweep(plan, out=tmp_path / "whole")
    assert tables(tmp_path / "store") == tables(tmp_path / "whole")
    with Losing(100) as pool, pytest.raises(ValueError, match="its worker was lost"):
        homa.sweep(plan, pool)
    assert pool.losses == 100 - 3 * 8, "three times each"


def test_a_mistake_is_found_before_anything_runs(tmp_path, plan):
    plan.write_text(SWEEP.replace('"w2"', '"w9"'))
    with pytest.raises(homa.PlanError) as caught:
        homa.sweep(plan, out=tmp_path / "store")
    assert caught.value.key == "axes.traffic.workload"
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("threads", [0, -1, 1 << 64])
def test_numbers_of_threads_that_cannot_be_are_value_errors(plan, threads):
    with pytest.raises(ValueError, match="threads is at least 1"):
        homa.sweep(plan, threads=threads)
    with pytest.raises(ValueError, match="threads is at least 1"):
        homa.repro("homa-fig8", threads=threads)


def test_what_is_no_executor_is_refused_with_what_is(plan):
    class Client:
        """As Dask's: it submits, and its futures are not those that a sweep can wait for."""

        def submit(self, function, task): ...

        def get_executor(self): ...

    for given in [5, Client()]:
        with pytest.raises(TypeError, match=r"client\.get_executor\(\)"):
            homa.sweep(plan, given)


def test_ctrl_c_ends_a_sweep_and_keeps_what_is_finished(tmp_path):
    endless = {
        "scenario": {"fabric": {"shape": {"kind": "single-switch", "hosts": 4}}},
        "axes": {"stop.messages": [200, 10**12]},
    }

    def told(done, what):
        if list((tmp_path / "store" / "cells").iterdir()):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        homa.sweep(endless, out=tmp_path / "store", threads=2, progress=told)
    assert len(list((tmp_path / "store" / "cells").iterdir())) == 1


def test_a_sweep_without_a_folder_leaves_none(plan):
    result = homa.sweep(plan)
    folder = result.folder
    page = homa.report(result)
    assert page.paths == [folder / "index.html"]
    assert "iframe" in page._repr_html_()
    del result
    assert not folder.exists()
