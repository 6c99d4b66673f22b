"""Verifies test vectors of docs/encryption.md with `cryptography`, from the specification alone."""

import hashlib
import hmac
import sys

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

AEADS = {"1301": (AESGCM, 16), "1303": (ChaCha20Poly1305, 32)}


def expand(secret, label, length):
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return HKDFExpand(hashes.SHA256(), length, info).derive(secret)


class Keys:
    """One phase of one direction."""

    def __init__(self, suite, secret):
        aead, length = AEADS[suite]
        self.suite, self.secret = suite, secret
        self.key, self.iv = expand(secret, b"quic key", length), expand(secret, b"quic iv", 12)
        self.aead = aead(self.key)

    def open(self, number, aad, sealed):
        nonce = int.from_bytes(self.iv, "big") ^ number
        return self.aead.decrypt(nonce.to_bytes(12, "big"), sealed, aad)

    def next(self):
        return Keys(self.suite, expand(self.secret, b"quic ku", 32))


def identity(secret):
    """The key pair of a cluster secret."""
    derive = HKDF(hashes.SHA256(), 32, salt=b"homa-key-v1", info=b"ed25519 identity")
    return Ed25519PrivateKey.from_private_bytes(derive.derive(secret))


def messages(stream):
    """The handshake messages of a stream, by type."""
    found = []
    while stream:
        length = 4 + int.from_bytes(stream[1:4], "big")
        found.append(stream[:length])
        stream = stream[length:]
    return found


class Handshake:
    """One recorded handshake: who sent what, and the secrets of its log."""

    def __init__(self, lines):
        self.lines = lines
        hello = bytes.fromhex(self.all("client_initial")[0][1])
        server = bytes.fromhex(self.all("server_initial")[0][1])
        self.random, self.suite = hello[6:38], server[39:41].hex()

    def all(self, name):
        return [line[1:] for line in self.lines if line[0] == name]

    def secret(self, name):
        ((random, secret),) = self.all(name)
        assert bytes.fromhex(random) == self.random, "the log names another handshake"
        return bytes.fromhex(secret)

    def plain(self, side):
        stream = b""
        for offset, part in self.all(side + "_initial"):
            assert int(offset, 16) == len(stream)
            stream += bytes.fromhex(part)
        return stream

    def sealed(self, side):
        keys = Keys(self.suite, self.secret(side + "_handshake_traffic_secret"))
        stream, confirmed, challenges = b"", False, 0
        for offset, part in self.all(side + "_handshake"):
            part, aad = bytes.fromhex(part), bytes.fromhex(offset)
            opened = keys.open(int.from_bytes(part[:4], "big"), aad, part[4:])
            if offset == "fffffffe":
                confirmed = opened == b""
                continue
            if offset == "fffffffd":
                challenges += len(opened) == 24 and opened[7] & 1
                continue
            if offset == "fffffffc":
                assert opened[0] == 4, "no NewSessionTicket"
                continue
            assert int(offset, 16) == len(stream)
            stream += opened
        assert confirmed == (side == "server") == (challenges == 1)
        return stream

    def authenticate(self, side, transcript, flight, key):
        """Checks Certificate, CertificateVerify and Finished; returns the transcript after them."""
        certificate, verify, finished = flight
        spki = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        entry = len(spki).to_bytes(3, "big") + spki + b"\0\0"
        assert certificate[4:] == b"\0" + len(entry).to_bytes(3, "big") + entry, "another key"
        transcript += certificate
        context = b" " * 64 + b"TLS 1.3, %s CertificateVerify\0" % side.encode()
        assert verify[4:8] == bytes.fromhex("08070040"), "no Ed25519 signature"
        key.verify(verify[8:], context + hashlib.sha256(transcript).digest())
        transcript += verify
        secret = expand(self.secret(side + "_handshake_traffic_secret"), b"finished", 32)
        code = hmac.digest(secret, hashlib.sha256(transcript).digest(), "sha256")
        assert hmac.compare_digest(code, finished[4:]), "Finished"
        return transcript + finished

    def verify(self):
        ((cluster,),) = self.all("cluster_secret")
        key = identity(bytes.fromhex(cluster)).public_key()
        (hello,), (server_hello,) = messages(self.plain("client")), messages(self.plain("server"))
        extensions, request, *flight = messages(self.sealed("server"))
        assert b"\0\x10\0\x09\0\x07\x06homa/1" in extensions, "no ALPN"
        # Each end names its key id, which the datagrams of the other have.
        for parameters, side in ((hello, "server"), (extensions, "client")):
            datagram = bytes.fromhex(self.all(side + "_datagram")[0][0])
            assert b"\0\x39\0\x04" + datagram[4:8] in parameters, "another key id"
        transcript = hello + server_hello + extensions + request
        transcript = self.authenticate("server", transcript, flight, key)
        self.authenticate("client", transcript, messages(self.sealed("client")), key)
        return sum(self.datagrams(side) for side in ("client", "server"))

    def datagrams(self, side):
        keys, phase, phases = Keys(self.suite, self.secret(side + "_traffic_secret_0")), 0, 0
        for round, (datagram,) in enumerate(self.all(side + "_datagram")):
            datagram = bytes.fromhex(datagram)
            header, number = datagram[:16], int.from_bytes(datagram[8:16], "big")
            if header[1] >> 1 & 1 != phase:
                keys, phase, phases = keys.next(), 1 - phase, phases + 1
            assert keys.open(number, header, datagram[16:]) == bytes([round]) * 20
        assert phases >= 2, "no change of keys"
        return round + 1


def main(path):
    sections = []
    for line in open(path):
        line = line.split("#")[0].split()
        if line and line[0].startswith("["):
            sections.append((line[0], []))
        elif line:
            sections[-1][1].append(line)
    packets, datagrams, early = 0, 0, 0
    for name, lines in sections:
        if name == "[handshake]":
            datagrams += Handshake(lines).verify()
            continue
        values = {line[0]: bytes.fromhex(line[1]) for line in lines}
        if name == "[identity]":
            key = identity(values["cluster_secret"])
            assert key.private_bytes_raw() == values["seed"]
            assert key.public_key().public_bytes_raw() == values["public_key"]
        elif name == "[early_data]":
            hello, fragment = values["client_hello"], values["fragment"]
            assert b"\0\x2a\0\0" in hello, "no early data are offered"
            keys = Keys(values["cipher_suite"].hex(), values["secret"])
            number = int.from_bytes(fragment[:4], "big")
            assert keys.open(number, bytes(4), fragment[4:]) == values["plaintext"]
            early += 1
        else:
            keys, header = Keys(values["cipher_suite"].hex(), values["secret"]), values["header"]
            assert (keys.key, keys.iv) == (values["key"], values["iv"])
            assert keys.next().secret == values["next_secret"]
            opened = keys.open(int.from_bytes(header[8:16], "big"), header, values["sealed"])
            assert opened == values["plaintext"]
            packets += 1
    assert datagrams > 0 and early == 1
    print(f"verified: {packets} packets, {datagrams} datagrams of a handshake")


main(sys.argv[1])
