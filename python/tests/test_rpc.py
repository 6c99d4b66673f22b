"""homa.rpc over loopback, in asyncio's loop and in uvloop's: what comes back, and what ends how.

Each run also checks that no task, descriptor or thread is left.
"""

import array
import asyncio
import gc
import os
import re
import time
from pathlib import Path

import pytest

import homa.rpc as rpc

#: No server listens here: the discard port.
NOWHERE = "127.0.0.1:9"
#: Seconds after which a test that hangs ends.
LONGEST = 60
LARGEST = 16 << 20


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Run a coroutine to its end, and see that nothing is left."""
    if request.param == "uvloop":
        new_loop = pytest.importorskip(
            "uvloop", reason="uvloop (pip install uvloop)"
        ).new_event_loop
    else:
        new_loop = asyncio.new_event_loop

    # The first loop of a process opens what all share.
    first = new_loop()
    first.run_until_complete(asyncio.sleep(0))
    first.close()

    def run(coroutine):
        before = held()
        loop = new_loop()
        try:
            result = loop.run_until_complete(asyncio.wait_for(coroutine, LONGEST))
            assert not asyncio.all_tasks(loop)
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
        nothing_is_left(before)
        return result

    return run


def held():
    """Descriptors, and threads of engines."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return len(os.listdir("/proc/self/fd")), names.count("homa\n")


def nothing_is_left(before):
    gc.collect()
    until = time.monotonic() + 10
    # The system lists a thread for a moment after it was joined.
    while held() != before and time.monotonic() < until:
        time.sleep(0.001)
    assert held() == before


async def echo(request):
    return request.payload


class Slow:
    """A handler that goes on until it is told or cancelled."""

    def __init__(self):
        self.begun, self.cancelled, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, request):
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b"done"


def test_messages_of_all_sizes_come_back(run):
    async def main():
        async with rpc.Server("127.0.0.1:0", echo) as server, rpc.Client() as client:
            for size in [1, 100, 1_000_000, LARGEST]:
                payload = os.urandom(size)
                answer = await client.call(server.address, payload)
                assert answer == payload
                assert answer.readonly
            kept = await client.call(server.address, b"kept", on_behalf_of=None)
        return kept

    kept = run(main())
    gc.collect()
    assert kept == b"kept", "the answer outlives its client"


def test_every_contiguous_buffer_is_a_payload(run):
    # It starts threads.
    numpy = pytest.importorskip("numpy")

    async def main():
        async with rpc.Server("127.0.0.1:0", echo) as server, rpc.Client() as client:
            numbers = array.array("d", [1.0, 2.5])
            for payload in [bytearray(b"abc"), memoryview(b"abcd")[1:3], numbers]:
                answer = await client.call(server.address, payload)
                assert answer == memoryview(payload).cast("B")
            assert list(answer.cast("d")) == [1.0, 2.5]
            grid = numpy.arange(12, dtype="i4").reshape(3, 4)
            answer = await client.call(server.address, grid)
            assert (numpy.frombuffer(answer, dtype="i4").reshape(3, 4) == grid).all()
            with pytest.raises((BufferError, ValueError)):
                await client.call(server.address, grid[:, ::2])
            with pytest.raises(TypeError, match="bytes-like"):
                await client.call(server.address, "text")
            # It was read when the call began.
            changed = bytearray(b"before")
            call = asyncio.ensure_future(client.call(server.address, changed))
            await asyncio.sleep(0)
            changed[:] = b"after!"
            assert await call == b"before"

    run(main())


def test_hundreds_of_calls_at_once_and_no_more_handlers_than_wanted(run):
    async def main():
        most = now = 0

        async def count(request):
            nonlocal most, now
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            return request.payload

        async with (
            rpc.Server(("127.0.0.1", 0), count, concurrency=7) as server,
            rpc.Client() as client,
        ):
            calls = [client.call(server.address, b"%d" % n) for n in range(500)]
            answers = await asyncio.gather(*calls)
        assert [int(bytes(answer)) for answer in answers] == list(range(500))
        assert most == 7

    run(main())


def test_a_call_ends_at_its_deadline_and_its_handler_with_it(run):
    async def main():
        slow = Slow()
        async with rpc.Server("127.0.0.1:0", slow) as server, rpc.Client() as client:
            deadline = 0.05
            # Where its time is over before it is accepted, it does not begin.
            while not slow.begun.is_set():
                with pytest.raises(rpc.DeadlineExceeded) as caught:
                    await client.call(server.address, b"x", deadline=deadline)
                assert isinstance(caught.value, TimeoutError)
                deadline *= 2
            await slow.cancelled.wait()
            brief = rpc.Client(deadline=0.01)
            with pytest.raises(rpc.DeadlineExceeded):
                await brief.call(server.address, b"x")
            await brief.close()
            with pytest.raises(ValueError, match="seconds"):
                await client.call(server.address, b"x", deadline=-1)

    run(main())


def test_cancelling_the_task_cancels_the_handler(run):
    async def main():
        slow = Slow()
        async with rpc.Server("127.0.0.1:0", slow) as server, rpc.Client() as client:
            call = asyncio.ensure_future(client.call(server.address, b"x"))
            await slow.begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await slow.cancelled.wait()

    run(main())


def test_an_answer_that_comes_too_late_is_nobodys_mistake(run):
    async def main():
        heard, slow = [], Slow()
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: heard.append(told))

        async def stubborn(request):
            try:
                return await slow(request)
            except asyncio.CancelledError:
                return b"late"

        async with rpc.Server("127.0.0.1:0", stubborn) as server, rpc.Client() as client:
            call = asyncio.ensure_future(client.call(server.address, b"x"))
            await slow.begun.wait()
            call.cancel()
            await slow.cancelled.wait()
        assert not heard

    run(main())


def test_a_handler_that_raises_is_reported_and_the_server_goes_on(run):
    async def main():
        heard = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: heard.append(told))
        server = rpc.Server("127.0.0.1:0")

        @server.handler
        async def fragile(request):
            if request.payload == b"raise":
                raise LookupError("no such thing")
            if request.payload == b"nothing":
                return None
            if request.payload == b"early":
                await request.reply(b"early")
                with pytest.raises(rpc.Gone):
                    await request.reply(b"twice")
                return None
            return bytes(LARGEST + 1)

        async with server, rpc.Client() as client:
            for payload in [b"raise", b"nothing"]:
                with pytest.raises(rpc.Abandoned):
                    await client.call(server.address, payload, idempotent=True, deadline=LONGEST)
            with pytest.raises(rpc.ResponseTooLong) as caught:
                await client.call(server.address, b"too long")
            assert (caught.value.length, caught.value.max) == (LARGEST + 1, LARGEST)
            assert await client.call(server.address, b"early") == b"early"
        kinds = [type(told["exception"]) for told in heard]
        assert kinds == [LookupError, TypeError, rpc.ReplyTooLong]
        assert heard[2]["exception"].max == LARGEST
        assert server.address in heard[0]["message"]

    run(main())


def test_what_is_refused_says_why(run):
    async def main():
        async with rpc.Server("127.0.0.1:0", echo) as server, rpc.Client() as client:
            # As a rule, PortUnreachable; systems limit how often they say so.
            with pytest.raises(rpc.Unreachable) as unreachable:
                await client.call(NOWHERE, b"x", deadline=LONGEST / 2)
            assert isinstance(unreachable.value, ConnectionError)
            with pytest.raises(rpc.MessageTooLong) as caught:
                await client.call(server.address, bytes(LARGEST + 1))
            assert (caught.value.length, caught.value.max) == (LARGEST + 1, LARGEST)
            with pytest.raises(rpc.Destination):
                await client.call("127.0.0.1:0", b"x")
            with pytest.raises(ValueError, match=re.escape("write it as 10.0.0.7:4000")):
                await client.call("127.0.0.1", b"x")
            with pytest.raises(rpc.AddressInUse) as used:
                rpc.Server(server.address, echo)
            assert isinstance(used.value, OSError) and used.value.errno
        async with rpc.Client("127.0.0.1:0") as client:
            with pytest.raises(rpc.AddressFamily):
                await client.call("[::1]:9", b"x")
        with pytest.raises(RuntimeError, match="handler"):
            await rpc.Server("127.0.0.1:0").serve_forever()

    run(main())


def test_a_smaller_server_refuses_what_is_too_long_for_it(run):
    async def main():
        async with (
            rpc.Server("127.0.0.1:0", echo, max_message=20_000) as server,
            rpc.Client() as client,
        ):
            with pytest.raises((rpc.RequestTooLong, rpc.MessageTooLong)) as caught:
                await client.call(server.address, bytes(50_000))
            assert caught.value.max == 20_000

    run(main())


def test_room_can_be_waited_for(run):
    async def main():
        slow = Slow()
        async with rpc.Server("127.0.0.1:0", slow) as server, rpc.Client(max_rpcs=1) as client:
            await client.ready()
            first = asyncio.ensure_future(client.call(server.address, b"first"))
            await slow.begun.wait()
            with pytest.raises(rpc.TooManyCalls) as caught:
                await client.call(server.address, b"second")
            assert isinstance(caught.value, rpc.Busy) and caught.value.max == 1
            room = asyncio.ensure_future(client.ready(6))
            slow.go_on.set()
            await room
            assert await client.call(server.address, b"second") == b"done"
            assert await first == b"done"

    run(main())


def test_a_server_that_hangs_does_not_take_all_calls(run):
    async def main():
        slow, fast = Slow(), Slow()
        fast.go_on.set()
        one, other = rpc.Server("127.0.0.1:0", slow), rpc.Server("127.0.0.1:0", fast)
        async with one, other, rpc.Client(max_calls_per_server=1) as client:
            first = asyncio.ensure_future(client.call(one.address, b"first"))
            await slow.begun.wait()
            with pytest.raises(rpc.TooManyCallsTo, match="max_calls_per_server") as caught:
                await client.call(one.address, b"second")
            assert isinstance(caught.value, rpc.Busy) and caught.value.max == 1
            assert await client.call(other.address, b"second") == b"done"
            await client.ready(to=other.address)
            room = asyncio.ensure_future(client.ready(6, to=one.address))
            await asyncio.sleep(0)
            assert not room.done()
            slow.go_on.set()
            await room
            assert await first == b"done"

    run(main())


def test_closing_a_client_ends_its_calls(run):
    async def main():
        slow = Slow()
        async with rpc.Server("127.0.0.1:0", slow) as server:
            client = rpc.Client()
            calls = [asyncio.ensure_future(client.call(server.address, b"x")) for _ in range(20)]
            await slow.begun.wait()
            await client.close()
            for ended in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(ended, rpc.ShuttingDown)
            await slow.cancelled.wait()
            with pytest.raises(rpc.ShuttingDown):
                await client.call(server.address, b"x")

    run(main())


@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_in_mid_call_leaves_nothing():
    before = held()
    loop = asyncio.new_event_loop()

    async def begin():
        slow = Slow()
        server = rpc.Server("127.0.0.1:0", slow)
        await server.start()
        client = rpc.Client()
        call = asyncio.ensure_future(client.call(server.address, b"x"))
        await slow.begun.wait()
        assert not call.done()

    loop.run_until_complete(begin())
    loop.close()
    del loop
    nothing_is_left(before)


def test_a_server_that_ends_finishes_what_it_began(run):
    async def main():
        slow = Slow()
        server = rpc.Server("127.0.0.1:0", slow, drain=LONGEST)
        serving = asyncio.ensure_future(server.serve_forever())
        async with rpc.Client() as client:
            call = asyncio.ensure_future(client.call(server.address, b"x"))
            await slow.begun.wait()
            serving.cancel()
            # It refuses others as soon as it drains.
            while True:
                try:
                    await client.call(server.address, b"other", deadline=0.01)
                except rpc.PortUnreachable:
                    break
                except rpc.DeadlineExceeded:
                    pass
            assert not serving.done() and not call.done()
            slow.go_on.set()
            assert await call == b"done"
        with pytest.raises(asyncio.CancelledError):
            await serving

    run(main())


def test_handlers_that_outlast_the_drain_are_cancelled(run):
    async def main():
        slow = Slow()
        async with rpc.Client() as client:
            async with rpc.Server("127.0.0.1:0", slow, drain=0) as server:
                forever = asyncio.ensure_future(server.serve_forever())
                call = asyncio.ensure_future(client.call(server.address, b"x"))
                await slow.begun.wait()
            assert slow.cancelled.is_set()
            await forever
            with pytest.raises(rpc.Abandoned):
                await call

    run(main())


def test_calls_for_a_request_share_its_deadline_and_trace(run):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def main():
        async with rpc.Client() as client:

            async def inner(request):
                assert request.remaining <= 5
                return request.trace.encode()

            async def outer(request):
                assert request.peer.startswith("127.0.0.1:")
                return await client.call(below.address, b"x", deadline=100, on_behalf_of=request)

            async with (
                rpc.Server("127.0.0.1:0", inner) as below,
                rpc.Server("127.0.0.1:0", outer) as server,
            ):
                found = await client.call(server.address, b"x", deadline=5, trace=trace)
                found = bytes(found).decode()
                assert found == trace, "there are no spans here, so it is passed on as it came"
                with pytest.raises(ValueError):
                    await client.call(server.address, b"x", trace="mine")

    run(main())


def test_another_loop_is_refused():
    client = rpc.Client()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.ready())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(client.ready())
    loop.run_until_complete(client.close())
    loop.close()


def test_the_example_of_the_documentation_runs(run):
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    example = next(text for text in page.split("```python\n")[1:] if "homa.rpc" in text)
    example = example.split("```")[0].replace(":4000", ":0")
    assert len(example.split("\n")) < 25

    async def main():
        scope = {"__name__": "example"}
        exec(compile(example, "python.md", "exec"), scope)
        return await scope["main"]()

    assert run(main()) == b"hello, world"
