"""Addresses as users write them, names looked up, and times to wait: a mistake is a ValueError.

Addresses in digits are read by the compiled part; here are the names, and interfaces of link-local
addresses (RFC 4007).
"""

from __future__ import annotations

import errno
import operator
import socket
from typing import Any, TypeAlias

from ._errors import OpenError

#: Where a server is: ``"10.0.0.7:4000"``, ``"[fd00::7]:4000"``, ``"name:4000"``, a pair, or what
#: sockets say of IPv6: ``(host, port, flow, scope)``.
Address: TypeAlias = "str | tuple[str, int] | tuple[str, int, int, int]"

#: Longest time to wait, seconds: thirty years, which every clock has room for.
LONGEST = 1e9
ADVICE = "write it as 10.0.0.7:4000, [fd00::7]:4000 or name:4000, with a port up to 65535"


def written(address: Address) -> str:
    """The address as one text.

    Raises:
        TypeError: it is neither text nor a pair.
    """
    if isinstance(address, str):
        return address
    if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[0], str):
        raise TypeError(f"{address!r} is no address: {ADVICE}")
    host, port, *more = address
    scope = more[1] if len(more) > 1 else 0
    if scope and ":" in host and "%" not in host:
        host = f"{host}%{operator.index(scope)}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def named(address: str) -> tuple[str, int] | None:
    """The host's name and the port, where the address has a name.

    Raises:
        ValueError: it has a name, and no port beside it.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("["):
        if "%" not in host:
            return None
        host = host[1:-1]
    elif not host or ":" in host or host.replace(".", "").isdigit():
        return None
    # The system would take any number, and cut it.
    if host == "*" or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"{address!r} is no address: {ADVICE}")
    return host, int(port)


def family(local: str) -> int:
    """What the socket at an address can send to: ``[::]`` is for both families."""
    if local.startswith("[::]"):
        return socket.AF_UNSPEC
    return socket.AF_INET6 if local.startswith("[") else socket.AF_INET


def numeric(found: list[Any]) -> list[str]:
    """The addresses of a lookup, each once."""
    every = []
    for *_, (host, *rest) in found:
        at = written((host.partition("%")[0], *rest))
        if at not in every:
            every.append(at)
    return every


def looked_up_now(address: Address) -> list[str]:
    """The addresses in digits, for our sockets; waits for a name.

    Of a name, those that this machine has, or all if it has none: binding then says what is wrong.
    ``localhost``, for example, is ``::1``, too, where a container has no IPv6.

    Raises:
        OpenError: the name has no address.
    """
    text = written(address)
    name = named(text)
    if name is None:
        return [text]
    try:
        found = socket.getaddrinfo(*name, type=socket.SOCK_DGRAM)
    except (socket.gaierror, UnicodeError) as error:
        raise OpenError(missing(name[0], error)) from error
    return numeric([one for one in found if is_here(one)] or found)


def is_here(found: Any) -> bool:
    """Whether this machine has an address of a lookup."""
    kind, _, _, _, (host, _, *more) = found
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as trial:
            trial.bind((host, 0, *more))
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def missing(name: str, error: socket.gaierror | UnicodeError) -> str:
    """What to do about a name without an address."""
    why = error.strerror if isinstance(error, socket.gaierror) else "no name that a host can have"
    return f"no address for `{name}` ({why}): check the name, or write the address in digits"


def seconds(value: float, what: str) -> float:
    """The value, if it is a time to wait.

    Raises:
        ValueError: it is out of range.
        TypeError: it is no number.
    """
    try:
        if 0 <= value <= LONGEST:
            return value
    except TypeError:
        raise TypeError(f"{what} is a number of seconds, and {value!r} was given") from None
    text = f"{what} is from 0 to 1e9 seconds, such as 0.05, and {value!r:.30} was given"
    raise ValueError(text)
