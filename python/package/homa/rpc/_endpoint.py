"""The common part of clients and servers: the engines, watched by the event loop that uses them.

Futures are kept here and never in the compiled part, so that Python's collector sees which tasks
wait. When the last reference is gone, the engine's descriptors and thread end with it.
"""

from __future__ import annotations

import asyncio
import socket
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .._native import Endpoint as Native
from .._native import Incoming
from ._address import Address, looked_up_now
from ._errors import Forked, ShuttingDown

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

T = TypeVar("T")


def descriptor_of(sock: socket.socket) -> int:
    """The descriptor of a socket that a user passes.

    Raises:
        TypeError: it is no socket.
        ValueError: it is closed.
    """
    if not isinstance(sock, socket.socket):
        such = "sock is a socket.socket, such as socket.socket(fileno=3)"
        raise TypeError(f"{such}, and {sock!r} was given")
    number = sock.fileno()
    if number < 0:
        raise ValueError("sock is closed: pass one that is bound")
    return number


class Endpoint:
    """Engines, one for each address, and their loop: the first that anything is awaited in."""

    def __init__(
        self,
        address: Address | None,
        serves: bool,
        limits: dict[str, Any],
        sock: socket.socket | None = None,
        early: int | None = None,
    ):
        """Open the engines; limits that are None are their defaults.

        Raises:
            TypeError: the socket is none.
            ValueError: an address and a socket were given, or the socket is closed.
        """
        if address is not None and sock is not None:
            raise ValueError("give an address or sock=SOCKET, not both")
        own = None if sock is None else descriptor_of(sock)
        at = [] if address is None else looked_up_now(address)
        given = [(name, value) for name, value in limits.items() if value is not None]
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        # Who gets the outcomes of operations whose task is cancelled as they end.
        self._untaken: dict[int, Callable[[Any], None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        # More requests may wait than there was room for.
        self._full = False
        self._native = Native(at, serves, given, own, early)
        self._at: list[str] = self._native.addresses

    @property
    def address(self) -> str:
        """Where it is reached, with the port that was chosen."""
        return self._at[0]

    def _here(self) -> asyncio.AbstractEventLoop:
        """The running loop, which watches the engine from now on."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            descriptors = self._native.filenos()
            if self._loop is not None:
                raise RuntimeError(
                    "it was used in another event loop: open a client or server in each loop"
                )
            for descriptor in descriptors:
                loop.add_reader(descriptor, self._turn)
            self._loop = loop
        return loop

    async def close(self) -> None:
        """End; calls in progress are cancelled, with ``ShuttingDown`` for those who wait."""
        self._shut()

    async def __aenter__(self) -> Self:
        """Use it until the end of the block."""
        self._here()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()

    async def _ended(
        self,
        start: Callable[..., int | T],
        *arguments: Any,
        untaken: Callable[[T], None] | None = None,
    ) -> T:
        """The outcome of a started operation; cancelled with the task that awaits it.

        If the operation ends and its task is cancelled before it runs again, in either order,
        ``untaken`` gets the outcome.
        """
        loop = self._here()
        started = start(*arguments)
        if not isinstance(started, int):
            return started
        future: asyncio.Future[T] = loop.create_future()
        self._waiting[started] = future
        if untaken is not None:
            self._untaken[started] = untaken
        try:
            return await future
        except BaseException:
            # Without effect on what ended by itself.
            self._waiting.pop(started, None)
            self._native.forget(started)
            has_result = future.done() and not future.cancelled() and future.exception() is None
            if untaken is not None and has_result:
                untaken(future.result())
            raise
        finally:
            self._untaken.pop(started, None)

    def _room(self) -> int:
        """How many requests may begin."""
        return 0

    def _begin(self, request: Incoming) -> None:
        """A request is here."""

    def _turn(self) -> None:
        """Drive the engine, and take in what has ended; the loop calls it."""
        room = self._room()
        ended, requests = self._native.turn(room)
        self._full = len(requests) == room
        for number, outcome in ended:
            future = self._waiting.pop(number, None)
            if future is None or future.done():
                # Its task was cancelled, and has not run since.
                if number in self._untaken and not isinstance(outcome, BaseException):
                    self._untaken[number](outcome)
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        for request in requests:
            self._begin(request)

    def _shut(self) -> None:
        """End everything at once."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            try:
                descriptors = self._native.filenos()
            except Forked:
                # The parent's loop goes on watching.
                return
            for descriptor in descriptors:
                self._loop.remove_reader(descriptor)
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ShuttingDown("it was closed: open another"))
        self._waiting.clear()
        self._native.close()

    def __del__(self) -> None:
        """Tell of one that was not closed, as asyncio does."""
        if not getattr(self, "_closed", True) and self._loop is not None:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        """Its kind and address."""
        state = ", closed" if self._closed else ""
        return f"<homa.rpc.{type(self).__name__} {', '.join(self._at)}{state}>"
