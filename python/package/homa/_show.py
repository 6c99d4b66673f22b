"""Progress and drawings, as notebooks and terminals want them."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = bool | Callable[[float, str], Any] | None

#: Drawings that a notebook shows at once, and all that it holds: the others open by a click.
_OPEN = 6
_MOST = 30


@contextmanager
def watched(progress: Progress) -> Iterator[Callable[[float, str], Any] | None]:
    """Give the callback for a progress: a bar of tqdm where it is installed, else lines."""
    if progress is None or progress is False:
        yield None
    elif progress is not True:
        yield progress
    else:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            yield _lines()
            return
        with tqdm(total=100, unit="%", bar_format="{l_bar}{bar}| {elapsed}<{remaining}") as bar:

            def show(done: float, what: str) -> None:
                bar.n = round(100 * done, 1)
                bar.set_description_str(what[:60], refresh=False)
                bar.refresh()

            yield show


def _lines() -> Callable[[float, str], None]:
    """Say every tenth on stderr."""
    said = 0

    def show(done: float, what: str) -> None:
        nonlocal said
        if int(10 * done) > said:
            said = int(10 * done)
            print(f"{10 * said} % done: {what}", file=sys.stderr, flush=True)

    return show


def images(charts: list[str]) -> str:
    """Drawings as HTML; each by itself, so that their styles do not touch the notebook's.

    All are on white paper: whether a notebook is dark is not what the browser tells drawings,
    which is whether the system is.
    """
    shown = []
    for chart in charts[:_MOST]:
        light = re.sub("<style>.*?</style>", "", chart, flags=re.DOTALL)
        data = base64.b64encode(light.encode()).decode()
        look = "max-width:49%;background:#fff"
        shown.append(f'<img style="{look}" src="data:image/svg+xml;base64,{data}">')
    more = "\n".join(shown[_OPEN:])
    if more:
        count = len(shown) - _OPEN
        more = f"<details><summary>{count} more drawings</summary>{more}</details>"
    if len(charts) > _MOST:
        rest = len(charts) - _MOST
        more += f"<p>{rest} more drawings: see <code>charts</code>, or the page.</p>"
    return "<div>" + "\n".join(shown[:_OPEN]) + more + "</div>"
