"""homa.rpc with certificates: the names that servers see, and a policy that refuses one."""

import asyncio
import datetime
import ipaddress

import pytest

import homa.rpc as rpc

x509 = pytest.importorskip("cryptography.x509")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

NAME = "spiffe://homa.test/"


def certificate(subject, issuer, signed_by, key, extensions):
    """A certificate that is valid now."""

    def name(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signed_by, hashes.SHA256())


def issue(folder, *names):
    """The files of an authority and of its hosts at 127.0.0.1."""

    def write(name, content):
        path = folder / name
        path.touch(0o600)
        path.write_bytes(content)
        return path

    def pem(certificate):
        return certificate.public_bytes(serialization.Encoding.PEM)

    root_key = ec.generate_private_key(ec.SECP256R1())
    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    root = certificate("root", "root", root_key, root_key, [is_authority])
    authorities = write("ca.crt", pem(root))
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName(
            [
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                x509.UniformResourceIdentifier(NAME + name),
            ]
        )
        own = certificate(name, "root", root_key, key, [alternatives])
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        yield rpc.Certificates(
            write(f"{name}.crt", pem(own)), write(f"{name}.key", private), authorities
        )


async def who(request):
    """The name of the client."""
    return request.peer_identity.encode()


def test_servers_see_the_names_of_clients_and_refuse_some(tmp_path):
    store, reader, writer = issue(tmp_path, "store", "reader", "writer")

    def readers(name):
        if name.endswith("writer"):
            return False
        assert name != NAME + "store", "an error of a policy"
        return True

    async def main():
        failures = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["message"]))
        # One request at a time: a refused one makes room for the next.
        server = rpc.Server("127.0.0.1:0", who, keys=store, admit=readers, concurrency=1)
        async with server, rpc.Client(keys=reader) as client:
            assert await client.call(server.address, b"") == (NAME + "reader").encode()
            for refused in [writer, store]:
                async with rpc.Client(keys=refused) as other:
                    for _ in range(2):
                        with pytest.raises(rpc.Abandoned):
                            await other.call(server.address, b"")
            assert await client.call(server.address, b"") == (NAME + "reader").encode()
            named = reader._replace(server_name="store.homa.test")
            async with rpc.Client(keys=named) as other:
                with pytest.raises(rpc.HandshakeRefused, match="certificate"):
                    await other.call(server.address, b"")
        assert len(failures) == 2 and "policy" in failures[0]

    asyncio.run(main())
    with pytest.raises(rpc.OpenError, match="not the key of"):
        rpc.Client(keys=reader._replace(private_key=writer.private_key))
    with pytest.raises(ValueError, match="admit needs keys"):
        rpc.Server("127.0.0.1:0", who, admit=readers)


def test_clients_call_only_servers_that_they_admit(tmp_path):
    store, other, reader = issue(tmp_path, "store", "other", "reader")
    handled = []

    async def handle(request):
        handled.append(request.peer_identity)
        return b"done"

    async def main():
        stores = rpc.Server("127.0.0.1:0", handle, keys=store)
        others = rpc.Server("127.0.0.1:0", handle, keys=other)
        client = rpc.Client(keys=reader, admit=[NAME + "store"])
        async with stores, others, client:
            assert await client.call(stores.address, b"") == b"done"
            with pytest.raises(rpc.HandshakeRefused):
                await client.call(others.address, b"secret")
            assert await client.call(stores.address, b"") == b"done"
        assert handled == [NAME + "reader"] * 2

    asyncio.run(main())
    with pytest.raises(ValueError, match="admit needs keys"):
        rpc.Client(admit=[NAME + "store"])
    for wrong in [NAME, [], [7], lambda name: True]:
        with pytest.raises(TypeError, match="list of servers"):
            rpc.Client(keys=reader, admit=wrong)
