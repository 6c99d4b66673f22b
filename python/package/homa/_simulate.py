"""One simulation."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from . import _native
from ._data import Data
from ._given import AnyPath, Plan, given
from ._native import Table
from ._show import Progress, images, watched


class Result:
    """What came of one simulation. It can be pickled and copied.

    The keys of ``outcome`` and the columns of all tables are those of ``docs/simulator.md`` in the
    repository.
    """

    def __init__(self, simulation: _native.Simulation) -> None:
        """Wrap what the compiled part returns."""
        self._simulation = simulation

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The numbers of the whole run by name: a row of ``summary.csv``. Absent ones are None."""
        row = self._simulation.summary()
        return {name: row[name][0] for name in row.column_names}

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """Everything that was measured, as ``homa sim --format json`` prints it."""
        outcome: dict[str, Any] = json.loads(self._simulation.json())
        return outcome

    @cached_property
    def buckets(self) -> Table:
        """Latency and slowdown by message size, 1 % of the messages a row: ``slowdown.csv``."""
        return self._simulation.buckets()

    @cached_property
    def samples(self) -> Table:
        """Every measured message (RPC): bytes, latency_us, slowdown, receiver (host), class.

        Messages of one bin of sizes stand together, in the order in which they arrived.
        """
        return self._simulation.samples()

    @cached_property
    def ledger(self) -> Table | None:
        """Where the messages' time went, where ``measures.ledger`` asked for it: ``ledger.csv``."""
        return self._simulation.ledger()

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return int(self.outcome["seed"])

    @property
    def trace_hash(self) -> str:
        """Equal when the same packets moved at the same times, here or under ``homa sim``."""
        return str(self.outcome["trace_hash"])

    @property
    def plan(self) -> str:
        """The plan (TOML) with every default written out; it gives the same result again."""
        return self._simulation.plan

    @cached_property
    def charts(self) -> list[str]:
        """Slowdown by message size, drawn: SVG documents."""
        return self._simulation.charts()

    def __repr__(self) -> str:
        """Describe the simulation and its main numbers."""
        s = self.summary
        p50, p99 = (s[key] for key in ("slowdown_p50", "slowdown_p99"))
        slowdown = "" if p99 is None else f", slowdown p50 {p50:.2f} p99 {p99:.2f}"
        return (
            f"<homa.Result: {s['scheme']}, {s['workload']}, load {s['load']:g}, "
            f"seed {self.seed}: {s['messages']} messages{slowdown}>"
        )

    def _repr_html_(self) -> str:
        text = repr(self).strip("<>").replace("&", "&amp;").replace("<", "&lt;")
        return f"<p>{text}</p>" + images(self.charts)


def simulate(
    plan: Plan | None = None,
    *,
    scheme: str | None = None,
    workload: AnyPath | Data | None = None,
    load: float | None = None,
    messages: int | None = None,
    seed: int | None = None,
    flows: AnyPath | Data | None = None,
    topology: Mapping[str, Any] | Data | None = None,
    set: Mapping[str, Any] | None = None,
    out: AnyPath | None = None,
    progress: Progress = None,
) -> Result:
    """Run one simulation; the same plan and seed give the same packets everywhere.

    Other Python threads go on meanwhile, and Ctrl-C ends it.

    Args:
        plan: the path of a plan (TOML), or a mapping with the same keys: ``{"scenario":
            {"scheme": "homa", "load": {"fraction": 0.5}}}``. Absent: scheme ``homa`` on the Homa
            paper's network of 144 hosts, 300,000 messages of W1 at 80 % load. The keywords change
            it, as the options of ``homa sim`` do.
        scheme: what hosts and switches run: a name that ``homa schemes`` lists.
        workload: message sizes: ``"w1"`` to ``"w5"``, the path of a table (``"cdf.txt"``,
            ``"steps:cdf.txt"``: see ``homa workloads --help``), or :class:`Sizes`.
        load: the share of every host's link that the traffic fills: 0.8 for 80 %.
        messages: how many are measured.
        seed: everything random follows from it.
        flows: messages from a list in place of ``workload`` and ``load``: a path or
            :class:`Flows`.
        topology: ``{"kind": "single-switch", "hosts": 16}`` and the like, or :class:`Graph`.
        set: any other keys of the scenario: ``{"fabric.host_link": "25Gbps"}``.
        out: a folder that keeps plan, result, tables and page, as ``homa sim --out`` does.
        progress: a function of the share done (0 to 1) and a text; True: a bar by tqdm where it
            is installed, else lines on stderr.

    Raises:
        PlanError: a key is unknown, or has a value that cannot be simulated.
        OSError: a file or folder is not as needed.
    """
    keywords = {
        "scheme": scheme,
        "workload": workload,
        "load": load,
        "messages": messages,
        "seed": seed,
        "flows": flows,
        "topology": topology,
        "set": set,
    }
    with watched(progress) as told:
        folder = None if out is None else os.fsdecode(out)
        return Result(_native.simulate(given(plan, keywords), told, folder))
