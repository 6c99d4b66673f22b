"""The notebooks of the gallery run from top to bottom, with little of everything."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "gallery"
NOTEBOOKS = {path.stem: path for path in sorted(GALLERY.glob("*.py"))}

#: Runs a notebook as Jupyter does: cell by cell, in its own namespace, and shows what each ends in.
CELLS = """
import ast, sys
text = open(sys.argv[1]).read()
scope = {"__name__": "__main__"}
for cell in text.split("# %%\\n")[1:]:
    body = ast.parse(cell.split("# %% [markdown]")[0]).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), scope)
    shown = eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if last else None
    if hasattr(shown, "_repr_html_"):
        print(shown._repr_html_())
"""

SHORT = {"GALLERY_FIGURE": "detail-fig3", "GALLERY_MESSAGES": "200", "GALLERY_SEEDS": "1"}


def run(arguments, folder):
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **SHORT, "GALLERY_OUT": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "it shows nothing"
    return done.stdout


#: Notebooks that compare transports: each figure has a line of both.
COMPARE = {NOTEBOOKS["own_traffic"], NOTEBOOKS["oversubscription_on_dask"]}


def drawings(html):
    found = re.findall(r"data:image/svg\+xml;base64,([^\"]*)", html)
    return [base64.b64decode(drawing).decode() for drawing in found]


@pytest.mark.parametrize("notebook", NOTEBOOKS.values(), ids=NOTEBOOKS.keys())
def test_a_notebook_runs_and_shows_what_it_compares(notebook, tmp_path):
    if "dask" in notebook.stem:
        pytest.importorskip("distributed")
    assert notebook.read_text().startswith("# %% [markdown]\n# # ")
    drawn = drawings(run(["-c", CELLS, notebook], tmp_path))
    if notebook in COMPARE:
        assert len(drawn) > 1
        for drawing in drawn:
            assert ">homa</text>" in drawing and ">dctcp</text>" in drawing, drawing[:500]


def test_a_missing_dask_is_named_with_its_extra(tmp_path):
    text = "import sys, runpy; sys.modules['distributed'] = None; runpy.run_path(sys.argv[1])"
    notebook = GALLERY / "oversubscription_on_dask.py"
    done = subprocess.run([sys.executable, "-c", text, notebook], capture_output=True, text=True)
    assert "distributed is missing: pip install 'homa-rpc[dask]'" in done.stderr
