import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedfeast.errors import InvalidInput
from fedfeast.flower.credentials import make_node_key, make_server_credentials


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
