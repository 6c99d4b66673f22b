"""What can go wrong with calls and servers, by who has to act; each message says what to do next.

The compiled part raises them by name: one for each typed error of the crate ``homa``, below groups
that are caught together.
"""

from __future__ import annotations

from .._errors import HomaError


class Error(HomaError):
    """Base class of all errors of ``homa.rpc``."""


class OpenError(Error, OSError):
    """A client or server could not be opened; ``errno`` is the system's reason, if it has one."""


class AddressInUse(OpenError):
    """Another socket has the address: choose another port (0: any), or stop who uses it."""


class CallError(Error):
    """A call that brought no answer."""


class Refused(CallError):
    """Nothing was sent, or the server would not take it: the call was not executed."""


class EmptyMessage(Refused, ValueError):
    """The payload has no bytes, which the profile cannot send. The profile used here can."""


class MessageTooLong(Refused, ValueError):
    """The payload is too long for us or, as far as known, for the server: split it.

    Attributes:
        length: bytes in the payload.
        max: the smaller of both sides' limits, bytes.
    """

    length: int
    max: int


class RequestTooLong(Refused, ValueError):
    """The server said that it accepts at most ``max`` bytes: split the payload."""

    max: int


class AddressFamily(Refused, ValueError):
    """IPv6 cannot be reached from an IPv4 address or the other way: open the client at another."""


class Destination(Refused, ValueError):
    """No single server can be there: port 0, or an address of many."""


class NotSent(Refused):
    """The system refuses to send to this address, and will again: check the address and routes.

    Attributes:
        errno: the system's error number.
    """

    errno: int


class NoServers(Refused):
    """No server of a service is known: its name cannot be resolved, or its file cannot be read.

    Look-ups are repeated. With ``wait_for_ready=True`` calls wait for them.
    """


class Overloaded(Refused):
    """The server has more to do than it can do in time, and did not execute the call.

    The call is not made again, even if it is idempotent: call later, or call another server.
    """


class Busy(Refused):
    """Too much at a time: wait for room with ``await client.ready()``, then call again."""


class TooManyCalls(Busy):
    """As many calls as ``max_rpcs`` says, ``max``, are in progress."""

    max: int


class TooManyCallsTo(Busy):
    """As many calls to this server as ``max_calls_per_server`` says, ``max``, are in progress.

    Wait with ``await client.ready(to=server)``, or call another server.
    """

    max: int


class SendMemoryFull(Busy):
    """Outgoing messages hold all that ``send_memory`` allows; ``held`` bytes."""

    held: int


class TooManyPeers(Refused):
    """As many peers as ``max_peers`` says, ``max``, are in use: try again after a call ended."""

    max: int


class DeadlineExceeded(CallError, TimeoutError):
    """No answer in time; it may have been executed: retry with more time if it may run twice."""


class SendRefused(DeadlineExceeded):
    """No answer in time, and the system refused to send or receive meanwhile.

    Look for packet filters, full queues and short memory. It may have been executed.

    Attributes:
        errno: the system's last error number.
    """

    errno: int


class Indeterminate(CallError):
    """The server is gone, or lost the call, which it may have executed.

    Check what was done, or call with ``idempotent=True`` to have it made again.
    """


class Abandoned(CallError):
    """The server's handler raised, or ended without an answer, perhaps after a part of its work.

    The call is not made again, even if it is idempotent: look at the server's log.
    """


class HandshakeRefused(CallError):
    """No encrypted session: one end does not accept the other's key, or has none.

    The call was not executed. Give both ends the same key file.
    """


class Unprotected(CallError):
    """The server is on another host, and there is neither a key nor the choice of plaintext.

    Nothing was sent. Give ``keys="cluster.key"`` (``homa key new``) or ``plaintext=True``.
    """


class Unreachable(CallError, ConnectionError):
    """Nothing was heard from the server: check its address and that it runs."""


class HostUnreachable(Unreachable):
    """The network says that there is no way to the host; the call was not executed."""


class ProtocolUnreachable(Unreachable):
    """The host does not speak Homa over IP; the call was not executed."""


class PortUnreachable(Unreachable):
    """Nothing listens at the port, or what did is draining; the call was not executed."""


class ResponseTooLong(CallError):
    """The answer is longer than the client accepts or the server may send: ask for less.

    Attributes:
        length: bytes in the answer.
        max: the limit that it exceeds, the server's or the client's ``max_message``.
    """

    length: int
    max: int


class EngineFailed(CallError):
    """The system refuses the engine's descriptors: they were closed by mistake, as a rule.

    Calls in progress may have been executed. Look for a double close, and open another client.

    Attributes:
        errno: the system's error number.
    """

    errno: int


class ReplyError(Error):
    """An answer that could not be sent."""


class EmptyReply(ReplyError, ValueError):
    """The answer has no bytes, which the profile cannot send. The profile used here can."""


class ReplyTooLong(ReplyError, ValueError):
    """The answer is too long for us or, as far as known, for the client: split it.

    Attributes:
        length: bytes in the answer.
        max: the smaller of both sides' limits, bytes.
    """

    length: int
    max: int


class Gone(ReplyError):
    """The client no longer waits for this answer, or has it: drop the work."""


class ShuttingDown(CallError):
    """The client or server is closed, perhaps with the call in progress: open another."""


class Forked(CallError, ReplyError):
    """The engine is that of the parent process: open clients and servers after the fork."""
