from pathlib import Path

import pytest
from starlette.datastructures import Headers

from fedfeast.server.model_files import send_model
from fedfeast.server.offer import ModelFile


@pytest.fixture
def file(tmp_path: Path) -> ModelFile:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"0123456789")
    return ModelFile(path, "ab" * 32, "run-1M.onnx", path.stat())


def test_what_a_file_says_of_itself(file: ModelFile) -> None:
    headers = send_model(file, Headers(), shared=True).headers
    assert headers["etag"] == f'"{"ab" * 32}"'
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["content-disposition"] == 'attachment; filename="run-1M.onnx"'
    assert headers["content-length"] == "10"
    assert headers["accept-ranges"] == "bytes"
    assert send_model(file, Headers(), shared=False).headers["cache-control"].startswith("private")


@pytest.mark.parametrize(
    ("known", "status"),
    [(f'"{"ab" * 32}"', 304), (f'"x", W/"{"ab" * 32}"', 304), ("*", 304), ('"other"', 200), ("", 200)],
)
def test_who_has_it_is_not_sent_it_again(file: ModelFile, known: str, status: int) -> None:
    assert send_model(file, Headers({"if-none-match": known}), shared=True).status_code == status
