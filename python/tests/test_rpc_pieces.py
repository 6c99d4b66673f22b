"""Messages in pieces: requests that are read while they arrive, and messages that are written."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from homa import rpc

AT = "127.0.0.1:0"
WINDOW = 1 << 18
LONG = 4 << 20

Handler = Callable[[rpc.Request], Awaitable["bytes | None"]]


def message(length: int) -> bytes:
    """A message whose pieces all differ."""
    return b"".join(n.to_bytes(8, "big") for n in range(length // 8 + 1))[:length]


@asynccontextmanager
async def ends(handler: Handler) -> AsyncIterator[tuple[rpc.Server, rpc.Client]]:
    """A server that reads early, and a client."""
    async with rpc.Server(AT, handler, early=WINDOW) as server, rpc.Client() as client:
        yield server, client


def test_an_upload_is_hashed_while_it_arrives() -> None:
    pieces: list[int] = []

    async def handler(request: rpc.Request) -> bytes:
        digest = hashlib.sha256()
        async for piece in request:
            pieces.append(len(piece))
            digest.update(piece)
        assert sum(pieces) == request.length
        return digest.digest()

    async def main() -> None:
        async with ends(handler) as (server, client):
            for length in (0, 5, 100_000, LONG):
                pieces.clear()
                sent = message(length)
                answer = await client.call(server.address, sent)
                assert answer == hashlib.sha256(sent).digest()
            # No piece is longer than two windows.
            assert len(pieces) >= LONG // WINDOW // 2

    asyncio.run(main())


def test_a_slow_reader_holds_its_client_back() -> None:
    held: list[int] = []

    async def handler(request: rpc.Request) -> bytes:
        async for piece in request:
            held.append(len(piece))
            if len(held) < 5:
                # Without the window, all the rest would arrive meanwhile.
                await asyncio.sleep(0.05)
        return b"read"

    async def main() -> None:
        async with ends(handler) as (server, client):
            assert await client.call(server.address, message(LONG)) == b"read"
        assert sum(held) == LONG
        assert max(held) <= 2 * WINDOW

    asyncio.run(main())


def test_messages_are_written_in_pieces() -> None:
    # A reply ends a request that is arriving, so it begins after it.
    async def whole(request: rpc.Request) -> None:
        bytes_ = b"".join([bytes(piece) async for piece in request])
        with request.reply_writer(len(bytes_)) as writer:
            for at in range(0, len(bytes_), 7_001):
                writer.push(bytes_[at : at + 7_001])
        assert writer.left == 0

    async def main() -> None:
        async with ends(whole) as (server, client):
            for length in (0, 1, 100_000, 1_000_000):
                sent = message(length)
                with await client.call_writer(server.address, length) as writer:
                    for at in range(0, length, 13_000):
                        writer.push(sent[at : at + 13_000])
                        await asyncio.sleep(0)
                    assert writer.left == 0
                    assert await writer.finish() == sent

    asyncio.run(main())


def test_wrong_lengths_are_errors_with_a_remedy() -> None:
    async def handler(request: rpc.Request) -> None:
        async for _ in request:
            pass
        with request.reply_writer(10) as writer:
            writer.push(b"12345")
            with pytest.raises(ValueError, match="only 5 bytes of the declared length are left"):
                writer.push(b"123456")
        # Its end says what is missing, and the client learns that there is no answer.

    async def main() -> None:
        errors: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))
        async with ends(handler) as (server, client):
            with pytest.raises(rpc.Abandoned):
                await client.call(server.address, b"ask")
            with await client.call_writer(server.address, 10) as writer:
                writer.push(b"1234")
                with pytest.raises(ValueError, match="6 bytes of the declared length"):
                    await writer.finish()
                with pytest.raises(rpc.Gone):
                    writer.push(b"5")
            with pytest.raises(ValueError, match="length is from 0 to"):
                await client.call_writer(server.address, -1)
        assert ["5 bytes of the declared length" in error for error in errors] == [True]

    asyncio.run(main())
    with pytest.raises(ValueError, match="early is at least 1 byte"):
        rpc.Server(AT, early=0)


def test_a_client_that_leaves_midway_ends_its_reader_once() -> None:
    read: list[int] = []
    ended: list[str] = []

    async def handler(request: rpc.Request) -> bytes:
        taken = 0
        try:
            async for piece in request:
                taken += len(piece)
                read.append(taken)
        except rpc.Gone:
            ended.append("gone")
            raise
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return b"whole"

    async def main() -> None:
        async with ends(handler) as (server, client):
            with await client.call_writer(server.address, LONG) as writer:
                writer.push(message(LONG)[: LONG // 4])
                # A packet that is not full waits for more.
                while not read or read[-1] < LONG // 5:
                    await asyncio.sleep(0.001)
            while not ended:
                await asyncio.sleep(0.001)
            assert len(ended) == 1
            assert await client.call(server.address, message(LONG)) == b"whole"

    asyncio.run(main())


@pytest.mark.parametrize("cancelled_first", [False, True])
def test_a_read_that_is_cancelled_as_it_ends_loses_nothing(cancelled_first: bool) -> None:
    sent, half = message(200_000), 100_000

    async def main() -> None:
        written = asyncio.Event()

        async def handler(request: rpc.Request) -> bytes:
            seen = b""
            while True:
                reading = asyncio.ensure_future(request.arrived())
                await asyncio.wait([reading], timeout=0.05)
                if not reading.done():
                    break
                seen += reading.result()
            writer.push(sent[half:])
            written.set()
            # Both ends are driven here, so that the read ends before its task can run again.
            waiting = len(server._waiting)
            if cancelled_first:
                reading.cancel()
            while len(server._waiting) == waiting:
                client._turn()
                server._turn()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            async for piece in request:
                seen += piece
            return seen

        async with ends(handler) as (server, client):
            with await client.call_writer(server.address, len(sent)) as writer:
                writer.push(sent[:half])
                await written.wait()
                assert await writer.finish() == sent

    asyncio.run(main())


def test_a_read_that_times_out_loses_nothing() -> None:
    timeouts = 0

    async def handler(request: rpc.Request) -> bytes:
        nonlocal timeouts
        digest = hashlib.sha256()
        while True:
            try:
                piece = await asyncio.wait_for(request.arrived(), 0.002)
            except asyncio.TimeoutError:
                timeouts += 1
                continue
            if piece is None:
                return digest.digest()
            digest.update(piece)

    async def main() -> None:
        sent = message(300_000)
        async with ends(handler) as (server, client):
            with await client.call_writer(server.address, len(sent)) as writer:
                for at in range(0, len(sent), 100_000):
                    # The request has begun with its first bytes, and its reader waits for more.
                    before = timeouts
                    while at > 0 and timeouts == before:
                        await asyncio.sleep(0.001)
                    writer.push(sent[at : at + 100_000])
                assert await writer.finish() == hashlib.sha256(sent).digest()

    asyncio.run(main())


def test_a_request_that_is_being_read_still_serves_its_calls() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def leaf(request: rpc.Request) -> bytes:
        assert request.trace is not None
        return f"{request.trace.split('-')[1]} {request.remaining}".encode()

    async def main() -> None:
        seen: list[memoryview] = []

        client = rpc.Client()

        async def handler(request: rpc.Request) -> bytes:
            taken = 0
            while True:
                reading = asyncio.create_task(request.arrived())
                if not (await asyncio.wait({reading}, timeout=0.02))[0] and taken > LONG // 2:
                    break
                taken += len(await reading or b"")
            assert request.remaining is not None and request.remaining <= 30
            for again in (request.arrived(), request.reply(b"early")):
                with pytest.raises(RuntimeError, match="is being read"):
                    await again
            seen.append(await client.call(far.address, b"", deadline=60, on_behalf_of=request))
            ready.set()
            await reading
            async for _ in request:
                pass
            return b"whole"

        ready = asyncio.Event()
        near, far = rpc.Server(AT, handler, early=WINDOW), rpc.Server(AT, leaf)
        async with near, far, client:
            begun = await client.call_writer(near.address, LONG, deadline=30, trace=trace)
            with begun as writer:
                # A packet that is not full waits for more, so the reader waits for the rest.
                writer.push(message(LONG - 900_000))
                await ready.wait()
                writer.push(message(900_000))
                assert await writer.finish() == b"whole"
        found, left = bytes(seen[0]).decode().split()
        assert found == trace.split("-")[1]
        assert float(left) <= 30

    asyncio.run(main())
