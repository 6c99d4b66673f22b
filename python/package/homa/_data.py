"""Workloads, lists of messages and topologies from arrays and data frames.

Each becomes a table in the form that the simulator reads from files (docs/simulator.md in the
repository), kept below the user's cache folder under a name that follows from its content. So a
plan that uses one is like any other: it is stored with the results, resumed by ``homa sweep``, and
carried to workers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ._columns import listed, nanoseconds, number, path_text, whole
from ._errors import PlanError

#: The longest message, bytes.
LONGEST = 2**31 - 1


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
        encoded = self.text.encode()
        digest = hashlib.sha256(encoded).hexdigest()[:12]
        path = _cache() / f"{self._kind}-{digest}.csv"
        if not path.exists() or path.read_bytes() != encoded:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_bytes(encoded)
            beside.replace(path)
        return path_text(path, "XDG_CACHE_HOME")

    def __repr__(self) -> str:
        """Name what it is and how long."""
        return f"<homa.{type(self).__name__}: {self.text.count(chr(10)) - 1} rows>"


class Sizes(Data):
    """Message sizes, for ``workload``.

    Args:
        sizes: bytes. With ``weights``, each size once; without, sizes as they were observed, each
            as often as it occurs. Any sequence of whole numbers: a list, a range, a NumPy array, a
            column of a data frame.
        weights: how often messages of each size occur, in any unit.

    A table of cumulative shares in a file needs none of this: ``workload="cdf.txt"`` reads it,
    linearly between its points, and ``workload="steps:cdf.txt"`` as steps (``homa workloads
    --help``).
    """

    _kind = "sizes"

    def __init__(self, sizes: Iterable[Any], weights: Iterable[Any] | None = None) -> None:
        """Take sizes, and weights if each stands once."""
        sizes = listed(sizes, "sizes")
        counts = [1.0] * len(sizes) if weights is None else listed(weights, "weights")
        if not sizes:
            raise PlanError("`sizes`: at least one", key="sizes")
        if len(sizes) != len(counts):
            message = f"`weights`: as many as sizes, {len(sizes)}, not {len(counts)}"
            raise PlanError(message, key="weights")
        shares: dict[int, float] = {}
        for row, (size, weight) in enumerate(zip(sizes, counts, strict=True)):
            size = whole(size, (1, LONGEST), ("sizes", "sizes", row))
            weight = number(weight, ("weights", "weights", row))
            shares[size] = shares.get(size, 0.0) + weight
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
        frame: columns ``src`` and ``dst`` (hosts from 0), ``bytes``, ``start_ns``: a data frame, or
            a mapping of names to sequences. ``start_ns`` may also be durations (``timedelta64``,
            pandas' ``Timedelta``, ``datetime.timedelta``), or times (``datetime64``, ``Timestamp``,
            ``datetime``), which count from the earliest. A column ``id`` is kept.

    Raises:
        PlanError: a value is none that a message can have; it names the column, and the row as
            data frames count them, from 0.
    """

    _kind = "flows"

    def __init__(self, frame: Any) -> None:
        """Take the columns of a list."""
        src, dst, size, start = _columns(frame, ("src", "dst", "bytes", "start_ns"), "flows")
        ids = _column(frame, "id", "flows") if "id" in _names(frame) else range(len(src))
        starts = nanoseconds(start, ("flows", "start_ns"))
        columns = [
            _whole(ids, (0, 2**64 - 1), ("flows", "id")),
            _whole(src, (0, 2**32 - 1), ("flows", "src")),
            _whole(dst, (0, 2**32 - 1), ("flows", "dst")),
            _whole(size, (1, LONGEST), ("flows", "bytes")),
            _whole(starts, (0, 2**63 - 1), ("flows", "start_ns")),
        ]
        _equal_lengths(columns, "flows")
        lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
        super().__init__("\n".join(["id,src,dst,bytes,start_ns", *lines]) + "\n")


class Graph(Data):
    """A network of links, for ``topology``.

    Args:
        frame: columns ``from`` and ``to`` (``h`` and a number is a host, any other name a switch),
            ``gbps``, ``delay_ns``: a data frame, or a mapping of names to sequences.

    Rates and delays are those of the table; the scenario's ``slowdown`` must be one that is
    measured, such as ``"idle"``.

    Raises:
        PlanError: a value is none that a link can have; it names the column and the row.
    """

    _kind = "graph"

    def __init__(self, frame: Any) -> None:
        """Take the columns of a table of links."""
        names = ("from", "to", "gbps", "delay_ns")
        start, end, rates, delays = _columns(frame, names, "topology")
        columns: list[list[Any]] = [
            [_node(value, ("topology", "from", row)) for row, value in enumerate(start)],
            [_node(value, ("topology", "to", row)) for row, value in enumerate(end)],
            [number(value, ("topology", "gbps", row)) for row, value in enumerate(rates)],
            _whole(delays, (0, 500_000), ("topology", "delay_ns")),
        ]
        _equal_lengths(columns, "topology")
        lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
        super().__init__("\n".join(["from,to,gbps,delay_ns", *lines]) + "\n")


def _cache() -> Path:
    below = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(below) / "homa"


def _names(frame: Any) -> list[str]:
    return list(frame.keys() if isinstance(frame, Mapping) else frame.columns)


def _column(frame: Any, name: str, key: str) -> Any:
    if name not in _names(frame):
        known = _names(frame)
        raise PlanError(f"`{key}`: needs a column `{name}`, has {known}", key=key, allowed=[name])
    column = frame[name]
    # Times lose digits on the way to a list.
    return column if name == "start_ns" else listed(column, key)


def _columns(frame: Any, names: tuple[str, ...], key: str) -> list[Any]:
    return [_column(frame, name, key) for name in names]


def _whole(values: Iterable[Any], limits: tuple[int, int], at: tuple[str, str]) -> list[int]:
    return [whole(value, limits, (*at, row)) for row, value in enumerate(values)]


def _equal_lengths(columns: list[Any], key: str) -> None:
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        message = f"`{key}`: columns of one length, not of {lengths[0]} and {lengths[-1]}"
        raise PlanError(message, key=key)


def _node(value: Any, at: tuple[str, str, int]) -> str:
    """The name of a host or switch, which the table can hold."""
    key, column, row = at
    name = str(value).strip()
    if not isinstance(value, str) or not name or any(c in name for c in ',;\t\n\r"#'):
        message = (
            f"`{key}`: column `{column}`, row {row}: the name of a host or switch, without commas, "
            f"quotes and #, not {value!r}"
        )
        raise PlanError(message, key=key)
    return name
