"""What users write, for type checkers: never run (``test_style.py``)."""

from concurrent.futures import Executor
from pathlib import Path

import homa
import homa.rpc


def simulate() -> float:
    def heard(done: float, what: str) -> None:
        print(f"{done:.0%} {what}")

    try:
        result = homa.simulate(
            scheme="homa",
            workload=homa.Sizes([200, 1500], weights=[1, 2]),
            load=0.5,
            messages=1000,
            set={"fabric.host_link": "25Gbps"},
            topology={"kind": "single-switch", "hosts": 4},
            progress=heard,
        )
    except homa.PlanError as error:
        print(error.key, error.allowed, error.file, error.line)
        raise
    names: list[str] = result.buckets.column_names
    print(names, result.buckets.to_pandas(), result.samples.to_polars(), result.charts)
    homa.simulate(Path("plan.toml"), workload=Path("sizes.csv"), flows=homa.Flows({"src": [0]}))
    tail: float = result.summary["slowdown_p99"]
    return tail


def sweep(executor: Executor) -> homa.Page:
    plan = {"seeds": [1, 2], "axes": {"load.fraction": [0.5, 0.8]}}
    swept = homa.sweep(plan, executor, Path("out"), threads=2, progress=True)
    count: int = len(swept)
    figures: list[homa.Figure] = homa.repro("homa-fig10", quick=True)
    print(count, [check["measured"] for figure in figures for check in figure.checks])
    homa.report("out", only={"load.fraction": 0.5})
    return homa.report(swept, metrics=["p99"])


server = homa.rpc.Server("127.0.0.1:0", concurrency=10)


@server.handler
async def answer(request: homa.rpc.Request) -> bytes:
    left: float | None = request.remaining
    return b"hello, " + request.payload + str(left).encode()


async def call() -> memoryview:
    async with server, homa.rpc.Client(max_rpcs=100) as client:
        try:
            await client.ready()
            await client.call(("localhost", 80), bytearray(b"x"), on_behalf_of=None)
        except homa.rpc.MessageTooLong as error:
            most: int = error.max
            print(most)
        service = await client.connect([server.address], hedge_after=0.01)
        known: list[str] = service.servers
        print(known, await service.call(b"world", idempotent=True))
        return await client.call(server.address, memoryview(b"world"), deadline=1)
