"""How busy executors keep two workers with simulations of about 50 ms, and what a task costs.

    python python/benchmarks/executors.py [SIMULATIONS] [MESSAGES]

What a simulation takes is its processor time alone in this process, result and all. A worker is
busy for so long per task; the rest of the time is what carrying tasks and results takes, and
whatever else the machine does: it needs idle cores, a build with optimisation (``pip install
./python``), and distributed for Dask. Processor time beside the simulations is told apart.
"""

import sys
import tempfile
import time
from concurrent.futures import Future

import homa

SIMULATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
MESSAGES = int(sys.argv[2]) if len(sys.argv) > 2 else 12_000
WORKERS = 2

PLAN = {
    "seeds": list(range(1, SIMULATIONS + 1)),
    "scenario": {
        "stop": {"messages": MESSAGES},
        "fabric": {"shape": {"kind": "single-switch", "hosts": 16}},
    },
}


class Here:
    """Runs tasks at once, in this process, and counts their processor time."""

    seconds = 0.0

    def submit(self, function, *args):
        """Run a task."""
        began = time.process_time()
        future = Future()
        future.set_result(function(*args))
        self.seconds += time.process_time() - began
        return future


def sweep(executor):
    """Sweep, and again with everything there; seconds and processor seconds of the difference."""
    with tempfile.TemporaryDirectory() as folder:
        spent = []
        for _ in range(2):
            began = time.monotonic(), time.process_time()
            homa.sweep(PLAN, executor, folder, threads=WORKERS)
            spent.append((time.monotonic() - began[0], time.process_time() - began[1]))
    (wall, own), (tables, tabulating) = spent
    print(f"  (tables, page: {tables / SIMULATIONS * 1e3:.1f} ms a simulation)")
    return wall - tables, own - tabulating


def show(name, each, wall, beside):
    """Print a row; times in seconds of all tasks but ``each``."""
    busy = each * SIMULATIONS / WORKERS / wall
    print(
        f"{name}: {wall:.1f} s, busy {busy:.1%}, beside it {beside / SIMULATIONS * 1e3:.2f} ms CPU"
    )


def main():
    """Measure all executors that are here."""
    here = Here()
    sweep(here)
    each = here.seconds / SIMULATIONS
    print(f"a simulation: {each * 1e3:.1f} ms CPU")
    wall, own = sweep(None)
    show("threads", each, wall, own - each * SIMULATIONS)
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        return
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "homa")
        executor = client.get_executor()
        before = sum(client.run(time.process_time).values())
        wall, own = sweep(executor)
        workers = sum(client.run(time.process_time).values()) - before
        show("dask, workers", each, wall, workers - each * SIMULATIONS)
        show("dask, scheduler and caller", each, wall, own)


if __name__ == "__main__":
    main()
