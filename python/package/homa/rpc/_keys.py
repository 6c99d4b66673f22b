"""Who both ends prove to be: a key file, certificates, or keys that clients and servers share."""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from .._native import Keys as Native

#: The path of a file.
File: TypeAlias = "str | os.PathLike[str]"


class Certificates(NamedTuple):
    """PEM files with which both ends prove who they are, in place of a key file.

    Changed files are read by themselves, before the next client or server is met.

    Attributes:
        chain: the certificate of this end, followed by those that lead to its authority.
        private_key: the private key of the first; only its owner and group may read the file.
        authorities: the authorities that vouch for the certificates of others.
        server_name: what servers must prove, a DNS name or an IP address; None for the address
            that is called.
    """

    chain: File
    private_key: File
    authorities: File
    server_name: str | None = None


class Keys:
    """Keys that clients and servers share, in place of a path that each of them reads.

    With a key file, a server issues a ticket to each client. Clients with the same ``Keys`` share
    the tickets, also those of clients that were closed, so the next one begins a session with less
    work, or sends its first call with the handshake (``early_data``). A child of ``os.fork`` may
    use them, and begins without tickets.

    Args:
        files: the file with the cluster's key (``homa key new``), or ``Certificates``, which have
            no tickets. They are read at once, and again when they change; then all tickets end.
        early_data: clients with a ticket send calls beside the handshake (0-RTT), so that a call to
            a server without a session takes one round trip instead of two. Both ends have to allow
            it. Only calls with ``idempotent=True`` and at most about 1,000 bytes are sent so,
            because an attacker on the path can have such a call executed twice.

    Raises:
        OpenError: a file cannot be used.
        ValueError: early data with certificates.
    """

    __slots__ = ("_early_data", "_files", "_native")

    def __init__(self, files: File | Certificates, *, early_data: bool = False) -> None:
        """Read the files."""
        if isinstance(files, Keys):
            raise TypeError("these are keys already: share them as they are, or give their files")
        if not isinstance(early_data, bool):
            raise TypeError(f"early_data is True or False, and {early_data!r} was given")
        if early_data and isinstance(files, Certificates):
            why = "certificates have no tickets, so nothing can be sent early"
            raise ValueError(f"{why}: give a key file, or leave early_data away")
        self._files = files
        self._early_data = early_data
        self._native = Native(paths(files), early_data)

    @property
    def early_data(self) -> bool:
        """Whether calls may be sent with the handshake."""
        return self._early_data

    def __repr__(self) -> str:
        """The files, and nothing secret."""
        early = ", early_data=True" if self._early_data else ""
        return f"homa.rpc.Keys({self._files!r}{early})"

    def __copy__(self) -> Keys:
        """The same keys: they are shared as they are."""
        return self

    def __deepcopy__(self, _memo: object) -> Keys:
        """The same keys, for copies of what contains them."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: tickets belong to one process.

        Raises:
            TypeError: always.
        """
        raise TypeError("Keys cannot be pickled: make them in the other process, from the file")


#: A key file, certificates, or keys.
KeySource: TypeAlias = "File | Certificates | Keys"


def paths(files: File | Certificates) -> Any:
    """The files, for the compiled part.

    Raises:
        TypeError: they are neither a path nor certificates.
    """
    if isinstance(files, Certificates):
        given = [files.chain, files.private_key, files.authorities]
        return (*[os.fspath(file) for file in given], files.server_name)
    if not isinstance(files, (str, os.PathLike)):
        # Not the value, which may be a key.
        kind = type(files).__name__
        choices = "the path of a key file, Certificates(...) or Keys(...)"
        raise TypeError(f"keys are {choices}, and a value of type {kind} was given")
    return os.fspath(files)


#: Datagrams are padded to a multiple of this number of bytes, or to the full size.
Padding: TypeAlias = "int | Literal['full']"


def protection(keys: KeySource | None, plaintext: bool, padding: Padding | None) -> dict[str, Any]:
    """The keys or the choice of plaintext, and padding, for the engine.

    Raises:
        TypeError: padding or keys are of another type.
        ValueError: plaintext is asked for, too, or padding without keys.
    """
    if keys is not None and plaintext:
        raise ValueError("give keys=FILE or plaintext=True, not both")
    if padding is not None:
        if keys is None:
            raise ValueError("padding needs keys: plaintext is not padded")
        if padding != "full" and not isinstance(padding, int):
            raise TypeError(f'padding is a number of bytes or "full", and {padding!r} was given')
    given: Any = keys
    if isinstance(keys, Keys):
        given = keys._native
    elif keys is not None:
        given = paths(keys)
    return {"keys": given, "plaintext": plaintext, "padding": padding}
