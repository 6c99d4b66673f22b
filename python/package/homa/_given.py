"""What callers want simulated, in the one form that the compiled part reads."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from ._columns import listed, path_text
from ._data import Data, Graph
from ._errors import PlanError

#: A path as functions of ``os`` take them.
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Plan = AnyPath | Mapping[str, Any]


def given(plan: Plan | None, keywords: Mapping[str, Any]) -> str:
    """Return a plan (a path or a mapping like its file) and keywords as JSON."""
    known = {key: value for key, value in keywords.items() if value is not None}
    changes = dict(known.pop("set", {}))
    if "topology" in known:
        changes["fabric.shape"] = known.pop("topology")
    known = {key: _keyword(_plain(value, key), key) for key, value in known.items()}
    set_to = [(key, _plain(value, key)) for key, value in changes.items() if value is not None]
    out: dict[str, Any] = {**known, "set": set_to}
    if isinstance(plan, Mapping):
        out["tables"] = _plain(plan, "")
    elif plan is not None:
        # A path may have bytes that are no text.
        out["file"] = list(os.fsencode(plan))
    return json.dumps(out, allow_nan=False)


def _keyword(value: Any, key: str) -> Any:
    """The value of a keyword, which the compiled part can read."""
    right = isinstance(value, str)
    need = "a text"
    if key == "load":
        right, need = isinstance(value, (int, float)), "a number, such as 0.8"
    elif key in ("messages", "seed"):
        right = isinstance(value, int) and 0 <= value < 2**63
        need = "an integer from 0 to 2**63 - 1"
    if not right or isinstance(value, bool):
        raise PlanError(f"`{key}`: {need}, not {value!r}", key=key)
    return value


def count(value: int | None, what: str) -> int | None:
    """The value, if it is a valid count; absent: as many as fit."""
    if value is not None and not 0 < value < 2**32:
        raise ValueError(f"{what} is at least 1, and {value} was given; absent: one per core")
    return value


def _plain(value: Any, key: str) -> Any:
    """Without what JSON has not: our tables become paths, keys without a value go."""
    if isinstance(value, Graph):
        return {"kind": "graph", "file": value.path()}
    if isinstance(value, Data):
        return value.path()
    if isinstance(value, (str, bytes, os.PathLike)):
        return path_text(value, key)
    if isinstance(value, Mapping):
        pairs = ((str(name), inner) for name, inner in value.items() if inner is not None)
        return {name: _plain(inner, f"{key}.{name}".lstrip(".")) for name, inner in pairs}
    if isinstance(value, (list, tuple, range)):
        return [_plain(inner, key) for inner in value]
    if hasattr(value, "tolist"):
        # A number of NumPy becomes one of Python's, an array a list.
        return _plain(value.tolist(), key)
    if any(hasattr(value, name) for name in ("to_list", "to_pylist", "to_numpy")):
        return _plain(listed(value, key), key)
    if isinstance(value, float) and not math.isfinite(value):
        raise PlanError(f"`{key}`: {value} is no value of a plan", key=key)
    if not isinstance(value, (bool, int, float)):
        kind = type(value).__name__
        text = f"`{key}`: a plan holds numbers, texts, lists and tables, not {kind}"
        raise PlanError(text, key=key)
    return value
