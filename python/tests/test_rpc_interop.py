"""homa.rpc beside programs in Rust and C, as server and as client."""

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

import homa.rpc as rpc

#: Seconds after which a test that hangs ends.
LONGEST = 60


@pytest.fixture
def rust():
    """The program homa."""
    path = os.environ.get("HOMA_PROGRAM")
    if path is None:
        pytest.skip("the program homa (cargo build; HOMA_PROGRAM names it)")
    return path


@pytest.fixture
def c_example():
    """The examples in C, by name."""
    folder = os.environ.get("HOMA_C_PROGRAMS")
    if folder is None:
        pytest.skip("the examples in C (cargo test -p homa-rpc-capi; folder: HOMA_C_PROGRAMS)")
    return lambda name: str(Path(folder) / name)


@contextlib.contextmanager
def listening(*command):
    """The address of a server that says on its first line where it listens."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            said = server.stdout.readline().split()[-1]
            yield said if ":" in said else f"127.0.0.1:{said}"
        finally:
            server.send_signal(signal.SIGTERM)


async def call_all(address):
    async with rpc.Client() as client:
        for size in [1, 100, 500_000]:
            payload = os.urandom(size)
            assert await client.call(address, payload) == payload
        calls = [client.call(address, b"%d" % n) for n in range(100)]
        answers = await asyncio.gather(*calls)
        assert [int(bytes(answer)) for answer in answers] == list(range(100))


async def serve(*command):
    """What a client's program says, which is given the address of a server."""

    async def echo(request):
        return request.payload

    async with rpc.Server("127.0.0.1:0", echo) as server:
        host, port = server.address.split(":")
        places = {"ADDRESS": server.address, "HOST": host, "PORT": port}
        client = await asyncio.create_subprocess_exec(
            *(places.get(argument, argument) for argument in command),
            stdout=subprocess.PIPE,
        )
        said, _ = await client.communicate()
        assert client.returncode == 0
        return said.decode()


def bounded(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LONGEST))


def test_a_server_in_rust_answers(rust):
    with listening(rust, "serve", "--bind", "127.0.0.1:0", "--echo") as address:
        bounded(call_all(address))


def test_a_client_in_rust_is_answered(rust):
    assert bounded(serve(rust, "call", "ADDRESS", "--data", "from Rust")) == "from Rust"
    bounded(serve(rust, "call", "ADDRESS", "--size", "100..200kB", "--count", "50"))


def test_a_server_in_c_answers(c_example):
    with listening(c_example("echo_server"), "0") as address:
        bounded(call_all(address))


def test_a_client_in_c_is_answered(c_example):
    said = bounded(serve(c_example("echo_client"), "HOST", "PORT"))
    assert said.endswith("500000 bytes\n")
