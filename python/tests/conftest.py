"""What the tests share: a scenario that takes milliseconds, and the program `homa`."""

import json
import os
import signal
import subprocess

import pytest

#: Four hosts at a switch and 300 messages.
SMALL = {
    "stop": {"messages": 300},
    "fabric": {"shape": {"kind": "single-switch", "hosts": 4}},
}


#: Seconds after which a test that goes on for ever ends the run.
LONGEST = 300


@pytest.fixture(autouse=True)
def signals():
    """Ctrl-C is heard, also by what was started in the background of a shell, where it is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def small():
    return {"scenario": json.loads(json.dumps(SMALL))}


@pytest.fixture
def program():
    """The program of the same build, as a function of its arguments."""
    path = os.environ.get("HOMA_PROGRAM")
    if path is None:
        pytest.skip("the program homa (cargo build; HOMA_PROGRAM names it)")

    def run(*arguments):
        done = subprocess.run(
            [path, *map(str, arguments)], capture_output=True, text=True, check=True
        )
        return done.stdout

    return run
