"""homa.rpc: arguments that cannot be are refused with advice; look-ups take of a call's time."""

import asyncio
import math
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import homa.rpc as rpc

HUGE = 1 << 2000


async def echo(request):
    return request.payload


@pytest.mark.parametrize("value", [0, -1, 1 << 64, HUGE])
@pytest.mark.parametrize("limit", ["max_message", "max_rpcs", "max_peers", "send_memory"])
def test_limits_out_of_range_are_value_errors_that_say_the_range(limit, value):
    with pytest.raises(ValueError, match=f"{limit} is from 1 to [0-9]+, and {value} was given"):
        rpc.Client(**{limit: value})


@pytest.mark.parametrize("limit", ["max_message", "max_rpcs", "max_peers", "send_memory"])
def test_the_ends_of_each_range_are_limits_that_can_be(limit):
    with pytest.raises(ValueError) as caught:
        rpc.Client(**{limit: 0})
    for value in re.findall(r"from (\d+) to (\d+)", str(caught.value))[0]:
        client = rpc.Client(**{limit: int(value)})
        asyncio.run(client.close())
    with pytest.raises(TypeError):
        rpc.Client(**{limit: "many"})


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, 1e30, HUGE])
def test_times_out_of_range_are_value_errors_wherever_they_are_given(value):
    with pytest.raises(ValueError, match="deadline is from 0 to 1e9 seconds"):
        rpc.Client(deadline=value)
    with pytest.raises(ValueError, match="drain is from 0 to 1e9 seconds"):
        rpc.Server("127.0.0.1:0", echo, drain=value)

    async def main():
        async with rpc.Client() as client:
            for to in ["127.0.0.1:9", "localhost:9"]:
                with pytest.raises(ValueError, match="deadline is from 0 to 1e9 seconds"):
                    await client.call(to, b"x", deadline=value)

    asyncio.run(main())


def test_what_is_no_number_is_a_type_error():
    with pytest.raises(TypeError, match="deadline is a number of seconds"):
        rpc.Client(deadline="1")
    with pytest.raises(TypeError):
        rpc.Server("127.0.0.1:0", echo, concurrency=1.5)
    with pytest.raises(ValueError, match="concurrency is at least 1"):
        rpc.Server("127.0.0.1:0", echo, concurrency=0)


@pytest.mark.parametrize("wrong", [{"idempotent": 3}, {"on_behalf_of": b"request"}])
def test_options_of_a_call_of_another_type_are_named(wrong):
    async def main():
        async with rpc.Client() as client:
            with pytest.raises(TypeError, match=f"{next(iter(wrong))} is "):
                await client.call("127.0.0.1:9", b"x", **wrong)

    asyncio.run(main())


@pytest.mark.parametrize("length", [-1, 1 << 32, HUGE])
def test_room_for_what_no_message_has_is_a_value_error(length):
    async def main():
        async with rpc.Client() as client:
            await client.ready(0)
            with pytest.raises(ValueError, match="length is from 0 to"):
                await client.ready(length)

    asyncio.run(main())


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1",
        "localhost",
        "localhost:",
        # The system would take 34463 for it.
        "localhost:99999",
        "localhost:http",
        "127.0.0.1:99999",
        "::1:80",
        "[::1:80",
        "*:80",
        ("localhost", -1),
        ("127.0.0.1", HUGE),
    ],
)
def test_addresses_that_cannot_be_are_value_errors_that_say_how_to_write_them(address):
    advice = re.escape("write it as 10.0.0.7:4000")

    async def main():
        async with rpc.Client() as client:
            with pytest.raises(ValueError, match=advice):
                await client.call(address, b"x")
        with pytest.raises(ValueError, match=advice):
            rpc.Server(address, echo)

    asyncio.run(main())


@pytest.mark.parametrize("address", [None, 5, b"127.0.0.1:0", ()])
def test_what_is_no_address_at_all_is_a_type_error(address):
    with pytest.raises(TypeError, match="address"):
        rpc.Server(address, echo)


@pytest.mark.parametrize("name", ["a..b", "a" * 300])
def test_names_that_no_host_can_have_are_told_so(name):
    async def main():
        async with rpc.Client() as client:
            with pytest.raises(rpc.Unreachable, match="check the name"):
                await client.call(f"{name}:80", b"x")
        with pytest.raises(rpc.OpenError, match="check the name"):
            rpc.Server(f"{name}:80", echo)

    asyncio.run(main())


@pytest.mark.parametrize("here", ["127.0.0.1:0", "[::1]:0"])
def test_a_name_is_called_at_its_first_address_that_the_client_can_reach(here):
    async def main():
        try:
            client = rpc.Client(here)
            family = socket.AF_INET6 if "[" in here else socket.AF_INET
            socket.getaddrinfo("localhost", 9, family=family)
        except (rpc.OpenError, socket.gaierror):
            pytest.skip(f"localhost at {here}")
        async with client, rpc.Server(here, echo) as server:
            port = server.address.rpartition(":")[2]
            assert await client.call(f"localhost:{port}", b"by name") == b"by name"
            assert await client.call(("localhost", int(port)), b"a pair") == b"a pair"

    asyncio.run(main())


def test_the_interface_of_a_link_local_address_may_be_named():
    async def main():
        async with rpc.Client(plaintext=True) as client:
            with pytest.raises(rpc.CallError) as caught:
                await client.call("[fe80::1%lo]:9", b"x", deadline=0.001)
            # Sent or refused by the system; not taken for a host's name.
            assert "no address" not in str(caught.value)

    if not socket.if_nametoindex("lo"):
        pytest.skip("an interface lo")
    asyncio.run(main())


def link_local():
    """An address of this host that needs a scope, as sockets say it, or None."""
    with open("/proc/net/if_inet6") as lines:
        for line in lines:
            digits, index, *_ = line.split()
            if digits.startswith("fe80"):
                host = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
                return (host, 0, 0, int(index, 16))
    return None


@pytest.mark.parametrize("more", [(), (0,), (0, 0)])
def test_an_address_without_a_scope_is_taken_as_sockets_say_it(more):
    async def main():
        async with rpc.Server(("127.0.0.1", 0, *more), echo) as server, rpc.Client() as client:
            port = int(server.address.rpartition(":")[2])
            assert await client.call(("127.0.0.1", port, *more), b"here") == b"here"

    asyncio.run(main())


def test_the_scope_of_an_address_counts_for_servers_and_clients():
    at = link_local()
    if at is None:
        pytest.skip("an interface with a link-local address")

    async def main():
        server, client = rpc.Server(at, echo, plaintext=True), rpc.Client(plaintext=True)
        async with server, client:
            port = int(server.address.rpartition(":")[2])
            host, _, flow, scope = at
            assert await client.call((host, port, flow, scope), b"scoped") == b"scoped"

    asyncio.run(main())


@pytest.mark.parametrize("idempotent", [False, True])
def test_the_addresses_of_a_name_are_called_in_turn(monkeypatch, idempotent):
    def found(*_, **__):
        kind = (socket.AF_INET, socket.SOCK_DGRAM, 17, "")
        return [(*kind, (f"127.0.0.{last}", port)) for last in (3, 2, 1)]

    async def main():
        async with rpc.Client("127.0.0.1:0") as client:
            async with rpc.Server("127.0.0.1:0", echo) as server:
                nonlocal port
                port = int(server.address.rpartition(":")[2])
                monkeypatch.setattr(socket, "getaddrinfo", found)
                call = client.call("several:1", b"x", idempotent=idempotent, deadline=60)
                assert await call == b"x"
            with pytest.raises(rpc.PortUnreachable):
                await client.call("several:1", b"x", deadline=60)

    port = 0
    asyncio.run(main())


def listed(*hosts):
    """What a look-up of a name with these addresses finds."""

    def found(_name, port, **_):
        kind = (socket.AF_INET, socket.SOCK_DGRAM, 17, "")
        return [(*kind, (host, port)) for host in hosts]

    return found


def test_a_server_is_at_all_addresses_of_its_name(monkeypatch):
    async def main():
        # This machine has no such address as the first, which is for documentation (RFC 5737).
        monkeypatch.setattr(socket, "getaddrinfo", listed("203.0.113.1", "127.0.0.1", "127.0.0.2"))
        async with rpc.Server("store:0", echo, concurrency=1) as server, rpc.Client() as client:
            first, second = server.addresses
            assert server.address == first
            port = int(first.rpartition(":")[2])
            assert (first, second) == (f"127.0.0.1:{port}", f"127.0.0.2:{port}") and port > 0
            assert first in repr(server) and second in repr(server)
            for at in server.addresses:
                assert await client.call(at, b"here") == b"here"
            # One request at a time, from both in turn.
            calls = [client.call(at, b"x", deadline=60) for at in server.addresses * 20]
            assert await asyncio.gather(*calls) == [b"x"] * 40
        for at in (first, second):
            with pytest.raises(rpc.PortUnreachable):
                async with rpc.Client() as client:
                    await client.call(at, b"x", deadline=60)
        monkeypatch.setattr(socket, "getaddrinfo", listed("127.0.0.3", "127.0.0.2"))
        async with rpc.Server(second, echo):
            # It is the second address that is taken, and the first is not kept.
            for _ in range(2):
                with pytest.raises(rpc.AddressInUse, match=re.escape(second)):
                    rpc.Server(f"store:{port}", echo)
        monkeypatch.setattr(socket, "getaddrinfo", listed("203.0.113.1", "203.0.113.2"))
        with pytest.raises(rpc.OpenError, match=re.escape("203.0.113.1")):
            rpc.Server("store:0", echo, plaintext=True)

    asyncio.run(main())


def test_a_busy_address_of_a_name_does_not_hold_up_another(monkeypatch):
    async def main():
        monkeypatch.setattr(socket, "getaddrinfo", listed("127.0.0.1", "127.0.0.2"))
        server = rpc.Server("store:0", echo, concurrency=1)
        async with server, rpc.Client() as client:
            first, second = server.addresses

            async def calls():
                while True:
                    await client.call(first, b"many", deadline=60)

            # Some always wait at the first address.
            tasks = [asyncio.ensure_future(calls()) for _ in range(50)]
            await asyncio.sleep(0.05)
            assert await client.call(second, b"one", deadline=20) == b"one"
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


class Busy(ThreadPoolExecutor):
    """asyncio looks names up in here: one thread, which does nothing else until it is told."""

    def __init__(self):
        super().__init__(1)
        self.go_on = threading.Event()
        self.submit(self.go_on.wait)


def test_the_deadline_ends_a_look_up_that_takes_too_long():
    async def main():
        busy = Busy()
        asyncio.get_running_loop().set_default_executor(busy)
        async with rpc.Client() as client:
            with pytest.raises(rpc.DeadlineExceeded, match="looked up"):
                await client.call("localhost:9", b"x", deadline=0.01)
        busy.go_on.set()

    asyncio.run(main())


def test_what_a_look_up_takes_is_taken_from_the_deadline():
    async def main():
        busy, remaining = Busy(), []
        asyncio.get_running_loop().set_default_executor(busy)

        async def tell(request):
            remaining.append(request.remaining)
            return b"x"

        async with rpc.Server("127.0.0.1:0", tell) as server, rpc.Client("127.0.0.1:0") as client:
            port = server.address.rpartition(":")[2]
            call = asyncio.ensure_future(client.call(f"localhost:{port}", b"x", deadline=60))
            await asyncio.sleep(0.2)
            busy.go_on.set()
            await call
        assert 0 < remaining[0] <= 59.8

    asyncio.run(main())


def test_an_empty_payload_and_an_empty_answer_arrive():
    async def main():
        async with rpc.Server("127.0.0.1:0", echo) as server, rpc.Client() as client:
            assert await client.call(server.address, b"") == b""

    asyncio.run(main())


def test_a_server_refuses_what_it_cannot_answer_in_time():
    async def main():
        async def slow(request):
            await asyncio.sleep(0.02)
            return b"done"

        async with (
            rpc.Server("127.0.0.1:0", slow, concurrency=1) as server,
            rpc.Client() as client,
        ):
            # On a busy machine, refusals may arrive after the deadline, but not every time.
            for _ in range(5):
                calls = [client.call(server.address, b"x", deadline=1.0) for _ in range(300)]
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert b"done" in ended
                if any(isinstance(outcome, rpc.Overloaded) for outcome in ended):
                    return
            raise AssertionError(ended)

    asyncio.run(main())


def test_every_error_of_the_crate_has_a_class():
    source = Path(__file__).parents[2] / "crates" / "homa" / "src" / "error.rs"
    enum = source.read_text().split("pub enum CallError {")[1].split("\n}")[0]
    names = re.findall(r"^    ([A-Z]\w+)", enum, re.MULTILINE)
    assert len(names) > 15
    # Python has no engines that share an address, no calls that block, and no statuses. A kernel
    # peer of a newer wire is DeadlineExceeded.
    others = {"OtherShard", "RuntimeBlocked", "Status", "NewerPeer"}
    for name in set(names) - others:
        assert issubclass(getattr(rpc, name), rpc.CallError), name
