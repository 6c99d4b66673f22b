"""A cluster of Dask: a worker that is lost costs its task, which runs again."""

import os
import signal

import pytest

import homa

distributed = pytest.importorskip("distributed")

PLAN = {
    "seeds": list(range(1, 13)),
    "scenario": {"fabric": {"shape": {"kind": "single-switch", "hosts": 4}}},
    "axes": {"stop.messages": [200, 400]},
}


def test_a_lost_worker_changes_nothing(tmp_path):
    heard = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))

        def told(done, what):
            heard.append(what)
            if len(heard) == 5:
                os.kill(victim, signal.SIGKILL)

        executor = client.get_executor()
        spread = homa.sweep(PLAN, executor, tmp_path / "dask", progress=told)
        assert len(heard) == len(spread) == 24
        assert victim not in client.run(os.getpid).values(), "it was not killed"
    homa.sweep(PLAN, out=tmp_path / "serial", threads=1)
    for name in ("plan.toml", "summary.csv", "summary.parquet", "slowdown.parquet"):
        ours, theirs = (tmp_path / folder / name for folder in ("dask", "serial"))
        assert ours.read_bytes() == theirs.read_bytes(), name
