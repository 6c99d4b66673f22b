"""Sweeps: here on all cores, or as tasks of any executor."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any

from . import _native, _worker
from ._given import AnyPath, Plan, count, given
from ._native import Table
from ._show import Progress, images, watched

# How often an executor is asked to run a simulation.
ATTEMPTS = 3


class Sweep:
    """The results of a plan's simulations, in the order of the plan.

    The columns of all tables are those of ``docs/simulator.md`` in the repository; axes have
    separate columns. It can be pickled and copied: tables, plan and charts go along, a temporary
    folder stays with the original.

    Attributes:
        folder: where plan, results, tables and page are; ``homa sweep --out`` goes on there, too.
    """

    def __init__(self, sweep: _native.SweepResults, temporary: Any = None) -> None:
        """Wrap what the compiled part returns; a temporary folder lives as long."""
        self._sweep = sweep
        self._temporary = temporary
        self.folder = Path(sweep.folder)

    @property
    def summary(self) -> Table:
        """A row per simulation: ``summary.csv``."""
        return self._sweep.summary()

    @property
    def buckets(self) -> Table:
        """A row per simulation and bin of message sizes: ``slowdown.csv``."""
        return self._sweep.buckets()

    @property
    def ledger(self) -> Table | None:
        """Where messages' time went, where ``measures.ledger`` asked for it: ``ledger.csv``."""
        return self._sweep.ledger()

    @property
    def plan(self) -> str:
        """The plan (TOML) with every default written out."""
        return self._sweep.plan

    @property
    def charts(self) -> list[str]:
        """The main numbers against the first axis, and slowdown by size: SVG documents."""
        return self._sweep.charts()

    def __len__(self) -> int:
        """Count the simulations."""
        return len(self._sweep)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the temporary folder."""
        return Sweep, (self._sweep,)

    def __repr__(self) -> str:
        """Say how many simulations lie where."""
        return f"<homa.Sweep: {len(self)} simulations in {self.folder}>"

    def _repr_html_(self) -> str:
        return f"<p>{len(self)} simulations in {self.folder}</p>" + images(self.charts)


def sweep(
    plan: Plan,
    executor: Executor | None = None,
    out: AnyPath | None = None,
    *,
    set: Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Progress = None,
) -> Sweep:
    """Run every combination of a plan's axes once per seed.

    Results are stored as they come, under names that follow from what decides them: a sweep that
    was ended goes on when it is called again with the same ``out``, or under ``homa sweep``, and
    nothing runs twice. Neither order nor executor changes a byte of the tables.

    Args:
        plan: the path of a plan (TOML), or a mapping with the same keys: ``{"seeds": [1, 2],
            "scenario": {...}, "axes": {"load.fraction": [0.5, 0.8]}}``.
        executor: runs the simulations: a ``ProcessPoolExecutor``, Dask's
            ``client.get_executor()``, mpi4py's or loky's, or whatever else has their interface.
            Workers need this version of the package, and no files but tables above 4 MB. A task
            whose worker is lost runs again where the executor does that, as Dask does; where it
            gives up instead (``BrokenProcessPool``), call again with another one. Absent: threads
            of this process, outside the interpreter.
        out: the folder of results; absent: a temporary one that ends with the returned object.
        set: keys of the scenario to change, as in :func:`simulate`.
        threads: simulations at a time without an executor; absent: one per core.
        progress: as in :func:`simulate`.

    Raises:
        PlanError: a simulation of the plan cannot be run; all are looked at before any runs.
            What an executor raises passes through if a simulation has failed three times there.
        OSError: a file or folder is not as needed.
    """
    threads = count(threads, "threads")
    if executor is not None and not isinstance(executor, Executor):
        _check_interface(executor)
    temporary = None
    if out is None:
        temporary = tempfile.TemporaryDirectory(prefix="homa-sweep-")
        out = temporary.name
    native = _native.Sweep(given(plan, {"set": set}), os.fsdecode(out))
    with watched(progress) as told:
        if executor is None:
            native.run(threads, told)
        else:
            _spread(native, executor, told)
    return Sweep(native.finish(), temporary)


def _check_interface(executor: Any) -> None:
    """Dask's client is near enough to an executor to be taken for one, and its futures are none."""
    if not hasattr(executor, "submit") or hasattr(executor, "get_executor"):
        raise TypeError(
            f"executor has the interface of concurrent.futures.Executor, not {executor!r}: a "
            "ProcessPoolExecutor, client.get_executor() of Dask, MPIPoolExecutor of mpi4py, ..."
        )


def _spread(native: _native.Sweep, executor: Executor, told: Any) -> None:
    """Have an executor run what has no result, the heaviest first.

    A worker may be lost together with results that it has not passed on. Executors say that in
    various ways, so whatever has failed runs again.
    """
    done = 0.0
    tasks = native.tasks()
    for attempt in range(1, ATTEMPTS + 1):
        futures = {}
        failed = []
        try:
            for task in tasks:
                futures[executor.submit(_worker.perform, task[-1])] = task
            for future in as_completed(futures):
                task = futures.pop(future)
                key, label, share, _ = task
                try:
                    result = future.result()
                except Exception:
                    if attempt == ATTEMPTS:
                        raise
                    failed.append(task)
                    continue
                native.store(key, result)
                done = min(done + share, 1.0)
                if told is not None:
                    told(done, label)
        finally:
            # After a failure or Ctrl-C: finished results are kept, the others need not begin.
            for future, (key, *_) in futures.items():
                if not future.cancel() and future.done() and future.exception() is None:
                    native.store(key, future.result())
        tasks = failed
