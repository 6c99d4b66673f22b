"""Names that stand for several servers: real servers on loopback, of which one is slow or gone."""

import asyncio

import pytest

import homa.rpc as rpc

#: Seconds after which a test that hangs ends.
LONGEST = 60
LOOPBACK = "127.0.0.1:0"


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LONGEST))


class Counting:
    """A handler that answers with its name, after some seconds."""

    def __init__(self, name, after=0.0):
        self.name, self.after, self.begun, self.cancelled = name, after, 0, 0

    async def __call__(self, request):
        self.begun += 1
        try:
            await asyncio.sleep(self.after)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.name


def test_calls_go_to_all_servers_and_a_dead_one_costs_none():
    async def main():
        handlers = [Counting(name) for name in (b"a", b"b", b"c")]
        a, b, c = (rpc.Server(LOOPBACK, handler, drain=0) for handler in handlers)
        async with a, b, rpc.Client(deadline=LONGEST) as client:
            async with c:
                service = await client.connect([a.address, b.address, c.address])
                assert sorted(service.servers) == sorted([a.address, b.address, c.address])
                while not all(handler.begun for handler in handlers):
                    answers = [service.call(b"who?") for _ in range(16)]
                    assert {bytes(answer) for answer in await asyncio.gather(*answers)}
            begun = handlers[2].begun
            for _ in range(30):
                assert bytes(await service.call(b"who?")) in (b"a", b"b")
            assert handlers[2].begun == begun

    run(main())


def test_a_slow_server_is_left_and_its_call_is_cancelled():
    async def main():
        slow = Counting(b"slow", after=LONGEST)
        quick = [Counting(b"quick"), Counting(b"quick")]
        servers = [rpc.Server(LOOPBACK, handler, drain=0) for handler in (slow, *quick)]
        async with servers[0], servers[1], servers[2], rpc.Client(deadline=LONGEST) as client:
            service = await client.connect(
                [server.address for server in servers], hedge=1.0, hedge_after=0.005
            )
            while not slow.begun:
                answer = await service.call(b"who?", idempotent=True)
                assert bytes(answer) == b"quick"
            while not slow.cancelled:
                await asyncio.sleep(0.001)
            # What may not run twice is not sent twice: it ends with its deadline.
            alone = await client.connect([servers[0].address], hedge=1.0, hedge_after=0.005)
            begun = slow.begun
            with pytest.raises(rpc.DeadlineExceeded):
                await alone.call(b"who?", deadline=0.05)
            assert slow.begun == begun + 1

    run(main())


def test_servers_of_a_file_come_and_go(tmp_path):
    async def main():
        handlers = [Counting(b"old"), Counting(b"new")]
        old, new = (rpc.Server(LOOPBACK, handler, drain=0) for handler in handlers)
        listed = tmp_path / "servers"
        async with old, new, rpc.Client(deadline=LONGEST) as client:
            with pytest.raises(rpc.NoServers, match="cannot be read"):
                await client.connect(f"homa+file://{listed}")
            # With wait_for_ready, the file may appear until the deadline.
            with pytest.raises(rpc.DeadlineExceeded, match="before the deadline"):
                await client.connect(f"homa+file://{listed}", wait_for_ready=True, deadline=0.02)
            listed.write_text(f"{old.address} # the old one\n")
            service = await client.connect(f"homa+file://{listed}")
            assert bytes(await service.call(b"who?")) == b"old"
            listed.write_text(f"{new.address}\n")
            while service.servers != [new.address]:
                await asyncio.sleep(0.01)
            assert bytes(await service.call(b"who?")) == b"new"

    run(main())


def test_a_call_for_a_request_has_its_deadline_and_trace():
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def tells(request):
        return f"{request.trace} {request.remaining < 5}".encode()

    async def main():
        async with rpc.Server(LOOPBACK, tells) as back, rpc.Client() as client:
            service = await client.connect(f"homa:///localhost:{back.address.split(':')[1]}")

            async def onward(request):
                return await service.call(b"part", deadline=50, on_behalf_of=request)

            async with rpc.Server(LOOPBACK, onward) as front:
                return bytes(await client.call(front.address, b"all", deadline=5, trace=trace))

    assert run(main()) == f"{trace} True".encode()


def test_a_cancelled_task_cancels_its_call():
    async def main():
        slow = Counting(b"slow", after=LONGEST)
        async with rpc.Server(LOOPBACK, slow, drain=0) as server, rpc.Client() as client:
            service = await client.connect([server.address])
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(service.call(b"who?", deadline=LONGEST), 0.05)
            while not slow.cancelled:
                await asyncio.sleep(0.001)

    run(main())


def test_mistakes_say_what_is_wrong():
    async def main():
        async with rpc.Client() as client:
            for target, text in [
                ("http://search:4000", "homa:///HOST:PORT"),
                ("homa://search:4000", "two slashes"),
                ([], "empty"),
                (["search"], "port"),
            ]:
                with pytest.raises(ValueError, match=text):
                    await client.connect(target)
            for wrong in ({"hedge": 1.5}, {"retries": -1}, {"hedge_after": -1}):
                with pytest.raises(ValueError):
                    await client.connect([LOOPBACK], **wrong)
            for target, text in [([7], "7 is no address"), (7, "7 was given"), (None, "None was")]:
                with pytest.raises(TypeError, match=text):
                    await client.connect(target)
            for name in ("retries", "hedge"):
                with pytest.raises(TypeError, match=f"{name} is a share from 0 to 1, and 'x'"):
                    await client.connect([LOOPBACK], **{name: "x"})
            service = await client.connect(["127.0.0.1:9"], retries=0)
            assert "127.0.0.1:9" in repr(service)
            for wrong in ({"idempotent": 1}, {"on_behalf_of": b"x"}):
                with pytest.raises(TypeError):
                    await service.call(b"", **wrong)
            with pytest.raises(rpc.PortUnreachable):
                await service.call(b"", deadline=LONGEST)
        with pytest.raises(rpc.ShuttingDown):
            await service.call(b"")

    run(main())
