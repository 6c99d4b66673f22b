"""How busy executors keep two workers with simulations of about 50 ms, and what a task costs.

    python python/benchmarks/executors.py [SIMULATIONS] [MESSAGES]

A worker is busy while the event loop of a simulation runs (``cpu_seconds`` of its result); the rest
of the time is building networks, percentiles, and what carrying tasks and results takes. It needs a
build with optimisation (``pip install ./python``), distributed for Dask, and idle cores.
"""

import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import homa

SIMULATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
MESSAGES = int(sys.argv[2]) if len(sys.argv) > 2 else 6_000
WORKERS = 2

PLAN = {
    "seeds": list(range(1, SIMULATIONS + 1)),
    "scenario": {
        "stop": {"messages": MESSAGES},
        "fabric": {"shape": {"kind": "single-switch", "hosts": 16}},
    },
}


def measure(name, executor):
    """Sweep with an executor, and print what became of its workers' time."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        homa.sweep(PLAN, executor, folder, threads=WORKERS)
        swept = time.monotonic() - began
        began = time.monotonic()
        homa.sweep(PLAN, executor, folder, threads=WORKERS)
        tables = time.monotonic() - began
        stored = [path.stat().st_size for path in Path(folder, "cells").iterdir()]
        cells = (json.loads(path.read_text()) for path in Path(folder, "cells").iterdir())
        busy = sum(cell["outcome"]["cpu_seconds"] for cell in cells)
    # A sweep that finds everything measures the tables alone.
    spread = swept - tables
    print(
        f"{name:10} {busy / SIMULATIONS * 1e3:6.1f} ms each, {spread:6.1f} s, "
        f"busy {busy / WORKERS / spread:6.1%}, "
        f"beside it {(spread * WORKERS - busy) / SIMULATIONS * 1e3:5.1f} ms a task; "
        f"tables {tables / SIMULATIONS * 1e3:.1f} ms, {sum(stored) / SIMULATIONS / 1e3:.0f} kB each"
    )


def main():
    """Measure all executors that are here."""
    measure("threads", None)
    with ThreadPoolExecutor(WORKERS) as executor:
        measure("pool", executor)
    with ProcessPoolExecutor(WORKERS) as executor:
        # Workers are there before the clock runs.
        list(executor.map(abs, range(WORKERS)))
        measure("processes", executor)
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        return
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "homa")
        measure("dask", client.get_executor())


if __name__ == "__main__":
    main()
