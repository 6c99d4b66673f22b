"""Messages that are written while they are sent, of a length that is declared at the beginning.

What fills packets leaves at once, as far as the receiver permits, and the rest waits in the engine,
so writing never blocks. The declared length counts as memory from the beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._endpoint import Endpoint

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer, Self

    from .._native import RequestWriter, ResponseWriter


class Writer:
    """The common part of both writers: the pieces."""

    __slots__ = ("_native",)

    _native: RequestWriter | ResponseWriter

    @property
    def left(self) -> int:
        """Bytes of the declared length that were not written."""
        return self._native.left

    def push(self, piece: Buffer) -> None:
        """Send the next bytes. With the last of them the message is complete.

        Raises:
            ValueError: more than the declared length; nothing of the piece was sent.
            Gone: the call has ended, because the other end gave up or answered early.
        """
        self._native.push(piece)

    def __enter__(self) -> Self:
        """Write in the block."""
        return self


class CallWriter(Writer):
    """The request of a call while it is written: see ``Client.call_writer``.

    Use it with ``with``, which cancels the call, also at the server, unless it was finished.
    """

    __slots__ = ("_client",)

    _native: RequestWriter

    def __init__(self, client: Endpoint, native: RequestWriter) -> None:
        """Made by the client."""
        self._client = client
        self._native = native

    async def finish(self) -> memoryview:
        """Wait for the response.

        Raises:
            ValueError: the request is shorter than declared; the call is cancelled.
            CallError: as ``Client.call``.
        """
        return await self._client._ended(self._client._native.finish, self._native)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel the call, unless it was finished."""
        self._native.abandon()


class ReplyWriter(Writer):
    """The response to a request while it is written: see ``Request.reply_writer``.

    Use it with ``with``, which checks at the end that the response is whole. If it is not, or the
    block raises, the client's call ends with ``Abandoned``.
    """

    __slots__ = ()

    _native: ResponseWriter

    def __init__(self, native: ResponseWriter) -> None:
        """Made by the request."""
        self._native = native

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Check that the response is whole.

        Raises:
            ValueError: it is not, and was given up.
        """
        if kind is None:
            self._native.finish()
        else:
            self._native.abandon()
