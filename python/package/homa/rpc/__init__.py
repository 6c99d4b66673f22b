"""Homa for asyncio: calls with deadlines, and servers of coroutines, beside whatever loop runs.

>>> server = homa.rpc.Server("0.0.0.0:4000", keys="cluster.key")
>>> @server.handler
... async def answer(request: homa.rpc.Request) -> bytes:
...     return b"hello, " + request.payload
>>> await server.serve_forever()

>>> async with homa.rpc.Client(keys="cluster.key") as client:
...     answer = await client.call("10.0.0.7:4000", b"world", deadline=0.05)

There are no connections. Payloads are anything with a contiguous buffer; answers are read-only
``memoryview``s of the memory they arrived in. ``docs/python.md`` in the repository says what is
promised, and ``homa.rpc.Error`` what can go wrong.
"""

from ._client import Client
from ._errors import (
    Abandoned,
    AddressFamily,
    AddressInUse,
    Busy,
    CallError,
    DeadlineExceeded,
    Destination,
    EmptyMessage,
    EmptyReply,
    EngineFailed,
    Error,
    Forked,
    Gone,
    HandshakeRefused,
    HostUnreachable,
    Indeterminate,
    MessageTooLong,
    NoServers,
    NotSent,
    OpenError,
    Overloaded,
    PortUnreachable,
    ProtocolUnreachable,
    Refused,
    ReplyError,
    ReplyTooLong,
    RequestTooLong,
    ResponseTooLong,
    SendMemoryFull,
    SendRefused,
    ShuttingDown,
    TooManyCalls,
    TooManyCallsTo,
    TooManyPeers,
    Unprotected,
    Unreachable,
)
from ._keys import Certificates, Keys
from ._server import Request, Server
from ._service import Service
from ._writers import CallWriter, ReplyWriter

__all__ = [
    "Abandoned",
    "AddressFamily",
    "AddressInUse",
    "Busy",
    "CallError",
    "CallWriter",
    "Certificates",
    "Client",
    "DeadlineExceeded",
    "Destination",
    "EmptyMessage",
    "EmptyReply",
    "EngineFailed",
    "Error",
    "Forked",
    "Gone",
    "HandshakeRefused",
    "HostUnreachable",
    "Indeterminate",
    "Keys",
    "MessageTooLong",
    "NoServers",
    "NotSent",
    "OpenError",
    "Overloaded",
    "PortUnreachable",
    "ProtocolUnreachable",
    "Refused",
    "ReplyError",
    "ReplyTooLong",
    "ReplyWriter",
    "Request",
    "RequestTooLong",
    "ResponseTooLong",
    "SendMemoryFull",
    "SendRefused",
    "Server",
    "Service",
    "ShuttingDown",
    "TooManyCalls",
    "TooManyCallsTo",
    "TooManyPeers",
    "Unprotected",
    "Unreachable",
]
