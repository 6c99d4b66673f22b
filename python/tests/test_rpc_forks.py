"""homa.rpc and ``os.fork``: what a child is told, and what its parent cannot have meanwhile."""

import asyncio
import os

import pytest

import homa.rpc as rpc


async def echo(request):
    return request.payload


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_child_of_a_fork_is_told_so():
    async def main():
        async with rpc.Server("127.0.0.1:0", echo) as server, rpc.Client() as client:
            await client.call(server.address, b"x")
            child = os.fork()
            if child == 0:
                told = 1
                try:
                    asyncio.run(client.call(server.address, b"x"))
                except rpc.Forked:
                    asyncio.run(client.close())
                    told = 0
                finally:
                    os._exit(told)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert await client.call(server.address, b"parent") == b"parent"

    asyncio.run(main())


@pytest.mark.parametrize("kind", [rpc.Client, rpc.Server])
def test_the_limit_about_forks_is_where_users_read(kind):
    assert "``os.fork``" in kind.__doc__ and "``Forked``" in kind.__doc__


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_port_of_a_server_is_in_use_while_a_child_of_a_fork_lives():
    async def main():
        async with rpc.Server("127.0.0.1:0", echo) as server:
            ear, bell = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(bell)
                os.read(ear, 1)
                os._exit(0)
            at = server.address
        os.close(ear)
        with pytest.raises(rpc.AddressInUse):
            rpc.Server(at, echo)
        os.close(bell)
        os.waitpid(child, 0)
        async with rpc.Server(at, echo), rpc.Client() as client:
            assert await client.call(at, b"again") == b"again"

    asyncio.run(main())
