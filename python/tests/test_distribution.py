"""Another distribution that brings a package ``homa``."""

import os
import subprocess
import sys
from pathlib import Path

import homa


def test_a_distribution_named_homa_is_refused(tmp_path: Path) -> None:
    info = tmp_path / "homa-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: homa\nVersion: 2.0\n")
    path = os.pathsep.join([str(Path(homa.__file__).parents[1]), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-c", "import homa"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "ImportError: the distribution 'homa' 2.0" in done.stderr
    assert "pip uninstall homa homa-rpc" in done.stderr
