"""What may handle requests: coroutine functions, and plain ones."""

import asyncio
import functools
import threading

import pytest

import homa.rpc as rpc


def test_a_plain_function_answers_in_a_thread():
    """One that waits holds up neither the loop nor other requests."""
    begun = threading.Barrier(2)

    def plain(request):
        if request.payload == b"wait":
            # Both requests are in progress at once, or this breaks.
            begun.wait(timeout=10)
        return bytes(request.payload)[::-1]

    async def together(handler):
        async with rpc.Server("127.0.0.1:0", handler) as server, rpc.Client() as client:
            calls = [client.call(server.address, b"wait") for _ in range(2)]
            both = await asyncio.gather(*calls)
            one = await client.call(server.address, b"abc")
            return [bytes(answer) for answer in (*both, one)]

    assert asyncio.run(together(plain)) == [b"tiaw", b"tiaw", b"cba"]

    class Wrapped:
        async def __call__(self, request):
            return plain(request)

    def wrapper(request):
        return coroutine(request)

    async def coroutine(request):
        return bytes(request.payload)[::-1]

    async def one(handler):
        async with rpc.Server("127.0.0.1:0", handler) as server, rpc.Client() as client:
            return bytes(await client.call(server.address, b"abc"))

    for handler in (Wrapped(), wrapper, functools.partial(coroutine)):
        assert asyncio.run(one(handler)) == b"cba"
    with pytest.raises(TypeError, match="the handler is a function"):
        rpc.Server("127.0.0.1:0", b"no function")
