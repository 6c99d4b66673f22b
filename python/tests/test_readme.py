"""Every Python block of the READMEs runs as printed, in an environment that has nothing else."""

import os
import subprocess
import venv
from pathlib import Path

import pytest

import homa

ROOT = Path(__file__).parents[2]


def blocks():
    for page in ("README.md", "python/README.md", "docs/guide/python.md"):
        parts = (ROOT / page).read_text().split("```python\n")[1:]
        for number, part in enumerate(parts, 1):
            yield pytest.param(part.split("```")[0], id=f"{page}-{number}")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The Python of an environment with this package and no other."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "environment", with_pip=False)
    site = folder / "site"
    site.mkdir()
    (site / "homa").symlink_to(Path(homa.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(folder)}

    def run(text, cwd):
        python = folder / "environment" / "bin" / "python"
        command = [python, "-c", text]
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)

    return run


@pytest.mark.parametrize("block", list(blocks()))
def test_a_block_runs_as_printed(block, fresh, tmp_path):
    done = fresh(block, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "print(" not in block or done.stdout.strip(), "it prints nothing"


def test_the_environment_has_no_other_package(fresh, tmp_path):
    for module in ("pandas", "polars", "pyarrow", "numpy", "distributed"):
        assert fresh(f"import {module}", tmp_path).returncode != 0, module
    told = fresh("import homa; homa.simulate(messages=10).buckets.to_pandas()", tmp_path)
    assert "pip install 'homa-rpc[pandas]'" in told.stderr
