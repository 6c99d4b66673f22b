"""Values of arrays, columns and sequences of any library as plain Python numbers.

No library is imported for it: arrays are known by ``tolist``, ``to_list``, ``to_pylist`` or
``to_numpy``. A value that would have to be cut or guessed is a :class:`PlanError` that names its
column and row; rows count from 0, as those of data frames and arrays do.
"""

from __future__ import annotations

import datetime
import numbers
import os
from collections.abc import Iterable
from typing import Any

from ._errors import PlanError

#: Key of the plan, column and row of a value.
At = tuple[str, str, int]

#: NumPy's kinds of durations and of times.
_DURATION, _TIME = "m", "M"

_NANOSECONDS = "a time that is a whole number of nanoseconds, fewer than 2**63"


def listed(values: Any, key: str) -> list[Any]:
    """The values of an array, a column or a sequence as a list."""
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(values, method):
            found = getattr(values, method)()
            break
    else:
        array = values.to_numpy() if hasattr(values, "to_numpy") else values
        found = array.tolist() if hasattr(array, "tolist") else array
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise PlanError(f"`{key}`: a sequence of numbers, not {values!r:.60}", key=key)
    return list(found)


def whole(value: Any, limits: tuple[int, int], at: At) -> int:
    """The value, if it is a whole number within limits; 5.0 is one, and 5.5 is none."""
    least, most = limits
    is_whole = isinstance(value, numbers.Integral) or (
        isinstance(value, numbers.Real) and float(value).is_integer()
    )
    if is_whole and not isinstance(value, bool) and least <= int(value) <= most:
        return int(value)
    raise _fault(f"a whole number from {least} to {most}", value, at)


def number(value: Any, at: At) -> float | int:
    """The value, if it is a number from 0 on."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        plain = int(value) if isinstance(value, numbers.Integral) else float(value)
        if 0 <= plain < float("inf"):
            return plain
    raise _fault("a number from 0 on", value, at)


def nanoseconds(values: Any, at: tuple[str, str]) -> list[Any]:
    """Durations and times as nanoseconds, those of times from the earliest; numbers as they are."""
    # A list of polars has microseconds alone, and its array all digits.
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is None and hasattr(values, "to_numpy"):
        values = values.to_numpy()
        kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is not None and kind not in "mMO":
        return listed(values, at[0])
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise PlanError(f"`{at[0]}`: a sequence of times, not {values!r:.60}", key=at[0])
    values = list(values)
    found = [_nanoseconds(value, (*at, row)) for row, value in enumerate(values)]
    times = [plain for plain, is_time in found if is_time]
    if not times:
        return [plain for plain, _ in found]
    if len(times) < len(found):
        row = next(row for row, (_, is_time) in enumerate(found) if not is_time)
        raise _fault("a time, as in the other rows", found[row][0], (*at, row))
    in_zones = [getattr(value, "tzinfo", None) is not None for value in values]
    if len(set(in_zones)) > 1:
        row = in_zones.index(not in_zones[0])
        needed = "a time zone in all rows or in none"
        raise _fault(needed, values[row], (*at, row))
    first = min(times)
    return [time - first for time in times]


def _nanoseconds(value: Any, at: At) -> tuple[Any, bool]:
    """A value in nanoseconds, or as it is; and whether it is a time, which has no zero."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    is_time = kind == _TIME or isinstance(value, datetime.datetime)
    is_duration = kind == _DURATION or isinstance(value, datetime.timedelta)
    if not (is_time or is_duration):
        return value, False
    # "Not a time" is not equal to itself.
    if value != value:
        raise _fault("a time", value, at)
    if kind is not None:
        return _exact(value, kind, at), is_time
    # Those of pandas have nanoseconds, which datetime has not.
    try:
        plain = getattr(value, "value", None)
    except (OverflowError, ValueError):
        raise _fault(_NANOSECONDS, value, at) from None
    if isinstance(plain, int):
        return plain, is_time
    if is_time:
        zone = None if value.tzinfo is None else datetime.timezone.utc
        value = value - datetime.datetime(1970, 1, 1, tzinfo=zone)
    micros = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
    return 1000 * micros, is_time


def _exact(value: Any, kind: str, at: At) -> int:
    """A duration or time of NumPy in nanoseconds. NumPy itself cuts, wraps, and guesses months."""
    if kind == _DURATION and str(value.dtype).endswith(("[Y]", "[M]")):
        raise _fault("a duration in weeks or shorter units", value, at)
    plain = value.astype(f"{kind}8[ns]")
    if plain.astype(value.dtype) != value:
        raise _fault(_NANOSECONDS, value, at)
    return int(plain.astype("int64"))


def path_text(path: Any, key: str) -> str:
    """A path as the text that a plan can name it by.

    Raises:
        PlanError: it has bytes that are no UTF-8.
    """
    text = os.fsdecode(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        message = (
            f"`{key}`: a plan is UTF-8 text and cannot name {os.fsencode(path)!r}: rename it, or "
            "make a link to it"
        )
        raise PlanError(message, key=key) from None
    return text


def _fault(needed: str, value: Any, at: At) -> PlanError:
    key, column, row = at
    where = f"row {row}" if column == key else f"column `{column}`, row {row}"
    return PlanError(f"`{key}`: {where} (from 0): {needed}, not {value!r:.60}", key=key)
