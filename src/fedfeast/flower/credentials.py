"""Certificates for TLS and keys for node authentication: a small authority of one's own, for tests and small fleets."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedfeast.errors import InvalidInput

DAYS = 365
LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"  # between the dots of a host's name
MOST_CHARACTERS = 253  # of such a name
LOOPBACK = ("127.0.0.1", "localhost")  # where the gateway, the server app and the operator reach the SuperLink


@dataclass(frozen=True)
class ServerCredentials:
    """Files of a SuperLink and of the gateway before it; only the authority's certificate leaves the server."""

    authority: Path  # ca.crt: every node and every user of flwr needs it
    certificate: Path
    key: Path


def make_server_credentials(folder: Path, hosts: Sequence[str]) -> ServerCredentials:
    """Write a certificate authority and a server certificate for the given names or addresses and for this machine."""
    if not hosts:
        raise InvalidInput("no host was given: name the address that nodes will use, e.g. fleet.example.org.")
    for host in hosts:
        _refuse_impossible(host)
    folder.mkdir(parents=True, exist_ok=True)
    names = [*hosts, *(name for name in LOOPBACK if name not in hosts)]
    files = ServerCredentials(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    _refuse_existing(files.authority, files.certificate, files.key)
    authority_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedfeast fleet authority")])
    authority = (
        _certificate(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])]), authority_name, key.public_key()
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in names]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_secret(files.key, _pem(key))  # the authority's own key is not kept: it signs this one certificate
    return files


def make_node_key(folder: Path, name: str) -> Path:
    """Write a node's key pair, NAME and NAME.pub; the first stays on the node, the second is registered."""
    if not name or Path(name).name != name:
        raise InvalidInput(f"{name!r} is no name for a key's file: give a plain name.")
    folder.mkdir(parents=True, exist_ok=True)
    private, public = folder / name, folder / f"{name}.pub"
    _refuse_existing(private, public)
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write_secret(private, secret)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"
    )
    return private


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _refuse_impossible(host: str) -> None:
    """Refuse what is neither an address nor a name that any machine could have."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        is_name = re.fullmatch(rf"(\*\.)?{LABEL}(\.{LABEL})*", host) and len(host) <= MOST_CHARACTERS
        if not is_name or host.rpartition(".")[2].isdigit():
            raise InvalidInput(
                f"{host!r} is no host name or address: give one without scheme and port, e.g. fleet.example.org or "
                "10.0.0.7."
            ) from None


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise InvalidInput(f"{path} exists already: keep it, or remove it first.")
