"""homa.rpc.Keys: clients that share them share tickets, and send calls with the handshake."""

import asyncio
import contextlib
import copy
import os
import pickle
from functools import partial

import pytest

import homa.rpc as rpc

LINE = "homa-key-v1 AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\n"
OTHER = "homa-key-v1 AAIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "cluster.key"
    path.touch(0o600)
    path.write_text(LINE)
    return path


class Path:
    """Between clients, one at a time, and a server, which sees another address for each client."""

    def __init__(self, server):
        self.server_at = ("127.0.0.1", int(server.address.rsplit(":")[1]))
        self.to_server = None
        self.clients = 0
        # What the server has sent while the path was shut; None if it is open.
        self.held = None
        self.answered = asyncio.Event()

    async def __aenter__(self):
        loop, path = asyncio.get_running_loop(), self

        class ToClient(asyncio.DatagramProtocol):
            def datagram_received(self, data, address):
                path.client_at = address
                path.to_server.sendto(data, path.server_at)

        local = ("127.0.0.1", 0)
        self.to_client, _ = await loop.create_datagram_endpoint(ToClient, local_addr=local)
        self.at = "127.0.0.1:{}".format(self.to_client.get_extra_info("sockname")[1])
        await self.next_client()
        return self

    async def next_client(self):
        loop, path = asyncio.get_running_loop(), self

        class ToServer(asyncio.DatagramProtocol):
            def datagram_received(self, data, address):
                if path.held is None:
                    path.to_client.sendto(data, path.client_at)
                else:
                    path.held.append(data)
                    path.answered.set()

        if self.to_server is not None:
            self.to_server.close()
        # The system may give a port twice, and the server takes nothing early from a known address.
        self.clients += 1
        local = (f"127.0.0.{self.clients + 1}", 0)
        self.to_server, _ = await loop.create_datagram_endpoint(ToServer, local_addr=local)

    def shut(self):
        self.held = []
        self.answered.clear()

    def open(self):
        held, self.held = self.held, None
        for data in held:
            self.to_client.sendto(data, self.client_at)

    async def __aexit__(self, *_):
        self.to_client.close()
        self.to_server.close()


class Executed:
    """An echo that counts."""

    def __init__(self):
        self.count = 0
        self.first = asyncio.Event()

    async def __call__(self, request):
        self.count += 1
        self.first.set()
        return request.payload


async def meet(path, keys):
    """A client with these keys calls, and leaves them a ticket."""
    await path.next_client()
    async with rpc.Client(keys=keys) as client:
        assert await client.call(path.at, b"ticket", deadline=60) == b"ticket"


async def goes_early(path, executed, keys, idempotent=True, balanced=False):
    """Whether the call of a new client is executed before anything of the server reaches it.

    A balanced one is made by a service.
    """
    await path.next_client()
    before = executed.count
    executed.first.clear()
    async with rpc.Client(keys=keys) as client:
        make = (await client.connect([path.at])).call if balanced else partial(client.call, path.at)
        path.shut()
        call = asyncio.ensure_future(make(b"request", idempotent=idempotent, deadline=60))
        await asyncio.wait_for(path.answered.wait(), 60)
        # The server has the client's hello. What was sent beside it arrives now, or never.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(executed.first.wait(), 0.5)
        early = executed.count - before
        path.open()
        assert await call == b"request"
        assert executed.count == before + 1
        # Afterwards there is a session, with which the ticket for the next client comes.
        assert await client.call(path.at, b"next", deadline=60) == b"next"
    return early == 1


def with_path(server_keys, scenario):
    async def main():
        executed = Executed()
        server = rpc.Server("127.0.0.1:0", executed, keys=server_keys)
        async with server, Path(server) as path:
            await scenario(path, executed)

    asyncio.run(main())


@pytest.mark.parametrize("common", [False, True])
def test_the_call_of_the_next_client_goes_with_the_handshake(path, common):
    keys = rpc.Keys(path, early_data=True)

    async def scenario(path, executed):
        assert not await goes_early(path, executed, keys), "there is no ticket"
        assert await goes_early(path, executed, keys)
        assert not await goes_early(path, executed, keys, idempotent=False), "it may run once"
        assert await goes_early(path, executed, keys)

    with_path(keys if common else rpc.Keys(path, early_data=True), scenario)


def test_each_client_that_makes_one_call_leaves_a_ticket_for_the_next(path):
    keys = rpc.Keys(path, early_data=True)

    async def scenario(path, executed):
        await meet(path, keys)
        for _ in range(5):
            await path.next_client()
            path.shut()
            executed.first.clear()
            async with rpc.Client(keys=keys) as client:
                call = client.call(path.at, b"request", idempotent=True, deadline=60)
                call = asyncio.ensure_future(call)
                # Without a ticket it would wait for the path.
                await asyncio.wait_for(executed.first.wait(), 60)
                path.open()
                assert await call == b"request"

    with_path(rpc.Keys(path, early_data=True), scenario)


def test_both_ends_have_to_allow_it_and_share_keys(path):
    early, late = rpc.Keys(path, early_data=True), rpc.Keys(path)
    for of_server, of_client in [(late, early), (path, early), (early, late), (early, path)]:

        async def scenario(path, executed, keys=of_client):
            for _ in range(2):
                assert not await goes_early(path, executed, keys)

        with_path(of_server, scenario)

    async def other(path, executed):
        await meet(path, early)
        assert not await goes_early(path, executed, rpc.Keys(files, early_data=True))
        assert await goes_early(path, executed, early)

    files = path
    with_path(rpc.Keys(path, early_data=True), other)


def test_tickets_end_with_the_key_file_and_the_next_ones_work(path):
    keys = rpc.Keys(path, early_data=True)
    files = path

    async def scenario(path, executed):
        await meet(path, keys)
        files.write_text(OTHER + LINE)
        assert not await goes_early(path, executed, keys), "the file has changed"
        assert await goes_early(path, executed, keys)

    with_path(rpc.Keys(path, early_data=True), scenario)


def test_a_service_calls_early_too(path):
    keys = rpc.Keys(path, early_data=True)

    async def scenario(path, executed):
        await meet(path, keys)
        assert await goes_early(path, executed, keys, balanced=True)
        assert not await goes_early(path, executed, keys, idempotent=False, balanced=True), "once"
        assert await goes_early(path, executed, keys, balanced=True)

    with_path(rpc.Keys(path, early_data=True), scenario)


def test_the_child_of_a_fork_has_none_of_its_parents_tickets(path):
    keys = rpc.Keys(path, early_data=True)

    async def scenario(path, executed):
        await meet(path, keys)
        await path.next_client()
        path.shut()
        executed.first.clear()
        child = os.fork()
        if child == 0:
            # The parent's loop runs in the parent alone.
            asyncio.events._set_running_loop(None)
            try:
                asyncio.run(in_child(path.at))
                os._exit(0)
            finally:
                os._exit(1)
        await asyncio.wait_for(path.answered.wait(), 60)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(executed.first.wait(), 0.5)
        path.open()
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0
        assert await goes_early(path, executed, keys), "the parent still has its ticket"

    async def in_child(at):
        async with rpc.Client(keys=keys) as client:
            assert await client.call(at, b"child", idempotent=True, deadline=60) == b"child"

    with_path(rpc.Keys(path, early_data=True), scenario)


def test_mistakes_are_named(path, tmp_path):
    with pytest.raises(rpc.OpenError, match="homa key new"):
        rpc.Keys(tmp_path / "none", early_data=True)
    with pytest.raises(TypeError, match="early_data is True or False"):
        rpc.Keys(path, early_data=1)
    with pytest.raises(ValueError, match="certificates have no tickets"):
        rpc.Keys(rpc.Certificates("a.crt", "a.key", "ca.crt"), early_data=True)
    keys = rpc.Keys(path, early_data=True)
    with pytest.raises(TypeError, match="share them as they are"):
        rpc.Keys(keys)
    with pytest.raises(ValueError, match="not both"):
        rpc.Client(keys=keys, plaintext=True)
    with pytest.raises(TypeError, match="make them in the other process"):
        pickle.dumps(keys)
    for wrong in [5, {}, ("a", "b"), b"homa-key-v1"]:
        named = rf"Certificates\(...\) or Keys\(...\), and a value of type {type(wrong).__name__}"
        for give in [rpc.Keys, lambda keys: rpc.Client(keys=keys)]:
            with pytest.raises(TypeError, match=named):
                give(wrong)
    assert copy.copy(keys) is keys
    assert copy.deepcopy({"keys": keys})["keys"] is keys
    assert repr(keys) == f"homa.rpc.Keys({path!r}, early_data=True)"
    assert (keys.early_data, rpc.Keys(str(path)).early_data) == (True, False)
