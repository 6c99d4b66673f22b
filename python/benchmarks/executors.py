"""How busy executors keep two workers with simulations of about 50 ms, and what a task costs.

    python python/benchmarks/executors.py [SIMULATIONS] [MESSAGES]

Two shares say how busy workers are. *Of the time*: what the simulations took, divided among the
workers, of the seconds until the last was stored; whatever else the machine does lowers it, so
that it needs idle cores, one more for Dask's scheduler and the caller. *Of their processor time*:
simulations beside all that a worker's process did meanwhile, which other programs hardly change. It
needs a build with optimisation (``pip install ./python``), and distributed for Dask.
"""

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor

import homa

SIMULATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
MESSAGES = int(sys.argv[2]) if len(sys.argv) > 2 else 28_000
WORKERS = 2

PLAN = {
    "seeds": list(range(1, SIMULATIONS + 1)),
    "scenario": {
        "stop": {"messages": MESSAGES},
        "fabric": {"shape": {"kind": "single-switch", "hosts": 16}},
    },
}


def timed(function, *args):
    """Run a task; its result and processor time."""
    began = time.thread_time()
    result = function(*args)
    return result, time.thread_time() - began


class Timed:
    """An executor that counts the processor time of its tasks; without another, it runs them."""

    def __init__(self, executor=None):
        """Count nothing yet."""
        self.executor = executor
        self.seconds = 0.0

    def submit(self, function, *args):
        """Run a task."""
        told = Future()
        if self.executor is None:
            self._tell(told, timed(function, *args))
        else:
            running = self.executor.submit(timed, function, *args)
            running.add_done_callback(lambda done: self._tell(told, done.result()))
        return told

    def _tell(self, told, outcome):
        result, seconds = outcome
        self.seconds += seconds
        told.set_result(result)


def sweep(executor):
    """Sweep, and again with everything there; seconds and processor seconds of the difference."""
    with tempfile.TemporaryDirectory() as folder:
        spent = []
        for _ in range(2):
            began = time.monotonic(), time.process_time()
            homa.sweep(PLAN, executor, folder, threads=WORKERS)
            spent.append((time.monotonic() - began[0], time.process_time() - began[1]))
    (wall, own), (tables, tabulating) = spent
    return wall - tables, own - tabulating


def show(name, each, wall, parts):
    """Print a row; ``each`` and ``parts`` are processor seconds, ``each`` of all simulations."""
    busy = f"{name}: {wall:.1f} s, workers busy {each / WORKERS / wall:.1%} of the time"
    workers, beside = parts
    if workers is not None:
        overhead = (workers - each) / SIMULATIONS * 1e3
        busy += f", {each / workers:.1%} of their processor time ({overhead:.2f} ms a task)"
    if beside is not None:
        busy += f", scheduler and caller {beside / SIMULATIONS * 1e3:.2f} ms a task"
    print(busy, flush=True)


def children():
    """Processor seconds of processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def import_only(_):
    """Make a worker load the package."""
    return homa.__version__


def measure_processes():
    """A pool of the standard library; what starting it takes is measured alone."""
    context = multiprocessing.get_context("spawn")
    before = children()
    with ProcessPoolExecutor(WORKERS, context) as pool:
        list(pool.map(import_only, range(WORKERS * 4)))
    starting = children() - before
    with ProcessPoolExecutor(WORKERS, context) as pool:
        list(pool.map(import_only, range(WORKERS * 4)))
        executor = Timed(pool)
        before = children()
        wall, own = sweep(executor)
    show("processes", executor.seconds, wall, (children() - before - starting, own))


def measure_dask():
    """Dask, with its scheduler in this process."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        print("without Dask: distributed is not installed")
        return
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "homa")
        executor = Timed(client.get_executor())
        before = sum(client.run(time.process_time).values())
        wall, own = sweep(executor)
        workers = sum(client.run(time.process_time).values()) - before
        show("dask", executor.seconds, wall, (workers, own))


def main():
    """Measure all executors that are here."""
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    here = Timed()
    sweep(here)
    print(f"a simulation: {here.seconds / SIMULATIONS * 1e3:.1f} ms CPU")
    wall, own = sweep(None)
    # They are in this process, which does the rest, too.
    show("threads", here.seconds, wall, (own, None))
    measure_processes()
    measure_dask()


if __name__ == "__main__":
    main()
