"""Workloads, lists of messages and topologies from arrays and data frames.

Each becomes a table in the form that the simulator reads from files (docs/simulator.md), kept below
the user's cache folder under a name that follows from its content. So a plan that uses one is like
any other: it is stored with the results, resumed by ``homa sweep``, and carried to workers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ._errors import PlanError


class Data:
    """A table for the simulator.

    Attributes:
        text: the table as the simulator reads it.
    """

    _kind = "data"

    def __init__(self, text: str) -> None:
        """Take a table as it would stand in a file."""
        self.text = text

    def path(self) -> str:
        """Return the path of a file with this table, which is written where it is missing."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:12]
        path = _cache() / f"{self._kind}-{digest}.csv"
        if not path.exists() or path.read_text() != self.text:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_text(self.text)
            beside.replace(path)
        return str(path)

    def __repr__(self) -> str:
        """Name what it is and how long."""
        return f"<homa.{type(self).__name__}: {self.text.count(chr(10)) - 1} rows>"


class Sizes(Data):
    """Message sizes, for ``workload``.

    Args:
        sizes: bytes. With ``weights``, each size once; without, sizes as they were observed, each
            as often as it occurs. Any sequence of whole numbers: a list, a NumPy array, a column
            of a data frame.
        weights: how often messages of each size occur, in any unit.
    """

    _kind = "sizes"

    def __init__(self, sizes: Iterable[Any], weights: Iterable[Any] | None = None) -> None:
        """Take sizes, and weights if each stands once."""
        sizes = _values(sizes, "sizes")
        counts = [1.0] * len(sizes) if weights is None else _values(weights, "weights")
        if not sizes:
            raise PlanError("`sizes`: at least one", key="sizes")
        if len(sizes) != len(counts):
            message = f"`weights`: as many as sizes, {len(sizes)}, not {len(counts)}"
            raise PlanError(message, key="weights")
        shares: dict[int, float] = {}
        for size, weight in zip(sizes, counts, strict=True):
            if not (size == int(size) and size > 0):
                raise PlanError(f"`sizes`: whole bytes from 1 on, not {size}", key="sizes")
            if not 0 <= weight < float("inf"):
                raise PlanError(f"`weights`: numbers from 0 on, not {weight}", key="weights")
            shares[int(size)] = shares.get(int(size), 0.0) + float(weight)
        shares = {size: share for size, share in sorted(shares.items()) if share > 0}
        total = sum(shares.values())
        if total == 0:
            raise PlanError("`weights`: one above 0", key="weights")
        rows, seen = ["size_bytes,cumulative_fraction"], 0.0
        for size, share in shares.items():
            seen += share
            last = len(rows) == len(shares)
            rows.append(f"{size},{1 if last else min(seen / total, 1.0)!r}")
        super().__init__("\n".join(rows) + "\n")


class Flows(Data):
    """A list of messages, for ``flows``.

    Args:
        frame: columns ``src`` and ``dst`` (hosts from 0), ``bytes``, ``start_ns``, ascending: a
            data frame, or a mapping of names to sequences. A column ``id`` is kept.
    """

    _kind = "flows"

    def __init__(self, frame: Any) -> None:
        """Take the columns of a list."""
        columns = [_column(frame, name, "flows") for name in ("src", "dst", "bytes", "start_ns")]
        ids = _column(frame, "id", "flows") if "id" in _names(frame) else range(len(columns[0]))
        rows = zip(ids, *columns, strict=True)
        lines = [",".join(str(int(value)) for value in row) for row in rows]
        super().__init__("\n".join(["id,src,dst,bytes,start_ns", *lines]) + "\n")


class Graph(Data):
    """A network of links, for ``topology``.

    Args:
        frame: columns ``from`` and ``to`` (``h`` and a number is a host, any other name a switch),
            ``gbps``, ``delay_ns``: a data frame, or a mapping of names to sequences.

    Rates and delays are those of the table; the scenario's ``slowdown`` must be one that is
    measured, such as ``"idle"``.
    """

    _kind = "graph"

    def __init__(self, frame: Any) -> None:
        """Take the columns of a table of links."""
        columns = [_column(frame, name, "topology") for name in ("from", "to", "gbps", "delay_ns")]
        lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
        super().__init__("\n".join(["from,to,gbps,delay_ns", *lines]) + "\n")


def _cache() -> Path:
    below = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(below) / "homa"


def _values(values: Any, key: str) -> list[Any]:
    """Plain Python numbers of an array, a column or a sequence."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in listed):
        raise PlanError(f"`{key}`: a sequence of numbers", key=key)
    return listed


def _names(frame: Any) -> list[str]:
    return list(frame.keys() if isinstance(frame, Mapping) else frame.columns)


def _column(frame: Any, name: str, key: str) -> list[Any]:
    if name not in _names(frame):
        known = _names(frame)
        raise PlanError(f"`{key}`: needs a column `{name}`, has {known}", key=key, allowed=[name])
    column = frame[name]
    return column.tolist() if hasattr(column, "tolist") else list(column)
