"""What a reader and a type checker rely on."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import homa
import homa._native
import homa.rpc

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("check", [["check"], ["format", "--check"]])
def test_the_sources_are_linted_and_formatted(check):
    pytest.importorskip("ruff")
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"
    done = subprocess.run([ruff, *check, "--no-cache", ROOT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_strict_type_checker_accepts_what_users_write():
    pytest.importorskip("mypy")
    check = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    # pandas has its types in another package, which is not needed here.
    check += ["--disable-error-code", "import-untyped", "--cache-dir", os.devnull]
    check += [ROOT / "tests" / "typed_example.py"]
    # The sources, because types of an installed package are not searched for in PYTHONPATH.
    sources = {**os.environ, "MYPYPATH": str(ROOT / "package")}
    done = subprocess.run(check, capture_output=True, text=True, env=sources)
    assert done.returncode == 0, done.stdout


def test_everything_public_is_documented():
    for module in [homa, homa.rpc]:
        for name in module.__all__:
            if name != "__version__":
                assert inspect.getdoc(getattr(module, name)), name


def names(signature):
    return [name for name in signature if name not in ("self", "cls", "/", "slf")]


def test_the_stubs_are_those_of_the_compiled_part():
    tree = ast.parse((ROOT / "package" / "homa" / "_native.pyi").read_text())
    public = {name for name in vars(homa._native) if not name.startswith("__")}
    stubs = {node.name: node for node in tree.body if hasattr(node, "name")}
    assert set(stubs) == public

    def alike(stub, real):
        ours = names(argument.arg for argument in stub.args.args)
        theirs = names(inspect.signature(real).parameters)
        assert ours == theirs, stub.name

    for name, node in stubs.items():
        real = getattr(homa._native, name)
        if isinstance(node, ast.FunctionDef):
            alike(node, real)
            continue
        methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
        own = {n for n in vars(real) if not n.startswith("__")}
        assert {m.name for m in methods if not m.name.startswith("__")} == own
        for method in methods:
            if not method.decorator_list and not method.name.startswith("__"):
                alike(method, getattr(real, method.name))


def test_the_version_is_that_of_the_crates(program):
    assert program("--version").strip() == f"homa {homa.__version__}"
