"""A name that stands for several servers: each call goes to one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .._native import Service as Native
from ._address import seconds, written
from ._server import Request, served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from ._address import Address
    from ._client import Client


class Service:
    """The servers of a target, for calls of one client: see ``Client.connect``.

    Each call goes to the less loaded of two servers that are drawn at random. What was certainly
    not executed is repeated at another server. An idempotent call is also repeated if it was lost,
    and sent to a second server if it takes long.
    """

    def __init__(
        self,
        client: Client,
        target: str | Sequence[Address],
        retries: float,
        hedge: float,
        hedge_after: float | None,
        wait_for_ready: bool,
    ) -> None:
        """Begin to look the target up; ``Client.connect`` does that."""
        for name, share in (("retries", retries), ("hedge", hedge)):
            said = f"{name} is a share from 0 to 1, and {share!r:.30} was given"
            try:
                within = 0 <= share <= 1
            except TypeError:
                raise TypeError(said) from None
            if not within:
                raise ValueError(said)
        if hedge_after is not None:
            seconds(hedge_after, "hedge_after")
        text = target if isinstance(target, str) else None
        if text is None and not isinstance(target, Iterable):
            such = "the target is a text such as homa:///host:port, or a list of addresses"
            raise TypeError(f"{such}, and {target!r} was given")
        names = [] if isinstance(target, str) else [written(server) for server in target]
        if text is None and not names:
            raise ValueError("the list of servers is empty")
        self._client = client
        self._target = text or ", ".join(names)
        self._native = Native(text, names, retries, hedge, hedge_after, wait_for_ready)

    @property
    def servers(self) -> list[str]:
        """The addresses that are known now."""
        return self._native.servers

    async def _connected(self, left: float) -> None:
        client = self._client
        await client._ended(self._native.connected, client._native, left)

    async def call(
        self,
        payload: Buffer,
        *,
        deadline: float | None = None,
        idempotent: bool = False,
        trace: str | None = None,
        on_behalf_of: Request | None = None,
    ) -> memoryview:
        """Call one of the servers, or several one after another, within one deadline.

        The arguments are those of ``Client.call``.

        Raises:
            NoServers: no server is known.
            CallError: the error of the last attempt.
        """
        client = self._client
        left = seconds(client._deadline if deadline is None else deadline, "deadline")
        behalf = served(idempotent, on_behalf_of)
        start = self._native.call
        return await client._ended(start, client._native, payload, left, idempotent, trace, behalf)

    def __repr__(self) -> str:
        """Its target."""
        return f"<homa.rpc.Service {self._target}>"
