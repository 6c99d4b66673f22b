"""Servers: a task for each request, cancelled if the client no longer waits for its answer."""

from __future__ import annotations

import asyncio
import inspect
import operator
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .._native import Incoming
from ._address import ADVICE, Address, seconds
from ._endpoint import Endpoint
from ._errors import Gone
from ._keys import KeySource, Padding, protection
from ._writers import ReplyWriter

if TYPE_CHECKING:
    import socket

    from typing_extensions import Buffer, Self

#: Takes a request; what it returns is the answer. A plain function runs in a thread.
Handler: TypeAlias = "Callable[[Request], Awaitable[Buffer | None] | Buffer | None]"

#: Seconds between looks whether all is finished, while a server drains.
STEP = 0.002


class Request:
    """A request to be answered.

    Attributes:
        payload: its bytes, as a read-only ``memoryview``.
        peer: the client's address, such as ``"10.0.0.9:51234"``.
        peer_identity: who the client has proved to be: ``"cluster"`` if it holds the cluster's key,
            or the first name in its certificate: a URI, such as a SPIFFE id, otherwise a DNS name.
            None without ``keys``.
        trace: the W3C ``traceparent`` that the client named, if any.
        length: bytes in the whole request, also while it arrives (``Server(early=…)``).
    """

    __slots__ = (
        "_incoming",
        "_server",
        "_task",
        "length",
        "payload",
        "peer",
        "peer_identity",
        "trace",
    )

    def __init__(self, server: Server, incoming: Incoming) -> None:
        """Made by the server."""
        self._server = server
        self._incoming = incoming
        self._task: asyncio.Task[None] | None = None
        self.length: int = incoming.length
        self.payload: memoryview = incoming.payload
        self.peer: str = incoming.peer
        self.peer_identity: str | None = incoming.peer_identity
        self.trace: str | None = incoming.trace

    @property
    def remaining(self) -> float | None:
        """Seconds for which the client waits, down to 0; None where it did not say, or is over."""
        return self._incoming.remaining

    async def reply(self, payload: Buffer) -> None:
        """Answer before the handler ends, which then returns None.

        Waits where outgoing messages hold all the memory they may, not for the client to have it.

        Raises:
            ReplyError: it cannot be sent. ``Gone``: the client no longer waits, or it was answered.
        """
        await self._server._ended(self._server._native.reply, self._incoming, payload)

    def reply_writer(self, length: int) -> ReplyWriter:
        """Answer with a response of ``length`` bytes that is written while it is sent.

        Use it with ``with``; the handler then returns None. What has not arrived of the request
        does not come any more.

        Raises:
            ReplyError: it cannot be sent, for example because it is too long (``ReplyTooLong``).
        """
        return ReplyWriter(self._server._native.reply_writer(self._incoming, length))

    async def arrived(self) -> memoryview | None:
        """Take the bytes that have arrived since the last call; wait until there are some.

        None once all were taken. With ``Server(early=…)`` a long request has an empty payload, and
        comes in pieces; other requests are one piece. ``async for piece in request`` does the same.

        Raises:
            Gone: the rest will not come, because the client gave up. What was taken may be
                incomplete.
        """
        server, whole = self._server, self.payload
        if len(whole):
            self.payload = memoryview(b"")
            return whole
        server._unwatch(self._task)
        try:
            return await server._ended(
                server._native.arrived, self._incoming, untaken=self._give_back
            )
        finally:
            if self._task is not None:
                server._watch(self._incoming, self._task)

    def _give_back(self, piece: memoryview | None) -> None:
        """A read that was cancelled had this piece: the next read takes it."""
        if piece is not None:
            self.payload = piece

    def __aiter__(self) -> AsyncIterator[memoryview]:
        """Its bytes, in pieces as they arrive."""
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[memoryview]:
        while (piece := await self.arrived()) is not None:
            yield piece


def served(idempotent: bool, on_behalf_of: Request | None) -> Incoming | None:
    """The compiled part of the request that a call serves, after a check of both arguments.

    Raises:
        TypeError: one of them is of another type.
    """
    if not isinstance(idempotent, bool):
        raise TypeError(f"idempotent is True or False, and {idempotent!r} was given")
    if on_behalf_of is None:
        return None
    if not isinstance(on_behalf_of, Request):
        raise TypeError(f"on_behalf_of is a handler's request, and {on_behalf_of!r} was given")
    return on_behalf_of._incoming


class Server(Endpoint):
    """Answers requests at an address by a coroutine, or by a plain function.

    ``await server.serve_forever()``, or ``async with server:``. What the handler returns is the
    answer. If it raises, the exception is passed to the loop's exception handler, the client's call
    ends at once with ``Abandoned``, and the server continues. If the client gave up or its
    deadline has passed, the handler's task is cancelled.

    It does not work in a child of ``os.fork`` (``Forked``). If the parent closes it while a child
    lives, its port stays in use until the child ends. So open it after the fork, in the process
    that serves, and start workers of ``multiprocessing`` by ``"spawn"`` or ``"forkserver"``.

    Args:
        address: where to listen, such as ``"0.0.0.0:4000"``, or ``"[::]:4000"`` for IPv4 and IPv6;
            port 0 is any, see ``address``. A name stands for all of its addresses that this
            machine has (see ``addresses``). They have the same port, and ``max_peers`` and
            ``send_memory`` hold for each.
        sock: a bound UDP socket to serve in place of an address, such as
            ``socket.socket(fileno=3)``, the first that systemd passes. Requests that wait in its
            queue are served. It is duplicated, so close it; only one process may serve it at a
            time.
        handler: the coroutine function; or set it with ``@server.handler``. A plain function runs
            in a thread of the loop's default executor, so that one that waits does not hold up the
            loop; its answer is what it returns.
        early: handlers begin with the first bytes of a long request, and read it as it arrives
            (``request.arrived``). About this many bytes of each that were not read are held, so a
            slow reader slows its client down. None: requests are handled when they are whole.
        concurrency: requests that are handled at a time. Others wait in the engine; those that
            could not be answered before their deadline are refused (``Overloaded``).
        drain: seconds that those in progress have when the server ends; then they are cancelled.
        max_message: bytes of the longest request and answer (16 MiB).
        max_peers: clients remembered at a time (65,536).
        send_memory: bytes of answers held until they are acknowledged (1 GiB).
        keys: the file with the cluster's key (``homa key new``), ``Certificates``, or ``Keys``,
            which may allow early data: packets are encrypted, and clients verified, which need the
            same key or fitting certificates.
        admit: decides whether a client's requests are handled, by its ``peer_identity``. If it
            returns something false, or raises, the client's call ends with ``Abandoned``. It is
            called in the event loop for each request, so it should return at once.
        padding: bytes of which encrypted datagrams are a multiple, or ``"full"``: it hides lengths
            of messages from an observer on the path, and costs bandwidth. Needs ``keys``.
        plaintext: exchange plaintext, by choice; not together with ``keys``. Without either, the
            address must be on loopback (``OpenError``).

    Raises:
        OpenError: the address cannot be had, or the key file cannot be used.
        ValueError: an argument is out of range; the message says what it may be.
    """

    def __init__(
        self,
        address: Address | None = None,
        handler: Handler | None = None,
        *,
        sock: socket.socket | None = None,
        early: int | None = None,
        concurrency: int = 1000,
        drain: float = 5.0,
        max_message: int | None = None,
        max_peers: int | None = None,
        send_memory: int | None = None,
        keys: KeySource | None = None,
        admit: Callable[[str], bool] | None = None,
        padding: Padding | None = None,
        plaintext: bool = False,
    ) -> None:
        """Listen; requests wait until it is served."""
        if address is None and sock is None:
            raise TypeError(f"a server needs an address or sock=SOCKET: {ADVICE}")
        if handler is not None and not callable(handler):
            raise TypeError(f"the handler is a function of a request, and {handler!r} was given")
        if operator.index(concurrency) < 1:
            raise ValueError(f"concurrency is at least 1, and {concurrency} was given")
        if admit is not None and keys is None:
            raise ValueError("admit needs keys: without them, no client proves who it is")
        if early is not None and operator.index(early) < 1:
            raise ValueError(f"early is at least 1 byte, and {early} was given")
        drain = seconds(drain, "drain")
        limits = {
            "max_message": max_message,
            "max_peers": max_peers,
            "send_memory": send_memory,
            **protection(keys, plaintext, padding),
        }
        super().__init__(address, True, limits, sock, early)
        self._handler = handler
        self._concurrency = concurrency
        self._drain = drain
        self._admit = admit
        self._tasks: dict[asyncio.Task[None], Incoming] = {}
        self._watches: dict[asyncio.Task[None], int] = {}
        self._over: asyncio.Future[None] | None = None

    @property
    def addresses(self) -> list[str]:
        """Where it is reached: several if it was given a name; ``address`` is the first."""
        return list(self._at)

    def handler(self, function: Handler) -> Handler:
        """Answer by this function; a decorator."""
        self._handler = function
        return function

    async def start(self) -> None:
        """Begin to answer, in tasks of the running loop."""
        if self._handler is None:
            raise RuntimeError("nothing answers: give Server a handler, or use @server.handler")
        loop = self._here()
        if self._over is None:
            self._over = loop.create_future()
            loop.call_soon(self._turn)

    async def serve_forever(self) -> None:
        """Answer until the server is closed, or the task cancelled, which closes it gracefully."""
        await self.start()
        assert self._over is not None
        try:
            await asyncio.shield(self._over)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Refuse new requests, let those in progress finish, then end; no task is left."""
        if self._closed or self._over is None:
            self._shut()
            return
        loop = self._here()
        until = loop.time() + self._drain
        try:
            while self._native.drain() > 0 and loop.time() < until:
                await asyncio.sleep(STEP)
        except asyncio.CancelledError:
            self._stop()
            raise
        await asyncio.gather(*self._stop(), return_exceptions=True)
        # What is called when they are done has been scheduled.
        await asyncio.sleep(0)

    def _stop(self) -> list[asyncio.Task[None]]:
        """End at once; the tasks that are cancelled."""
        own = asyncio.current_task()
        left = [task for task in self._tasks if task is not own]
        for task in left:
            task.cancel()
        self._shut()
        assert self._over is not None
        if not self._over.done():
            self._over.set_result(None)
        return left

    async def __aenter__(self) -> Self:
        """Begin to answer."""
        await self.start()
        return self

    def _room(self) -> int:
        return self._concurrency - len(self._tasks) if self._over is not None else 0

    def _begin(self, incoming: Incoming) -> None:
        assert self._loop is not None
        if not self._admitted(incoming):
            self._native.refuse(incoming)
            if self._full and not self._closed:
                self._loop.call_soon(self._turn)
            return
        request = Request(self, incoming)
        task = self._loop.create_task(self._answer(request))
        request._task = task
        self._tasks[task] = incoming
        task.add_done_callback(self._finished)
        # After the task's first step: a request that ends in it needs no watch for the client.
        self._loop.call_soon(self._watch, incoming, task)

    def _admitted(self, incoming: Incoming) -> bool:
        if self._admit is None:
            return True
        identity = incoming.peer_identity
        try:
            return identity is not None and bool(self._admit(identity))
        except Exception as error:
            assert self._loop is not None
            failed = f"the policy of {self!r} failed on {identity}"
            self._loop.call_exception_handler({"message": failed, "exception": error})
            return False

    def _finished(self, task: asyncio.Task[None]) -> None:
        assert self._loop is not None
        incoming = self._tasks.pop(task)
        if not task.cancelled() and task.exception() is not None:
            failed = f"a handler of {self!r} failed on a request of {incoming.peer}"
            self._loop.call_exception_handler(
                {"message": failed, "exception": task.exception(), "task": task}
            )
        self._unwatch(task)
        self._native.refuse(incoming)
        if self._full and not self._closed:
            self._turn()

    def _unwatch(self, task: asyncio.Task[None] | None) -> None:
        """The compiled part no longer watches whether the client of a task's request waits."""
        watch = None if task is None else self._watches.pop(task, None)
        if watch is not None:
            self._waiting.pop(watch, None)

    def _watch(self, incoming: Incoming, task: asyncio.Task[None]) -> None:
        if task.done() or task in self._watches or self._closed or not incoming.waits:
            return
        number = self._native.watch(incoming)
        self._watches[task] = number or 0
        if number is None:
            task.cancel()
            return
        assert self._loop is not None
        self._waiting[number] = future = self._loop.create_future()

        def gave_up(future: asyncio.Future[Any]) -> None:
            if not future.cancelled() and future.exception() is None:
                task.cancel()

        future.add_done_callback(gave_up)

    async def _answer(self, request: Request) -> None:
        assert self._handler is not None
        try:
            answer = await _called(self._handler, request)
            if answer is not None:
                await request.reply(answer)
            elif request._incoming.waits:
                raise TypeError("the handler returned None and had not replied: return the answer")
        except Gone:
            pass


async def _called(handler: Handler, request: Request) -> Buffer | None:
    """What a handler returns: of a coroutine function here, of a plain one from a thread."""
    is_coroutine = inspect.iscoroutinefunction
    if is_coroutine(handler) or is_coroutine(type(handler).__call__):
        answer = handler(request)
    else:
        answer = await asyncio.to_thread(handler, request)
    # A plain function may be a wrapper of a coroutine function.
    return await answer if inspect.isawaitable(answer) else answer
