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
AUTHORITY_DAYS = 3650  # nodes need nothing new as long as it lasts
LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"  # between the dots of a host's name
MOST_CHARACTERS = 253  # of such a name
LOOPBACK = ("127.0.0.1", "localhost")  # where the gateway, the server app and the operator reach the SuperLink


@dataclass(frozen=True)
class ServerCredentials:
    """Files of a SuperLink and of the gateway before it; only the authority's certificate leaves the server."""

    authority: Path  # ca.crt: every node and every user of flwr needs it
    certificate: Path
    key: Path

    @classmethod
    def within(cls, folder: Path) -> "ServerCredentials":
        """Return where a folder has them."""
        return cls(folder / "ca.crt", folder / "server.pem", folder / "server.key")

    @property
    def authority_key(self) -> Path:
        """What signs the server's next certificate; it may lie anywhere else until then."""
        return self.authority.with_suffix(".key")


def make_server_credentials(folder: Path, hosts: Sequence[str]) -> ServerCredentials:
    """Write a certificate authority and a server certificate for the given names or addresses and for this machine."""
    if not hosts:
        raise InvalidInput("no host was given: name the address that nodes will use, e.g. fleet.example.org.")
    for host in hosts:
        _refuse_impossible(host)
    folder.mkdir(parents=True, exist_ok=True)
    files = ServerCredentials.within(folder)
    _refuse_existing(files.authority, files.authority_key, files.certificate, files.key)
    authority_key = ec.generate_private_key(ec.SECP384R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedfeast fleet authority")])
    authority = (
        _certificate(authority_name, authority_name, authority_key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    _write_secret(files.authority_key, _pem(authority_key))
    _sign_server(files, authority, authority_key, hosts)
    return files


def renew_server_certificate(folder: Path, hosts: Sequence[str] = ()) -> ServerCredentials:
    """Write a new server certificate and key, signed by the same authority; for the same names unless others are given.

    Nodes keep the authority's certificate and their keys.
    """
    for host in hosts:
        _refuse_impossible(host)
    files = ServerCredentials.within(folder)
    try:
        authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
        former = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        alternatives = former.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise InvalidInput(
            f"{folder} holds no certificates of a fleet ({error}): make them without --renew."
        ) from error
    if not files.authority_key.is_file():
        raise InvalidInput(
            f"{files.authority_key} is missing, and earlier versions did not keep it: put it there, or make new "
            "certificates in another folder and give every node the new ca.crt."
        )
    try:
        key = serialization.load_pem_private_key(files.authority_key.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{files.authority_key} is no key without a password: restore it.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise InvalidInput(f"{files.authority_key} is not the key of {files.authority}: restore both.")
    _sign_server(files, authority, key, hosts or [str(one.value) for one in alternatives])
    return files


def _sign_server(
    files: ServerCredentials,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
) -> None:
    """Write a new key and a certificate for it; both are in place at the end, or neither."""
    names = [*hosts, *(name for name in LOOPBACK if name not in hosts)]
    key = ec.generate_private_key(ec.SECP384R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    days = min(DAYS, (authority.not_valid_after_utc - datetime.now(UTC)).days)
    if days < 1:
        raise InvalidInput(
            f"the authority in {files.authority} ends on {authority.not_valid_after_utc:%Y-%m-%d}: make new "
            "certificates in another folder and give every node the new ca.crt."
        )
    certificate = (
        _certificate(subject, authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in names]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    pair = {files.key: _pem(key), files.certificate: certificate.public_bytes(serialization.Encoding.PEM)}
    for path, content in pair.items():
        _write_secret(path.with_suffix(f"{path.suffix}.new"), content)
    files.certificate.with_suffix(".pem.new").chmod(0o644)
    for path in pair:
        path.with_suffix(f"{path.suffix}.new").replace(path)


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


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
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
