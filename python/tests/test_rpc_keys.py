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


def test_padding_hides_the_lengths_of_messages(tmp_path):
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("homa-key-v1 AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\n")

    async def lengths(padding):
        """The lengths of the datagrams in which requests of some lengths arrive."""
        seen = []
        loop = asyncio.get_running_loop()
        server = rpc.Server("127.0.0.1:0", echo, keys=path)
        async with server, rpc.Client(keys=path, padding=padding) as client:
            server_at = ("127.0.0.1", int(server.address.rsplit(":")[1]))

            class Relay(asyncio.DatagramProtocol):
                """Between the client and the server."""

                def connection_made(self, transport):
                    self.transport, self.client = transport, None

                def datagram_received(self, data, address):
                    if address == server_at:
                        self.transport.sendto(data, self.client)
                        return
                    self.client = address
                    seen.append(len(data))
                    self.transport.sendto(data, server_at)

            transport, _ = await loop.create_datagram_endpoint(Relay, local_addr=("127.0.0.1", 0))
            at = "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])
            # The first call brings the handshake.
            assert await client.call(at, b"") == b""
            seen.clear()
            for length in range(1, 900, 50):
                assert await client.call(at, bytes(length)) == bytes(length)
            transport.close()
        return set(seen)

    async def main():
        assert len(await lengths(None)) > 10
        assert all(length % 256 == 0 for length in await lengths(256))
        assert min(await lengths("full")) > 1400

    asyncio.run(main())
    with pytest.raises(ValueError, match="padding needs keys"):
        rpc.Client(padding=256)
    for wrong in [0, -1, 65_536, 1 << 70]:
        with pytest.raises(ValueError, match="padding is from 1 to 65535"):
            rpc.Server("127.0.0.1:0", echo, keys=path, padding=wrong)
    for wrong in ["half", 1.5]:
        with pytest.raises(TypeError, match='number of bytes or "full"'):
            rpc.Client(keys=path, padding=wrong)
