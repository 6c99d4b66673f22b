"""The notebooks of the gallery run from top to bottom, with little of everything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "gallery"

SHORT = {"GALLERY_FIGURE": "detail-fig3", "GALLERY_MESSAGES": "200", "GALLERY_SEEDS": "1"}


@pytest.mark.parametrize("notebook", sorted(GALLERY.glob("*.py")), ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    if "dask" in notebook.stem:
        pytest.importorskip("distributed")
    done = subprocess.run(
        [sys.executable, notebook],
        env={**os.environ, **SHORT, "GALLERY_OUT": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "it shows nothing"
    assert notebook.read_text().startswith("# %% [markdown]\n# # ")
