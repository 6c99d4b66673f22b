"""homa.rpc with and without keys: who reaches whom, and who the client proved to be."""

import asyncio

import pytest

import homa.rpc as rpc


async def echo(request):
    return request.payload


def test_engines_with_one_key_file_call_encrypted_and_refuse_others(tmp_path):
    def key(name, text):
        path = tmp_path / name
        path.touch(0o600)
        path.write_text(f"homa-key-v1 {text}\n")
        return path

    one = key("one", "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=")
    other = key("other", "AAIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=")

    async def main():
        async def who(request):
            return str(request.peer_identity).encode()

        for keys, expected in [(one, b"cluster"), (None, b"None")]:
            server = rpc.Server("127.0.0.1:0", who, keys=keys)
            async with server, rpc.Client(keys=keys) as client:
                assert await client.call(server.address, b"") == expected
        async with rpc.Server("127.0.0.1:0", echo, keys=one) as server:
            async with rpc.Client(keys=str(one)) as client:
                assert await client.call(server.address, b"secret") == b"secret"
            for wrong in [{"keys": other}, {"plaintext": True}, {}]:
                async with rpc.Client(**wrong) as client:
                    with pytest.raises(rpc.HandshakeRefused, match="key"):
                        await client.call(server.address, b"secret")

    asyncio.run(main())
    with pytest.raises(rpc.OpenError, match="homa key new"):
        rpc.Client(keys=tmp_path / "none")
    with pytest.raises(ValueError, match="not both"):
        rpc.Client(keys=one, plaintext=True)


def test_off_loopback_engines_need_keys_or_the_choice_of_plaintext():
    with pytest.raises(rpc.OpenError, match=r"homa key new.*plaintext=True"):
        rpc.Server("0.0.0.0:0", echo)

    async def main():
        async with rpc.Client() as client:
            with pytest.raises(rpc.Unprotected, match="keys="):
                await client.call("192.0.2.1:9", b"secret")
        chosen = {"plaintext": True}
        async with rpc.Server("0.0.0.0:0", echo, **chosen), rpc.Client(**chosen) as client:
            with pytest.raises(rpc.CallError) as failure:
                await client.call("192.0.2.1:9", b"hello", deadline=0.01)
            assert not isinstance(failure.value, rpc.Unprotected)

    asyncio.run(main())
