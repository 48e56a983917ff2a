import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedfeast.errors import InvalidInput
from fedfeast.flower.credentials import make_node_key, make_server_credentials, renew_server_certificate


def test_a_server_certificate_that_its_authority_vouches_for(tmp_path: Path) -> None:
    files = make_server_credentials(tmp_path, ["fleet.example.org", "10.0.0.7"])
    authority, certificate = (
        x509.load_pem_x509_certificate(file.read_bytes()) for file in (files.authority, files.certificate)
    )
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fleet.example.org", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "127.0.0.1"]
    ssl.create_default_context(cafile=str(files.authority))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)
    assert files.key.stat().st_mode & 0o077 == 0


def test_a_nodes_key_pair(tmp_path: Path) -> None:
    private = make_node_key(tmp_path, "kitchen")
    public = load_ssh_public_key((tmp_path / "kitchen.pub").read_bytes())
    assert load_ssh_private_key(private.read_bytes(), None).public_key() == public
    assert private.stat().st_mode & 0o077 == 0


def test_nothing_is_overwritten_and_names_are_plain(tmp_path: Path) -> None:
    make_node_key(tmp_path, "kitchen")
    with pytest.raises(InvalidInput, match="exists already"):
        make_node_key(tmp_path, "kitchen")
    with pytest.raises(InvalidInput, match="no name for a key"):
        make_node_key(tmp_path, "../kitchen")
    with pytest.raises(InvalidInput, match="no host"):
        make_server_credentials(tmp_path, [])


def test_a_renewed_certificate_is_vouched_for_by_what_nodes_have(tmp_path: Path) -> None:
    files = make_server_credentials(tmp_path, ["fleet.example.org", "10.0.0.7"])
    authority, former, key = (file.read_bytes() for file in (files.authority, files.certificate, files.key))
    assert renew_server_certificate(tmp_path) == files
    assert files.authority.read_bytes() == authority
    assert files.key.read_bytes() != key
    old, new = (x509.load_pem_x509_certificate(one) for one in (former, files.certificate.read_bytes()))
    new.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    names = [one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for one in (old, new)]
    assert names[0] == names[1]
    assert new.not_valid_after_utc >= old.not_valid_after_utc
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)
    assert files.key.stat().st_mode & 0o077 == files.authority_key.stat().st_mode & 0o077 == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ca.crt", "ca.key", "server.key", "server.pem"]
    renew_server_certificate(tmp_path, ["other.example.org"])
    other = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    alternatives = other.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == ["other.example.org", "localhost"]


def test_what_cannot_be_renewed_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no certificates of a fleet"):
        renew_server_certificate(tmp_path)
    one, other = (make_server_credentials(tmp_path / name, ["localhost"]) for name in ("one", "other"))
    before = one.certificate.read_bytes()
    one.authority_key.write_bytes(other.authority_key.read_bytes())
    with pytest.raises(InvalidInput, match=r"ca.key is not the key of .*ca.crt"):
        renew_server_certificate(tmp_path / "one")
    one.authority_key.write_text("no key")
    with pytest.raises(InvalidInput, match=r"ca.key is no key"):
        renew_server_certificate(tmp_path / "one")
    one.authority_key.unlink()
    with pytest.raises(InvalidInput, match=r"ca.key is missing, and earlier versions did not keep it"):
        renew_server_certificate(tmp_path / "one")
    assert one.certificate.read_bytes() == before


@pytest.mark.parametrize(
    "host",
    ["not a host", "", "256.1.1.1", "-a.org", "a-.org", "a..org", "https://a.org", "a.org:8443", "ä.org", "a" * 64],
)
def test_impossible_hosts_are_refused_before_anything_is_written(host: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no host name or address: give one without scheme and port"):
        make_server_credentials(tmp_path / "out", ["fleet.example.org", host])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("host", ["localhost", "my_server-2", "*.example.org", "::1", "10.0.0.7", f"{'a' * 63}.b.org"])
def test_possible_hosts_have_a_certificate(host: str, tmp_path: Path) -> None:
    assert make_server_credentials(tmp_path / "out", [host]).certificate.is_file()
