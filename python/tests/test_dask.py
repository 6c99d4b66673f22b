"""A cluster of Dask: a worker that is lost costs its task, which runs again."""

import os
import signal
from pathlib import Path

import pytest

import homa

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

PLAN = {
    "seeds": list(range(1, 13)),
    "scenario": {"fabric": {"shape": {"kind": "single-switch", "hosts": 4}}},
    "axes": {"stop.messages": [200, 400]},
}


def test_a_lost_worker_changes_nothing(tmp_path):
    heard = []
    # Now and then it took 30 s longer, which is as long as Dask tries to connect.
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "5s"}),
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


def test_the_example_of_the_documentation_draws_its_figure(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib").use("agg")
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    example = next(text for text in page.split("```python\n")[1:] if "distributed" in text)
    example = example.split("```")[0]
    assert example.count("\n") <= 11
    for written, tried in [("range(1, 101)", "range(1, 3)"), ("10_000", "100")]:
        assert written in example
        example = example.replace(written, tried)
    monkeypatch.chdir(tmp_path)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        scope = {}
        exec(example.replace("tcp://scheduler:8786", cluster.scheduler_address), scope)
        scope["client"].close()
    assert len(scope["sweep"]) == 20
    assert list(scope["tail"].columns) == ["dctcp", "homa"]
    assert scope["tail"].notna().all(axis=None)
