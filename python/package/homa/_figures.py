"""Pages of results, and published figures simulated again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._columns import path_text
from ._given import AnyPath, count
from ._show import Progress, images, watched

if TYPE_CHECKING:
    from ._sweep import Sweep


class Page:
    """A page of results that was written.

    Attributes:
        paths: its files, ``index.html`` first.
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        """Take the files of a page."""
        self.paths = [Path(path) for path in paths]

    def __fspath__(self) -> str:
        """Stand for the path of the page."""
        return str(self.paths[0])

    def __repr__(self) -> str:
        """Say where it is."""
        return f"<homa.Page: {self.paths[0]}>"

    def _repr_html_(self) -> str:
        page = self.paths[0].read_text(encoding="utf-8")
        text = page.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe width="100%" height="700" style="border:0" srcdoc="{text}"></iframe>'


def report(
    folder: AnyPath | Sweep,
    *,
    metrics: str | Iterable[str] = (),
    x: str | None = None,
    only: Mapping[str, Any] | None = None,
) -> Page:
    """Draw the page of a folder of results, self-contained, as ``homa report`` does.

    Args:
        folder: what :func:`sweep`, :func:`simulate` or :func:`repro` wrote, or their commands; or
            what :func:`sweep` returned.
        metrics: of a sweep, what to draw in place of the usual: ``"p99"``, ``"p99_us@50"``, ...
            (``docs/simulator.md`` in the repository).
        x: the axis across; absent: every axis of numbers.
        only: axes and values: ``{"load.fraction": 0.8}``.
    """
    given = folder if isinstance(folder, (str, bytes, os.PathLike)) else folder.folder
    path = os.fsdecode(given)
    chosen = [(str(axis), str(value)) for axis, value in (only or {}).items()]
    drawn = [metrics] if isinstance(metrics, str) else list(metrics)
    return Page(_native.report(path, drawn, x, chosen))


class Figure:
    """A published figure simulated again.

    Attributes:
        id: as :func:`figures` lists it.
        title, source: what it shows, where it was published.
        checks: a dict per number: ``metric``, ``published``, ``measured``, ``tolerance``, and
            ``pass``: within, outside (False), undecided or not to be judged (None).
        failed: a number is outside its tolerance; in a full run, also when one is undecided.
        charts: the paper's drawings with our curves beside the published points: SVG documents.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Take the parts of a figure."""
        self.id: str = document["id"]
        self.title: str = document["title"]
        self.source: str = document["source"]
        self.checks: list[dict[str, Any]] = document["checks"]
        self.failed: bool = document["failed"]
        self.charts: list[str] = document["charts"]

    def __repr__(self) -> str:
        """Say how many numbers agree."""
        judged = [check["pass"] for check in self.checks if check["pass"] is not None]
        return f"<homa.Figure {self.id}: {sum(judged)} of {len(judged)} numbers within>"

    def _repr_html_(self) -> str:
        return f"<p>{self.id}: {self.title}</p>" + images(self.charts)


def repro(
    *ids: AnyPath,
    quick: bool = False,
    compared: bool = False,
    out: AnyPath = "homa-repro",
    threads: int | None = None,
    progress: Progress = None,
) -> list[Figure]:
    """Simulate published figures again and compare them number by number, as ``homa repro`` does.

    Args:
        ids: figures (``"homa-fig10"``), rows of them (``"homa-fig10-w4"``), papers (``"homa"``),
            or paths of plans (``"mine.toml"``).
        quick: short runs, which leave tails undecided.
        compared: only the scheme that is compared, not those shown beside it.
        out: the folder of results, from which a stopped run goes on.
        threads: simulations at a time; absent: one per core.
        progress: as in :func:`simulate`.
    """
    if not ids:
        raise TypeError("repro() needs at least one figure: homa.figures() lists them")
    threads = count(threads, "threads")
    with watched(progress) as told:
        named = [path_text(name, "ids") for name in ids]
        text = _native.repro(named, quick, compared, os.fsdecode(out), threads, told)
    return [Figure(document) for document in json.loads(text)]


def figures() -> dict[str, str]:
    """Return the figures that can be simulated again, by id, with what each shows."""
    return dict(_native.repro_list())
