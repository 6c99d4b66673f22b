"""homa.rpc over UDP sockets that are bound already."""

import asyncio
import socket

import pytest

import homa.rpc as rpc


def test_a_bound_socket_is_served_and_calls():
    """Requests that came before the server are answered; a socket that cannot be used is named."""

    async def exchange():
        given = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        given.bind(("127.0.0.1", 0))
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        own.bind(("127.0.0.1", 0))
        at, source = given.getsockname(), own.getsockname()

        async def who(request):
            return request.peer.encode()

        async with rpc.Client(sock=own) as client:
            own.close()
            early = asyncio.ensure_future(client.call(at, b"early"))
            await asyncio.sleep(0.05)
            async with rpc.Server(handler=who, sock=given) as server:
                given.close()
                assert server.address == f"{at[0]}:{at[1]}"
                assert bytes(await early) == b"%s:%d" % (source[0].encode(), source[1])

    asyncio.run(exchange())
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with stream, pytest.raises(rpc.OpenError, match="ListenDatagram="):
        rpc.Server(sock=stream)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unbound:
        with pytest.raises(rpc.OpenError, match="bind it first"):
            rpc.Client(sock=unbound)
        with pytest.raises(ValueError, match="not both"):
            rpc.Client("127.0.0.1:0", sock=unbound)
        with pytest.raises(ValueError, match="not both"):
            rpc.Server("127.0.0.1:0", sock=unbound)


def test_what_is_no_open_socket_is_named():
    closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    closed.close()
    for opened in (rpc.Client, rpc.Server):
        with pytest.raises(TypeError, match=r"such as socket.socket\(fileno=3\), and 3 was given"):
            opened(sock=3)
        with pytest.raises(ValueError, match="sock is closed"):
            opened(sock=closed)
    with pytest.raises(TypeError, match="an address or sock=SOCKET"):
        rpc.Server()
