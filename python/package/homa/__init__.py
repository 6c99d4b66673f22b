"""Homa's laboratory: simulate datacenter transports, sweep, and draw.

>>> import homa
>>> result = homa.simulate(workload="w4", load=0.8, messages=10_000)
>>> result.summary["slowdown_p99"]
>>> result.buckets["slowdown_p99"]

Everything that decides a number is the program's own simulator: equal plans and seeds give equal
packets (``trace_hash``) here and under ``homa sim``. Keys of plans, columns and JSON:
``docs/simulator.md`` in the repository. Calls and servers for asyncio are in ``homa.rpc``.
"""

from . import _alone as _alone
from ._data import Data, Flows, Graph, Sizes
from ._errors import HomaError, PlanError
from ._figures import Figure, Page, figures, report, repro
from ._native import Table, __version__
from ._simulate import Result, simulate
from ._sweep import Sweep, sweep

__all__ = [
    "Data",
    "Figure",
    "Flows",
    "Graph",
    "HomaError",
    "Page",
    "PlanError",
    "Result",
    "Sizes",
    "Sweep",
    "Table",
    "__version__",
    "figures",
    "report",
    "repro",
    "simulate",
    "sweep",
]
