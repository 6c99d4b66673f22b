"""Echoes of 100 bytes: calls per second and latency of homa.rpc beside asyncio's streams over TCP.

    python python/benchmarks/rpc.py [SECONDS]

Server and client are separate processes on loopback, with one and 64 calls in progress, each a
task that calls again when it is answered; over TCP each has a separate connection. Rows of both
transports alternate. CPU time, and how often a thread goes to sleep, are for one call, both sides
together and the start of the processes included: they say more than the rate on a machine that is
shared. It needs two idle cores and a build with optimisation (``pip install
./python``); uvloop is tried where it is installed.
"""

import asyncio
import os
import resource
import subprocess
import sys
import time

import homa.rpc

BYTES = 100
#: Not measured at the beginning of a row, seconds.
WARM_UP = 0.3


async def serve_homa():
    """Echo by homa.rpc."""
    server = homa.rpc.Server("127.0.0.1:0")

    @server.handler
    async def echo(request):
        return request.payload

    print(server.address, flush=True)
    await server.serve_forever()


async def serve_tcp():
    """Echo by streams."""

    async def echo(reader, writer):
        try:
            while True:
                writer.write(await reader.readexactly(BYTES))
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"{host}:{port}", flush=True)
    await server.serve_forever()


async def call_homa(address, outstanding, measure):
    """Keep this many calls in progress."""
    payload = bytes(BYTES)
    async with homa.rpc.Client() as client:

        async def once():
            await client.call(address, payload)

        await asyncio.gather(*(measure(once) for _ in range(outstanding)))


async def call_tcp(address, outstanding, measure):
    """Keep this many connections busy."""
    payload = bytes(BYTES)
    host, port = address.split(":")

    async def connection():
        reader, writer = await asyncio.open_connection(host, int(port))

        async def once():
            writer.write(payload)
            await reader.readexactly(BYTES)

        await measure(once)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(outstanding)))


async def row(call, address, outstanding, seconds):
    """Calls per second, and how long they took, in order."""
    began = time.perf_counter() + WARM_UP
    took = []

    async def measure(once):
        now = time.perf_counter()
        while now < began + seconds:
            before = now
            await once()
            now = time.perf_counter()
            if before >= began:
                took.append(now - before)

    await call(address, outstanding, measure)
    return len(took) / seconds, sorted(took)


def runner(loop):
    """What runs a coroutine in the named loop."""
    if loop == "uvloop":
        import uvloop

        return uvloop.run
    return asyncio.run


SERVERS = {"homa": serve_homa, "tcp": serve_tcp}
CALLS = {"homa": call_homa, "tcp": call_tcp}


def used():
    """CPU seconds and sleeps of this process and of those that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return cpu, sum(usage.ru_nvcsw for usage in usages)


def measure(loop, transport, outstanding, seconds):
    """Measure one row and print it."""
    cpu_before, sleeps_before = used()
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", loop, transport], stdout=subprocess.PIPE, text=True
    )
    try:
        address = server.stdout.readline().strip()
        rate, took = runner(loop)(row(CALLS[transport], address, outstanding, seconds))
    finally:
        server.kill()
        server.wait()
    cpu, sleeps = used()
    # Calls during the warm-up cost as much.
    calls = rate * (seconds + WARM_UP)
    cpu, sleeps = (cpu - cpu_before) / calls * 1e6, (sleeps - sleeps_before) / calls
    median, tail = (took[int(len(took) * share)] * 1e6 for share in (0.5, 0.99))
    print(
        f"{loop:8} {transport:5} {outstanding:3} outstanding: "
        f"{rate:7.0f} calls/s, p50 {median:6.0f} us, p99 {tail:6.0f} us, "
        f"CPU {cpu:4.0f} us, {sleeps:5.2f} sleeps",
        flush=True,
    )


def main():
    """Measure all loops and transports that are here."""
    if sys.argv[1:2] == ["--serve"]:
        loop, transport = sys.argv[2:]
        runner(loop)(SERVERS[transport]())
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    loops = ["asyncio"]
    try:
        import uvloop  # noqa: F401

        loops.append("uvloop")
    except ImportError:
        print("without uvloop, which is not installed")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for loop in loops:
        for outstanding in [1, 64]:
            for transport in ["homa", "tcp"]:
                measure(loop, transport, outstanding, seconds)


if __name__ == "__main__":
    main()
