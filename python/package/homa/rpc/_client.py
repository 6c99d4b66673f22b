"""Calls: each is awaited, has a deadline, and is cancelled with the task that awaits it."""

from __future__ import annotations

import asyncio
import operator
import socket
from typing import TYPE_CHECKING

from ._address import Address, family, missing, named, numeric, seconds, written
from ._endpoint import Endpoint
from ._errors import (
    AddressFamily,
    DeadlineExceeded,
    HostUnreachable,
    Indeterminate,
    NotSent,
    PortUnreachable,
    Unreachable,
)
from ._keys import KeySource, Padding, protection
from ._server import Request, served
from ._service import Service
from ._writers import CallWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer

#: Longest time for the ticket of the next client, seconds, and time between looks for it.
TICKET = 0.1
STEP = 0.0005

#: No message has more bytes, and room for it is room for any.
MOST = 0xFFFF_FFFF


def admitted(identities: Iterable[str] | None, keys: KeySource | None) -> set[str] | None:
    """The servers that may be called, after a check.

    Raises:
        TypeError: they are no list of texts.
        ValueError: there are no keys.
    """
    if identities is None:
        return None
    if keys is None:
        raise ValueError("admit needs keys: without them, no server proves who it is")
    names = [] if isinstance(identities, str) or callable(identities) else list(identities)
    if not names or not all(isinstance(name, str) for name in names):
        such = "admit is a list of servers' identities, at least one"
        raise TypeError(f"{such}, and {identities!r} was given")
    return set(names)


class Client(Endpoint):
    """Calls servers, any number at a time; all from one port, and without connections.

    It belongs to the event loop that first uses it. Use it with ``async with``, or close it.

    It does not work in a child of ``os.fork``, where calls raise ``Forked``: open it after the
    fork, in the process that calls, or start workers of ``multiprocessing`` by ``"spawn"`` or
    ``"forkserver"``.

    Args:
        address: where calls leave from; by default any port, to IPv4 and IPv6. Of a name, the first
            address that this machine has.
        sock: a bound UDP socket to use in place of an address. It is duplicated, so close it.
        deadline: default deadline of a call, in seconds.
        max_message: bytes of the longest payload and answer (16 MiB).
        max_rpcs: calls in progress at a time.
        max_calls_per_server: calls in progress to one server, so that one that hangs does not take
            all of ``max_rpcs``; another call raises ``TooManyCallsTo``. None: no limit.
        max_peers: servers remembered at a time (65,536).
        send_memory: bytes of outgoing messages held at a time (1 GiB).
        keys: the file with the cluster's key (``homa key new``), ``Certificates``, or ``Keys``,
            which clients can share: packets are encrypted, and servers verified, which need the
            same key or fitting certificates.
        admit: the identities of servers that may be called, such as ``["spiffe://acme/store"]``;
            calls to others end with ``HandshakeRefused``, and nothing is sent to them. Needs
            ``keys``. None: all servers that the keys verify. It is a list, because the engine
            decides where no Python code can run.
        padding: bytes of which encrypted datagrams are a multiple, or ``"full"``: it hides lengths
            of messages from an observer on the path, and costs bandwidth. Needs ``keys``.
        plaintext: exchange plaintext, by choice; not together with ``keys``. Without either, only
            servers on this host can be called (``Unprotected``).

    Raises:
        OpenError: the address cannot be had, or the key file cannot be used.
        ValueError: an argument is out of range; the message says what it may be.
    """

    def __init__(
        self,
        address: Address | None = None,
        *,
        sock: socket.socket | None = None,
        deadline: float = 10.0,
        max_message: int | None = None,
        max_rpcs: int | None = None,
        max_calls_per_server: int | None = None,
        max_peers: int | None = None,
        send_memory: int | None = None,
        keys: KeySource | None = None,
        admit: Iterable[str] | None = None,
        padding: Padding | None = None,
        plaintext: bool = False,
    ) -> None:
        """Open it."""
        limits = {
            "max_message": max_message,
            "max_rpcs": max_rpcs,
            "max_calls_per_server": max_calls_per_server,
            "max_peers": max_peers,
            "send_memory": send_memory,
            **protection(keys, plaintext, padding),
            "admit": admitted(admit, keys),
        }
        self._deadline = seconds(deadline, "deadline")
        super().__init__(address, False, limits, sock)

    async def close(self) -> None:
        """End; calls in progress are cancelled, with ``ShuttingDown`` for those who wait.

        If a call was sent with the handshake (``Keys(early_data=True)``), it waits for the ticket
        of the next client, about a round trip and at most 0.1 s.
        """
        try:
            if not self._closed and self._loop is asyncio.get_running_loop():
                until = self._loop.time() + TICKET
                while self._native.awaits_ticket() and self._loop.time() < until:
                    await asyncio.sleep(STEP)
        finally:
            self._shut()

    async def call(
        self,
        to: Address,
        payload: Buffer,
        *,
        deadline: float | None = None,
        idempotent: bool = False,
        trace: str | None = None,
        on_behalf_of: Request | None = None,
    ) -> memoryview:
        """Call a server and return its response in a separate buffer.

        Cancelling the task (``asyncio.timeout``, ``asyncio.wait_for``) cancels the call, also at
        the server.

        Args:
            to: the server; a name is looked up each time. If it has several addresses, the next is
                called if the call to one was not executed.
            payload: anything with a contiguous buffer, which is read before anything is awaited.
            deadline: seconds until the call ends with ``DeadlineExceeded``, including the look-up.
                It travels to the server.
            idempotent: the call may be executed more than once. If the server lost it or is not
                there, it is retried until the deadline. With early data (``Keys``) it is sent with
                the handshake; of a name with several addresses, to the last of them alone.
            trace: the W3C ``traceparent`` that the server gets as ``request.trace``.
            on_behalf_of: a request that this call serves. The call ends by the deadline of that
                request at the latest, and belongs to its trace.

        Raises:
            CallError: one for each reason, with what to do next.
            ValueError: an argument cannot be, such as an address without a port.
        """
        left = seconds(self._deadline if deadline is None else deadline, "deadline")
        behalf = served(idempotent, on_behalf_of)
        at = written(to)
        name = named(at)
        if name is not None:
            payload = bytes(memoryview(payload))
            remaining = None if behalf is None else behalf.remaining
            if remaining is not None:
                left = min(left, remaining)
        until = self._here().time() + left
        *others, at = [at] if name is None else await self._looked_up(name, left)

        async def called(at: str, again: bool) -> memoryview:
            left = max(0.0, until - self._here().time())
            return await self._ended(self._native.call, at, payload, left, again, trace, behalf)

        for other in others:
            try:
                # An idempotent call waits for its server, which may be at the next address.
                return await called(other, False)
            except Indeterminate:
                if not idempotent:
                    raise
                at = other
                break
            except (AddressFamily, HostUnreachable, NotSent, PortUnreachable):
                pass
        return await called(at, idempotent)

    async def call_writer(
        self,
        to: Address,
        length: int,
        *,
        deadline: float | None = None,
        trace: str | None = None,
        on_behalf_of: Request | None = None,
    ) -> CallWriter:
        """Begin a call whose request of ``length`` bytes is written while it is sent.

        ``with await client.call_writer(to, length) as writer:`` pushes the pieces, and
        ``await writer.finish()`` in the block returns the response.

        Args:
            to: the server; of a name, its first address.
            length: bytes of the whole request.
            deadline: seconds until the call ends, as of ``call``.
            trace: the W3C ``traceparent`` that the server gets, as of ``call``.
            on_behalf_of: a request that this call serves, as of ``call``.

        Raises:
            CallError: one for each reason, with what to do next.
            ValueError: an argument cannot be, such as an address without a port.
        """
        left = seconds(self._deadline if deadline is None else deadline, "deadline")
        behalf = served(False, on_behalf_of)
        if not 0 <= operator.index(length) <= MOST:
            raise ValueError(f"length is from 0 to {MOST} bytes, and {length} was given")
        at = written(to)
        name = named(at)
        until = self._here().time() + left
        if name is not None:
            at = (await self._looked_up(name, left))[0]
            left = max(0.0, until - self._here().time())
        return CallWriter(self, self._native.call_writer(at, length, left, trace, behalf))

    async def connect(
        self,
        target: str | Sequence[Address],
        *,
        retries: float = 0.2,
        hedge: float = 0.05,
        hedge_after: float | None = None,
        wait_for_ready: bool = False,
        deadline: float | None = None,
    ) -> Service:
        """Look up a name that stands for several servers; calls of the result go to one of them.

        Args:
            target: ``"homa:///host:port"`` (all addresses of the name),
                ``"homa+file:///path"`` (an address a line, read every second),
                ``"homa+srv://name"`` (SRV records of DNS, if the package was built with the
                feature ``srv``), or a list of addresses.
            retries: repeated calls as a share of all; ten a second are permitted in any case,
                unless it is 0.
            hedge: calls that are also sent to a second server, as a share of all; only idempotent
                ones. 0: none.
            hedge_after: seconds after which a call is late; by default, the time that 95 % of
                recent calls did not exceed.
            wait_for_ready: calls wait for a server to be known, until their deadline.
            deadline: seconds for the first look-up (by default, the client's).

        Raises:
            NoServers: no server was found.
            DeadlineExceeded: the look-up took too long.
            ValueError: it is no target.
        """
        left = seconds(self._deadline if deadline is None else deadline, "deadline")
        service = Service(self, target, retries, hedge, hedge_after, wait_for_ready)
        await service._connected(left)
        return service

    async def _looked_up(self, name: tuple[str, int], left: float) -> list[str]:
        """The addresses of a name, for a call that has some time left."""
        loop = self._here()
        kind = family(self.address)
        try:
            looking = loop.getaddrinfo(*name, family=kind, type=socket.SOCK_DGRAM)
            found = await asyncio.wait_for(looking, left)
        except asyncio.TimeoutError:
            raise DeadlineExceeded(
                f"`{name[0]}` was not looked up before the deadline: retry with a longer one"
            ) from None
        except (socket.gaierror, UnicodeError) as error:
            raise Unreachable(missing(name[0], error)) from error
        return numeric(found)

    async def ready(self, length: int | None = None, *, to: Address | None = None) -> None:
        """Wait for room for a call with ``length`` bytes, or any; else calls raise ``Busy``.

        With ``to`` it is a call to this server (of a name, its first address), which may have as
        many as ``max_calls_per_server`` says. Without ``to``, that limit is not considered.
        """
        if length is None:
            length = MOST
        elif not 0 <= length <= MOST:
            raise ValueError(f"length is from 0 to {MOST} bytes, and {length} was given")
        at = None if to is None else written(to)
        if at is not None and (name := named(at)) is not None:
            at = (await self._looked_up(name, self._deadline))[0]
        await self._ended(self._native.room, length, at)
