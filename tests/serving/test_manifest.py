import json
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.serving.manifest import better_in_words, read_manifest, seal_of, write_manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("content")
    write_manifest(tmp_path / "manifest.json", {"format": "test/1", "macs": 5, "share": 0.1}, ["inner/file"])
    return tmp_path / "manifest.json"


def test_what_was_written_is_read(manifest: Path) -> None:
    content = read_manifest(manifest, "write it again")
    assert content["macs"] == 5
    assert content["share"] == 0.1
    assert set(content["sha256"]) == {"inner/file"}


def test_a_changed_or_missing_file_is_refused(manifest: Path) -> None:
    (manifest.parent / "inner" / "file").write_text("contend")
    with pytest.raises(InvalidInput, match="file does not match its hash in the manifest: write it again"):
        read_manifest(manifest, "write it again")
    (manifest.parent / "inner" / "file").unlink()
    with pytest.raises(InvalidInput, match="file is missing, and the manifest names it: write it again"):
        read_manifest(manifest, "write it again")
    assert read_manifest(manifest, "", checked=False)["macs"] == 5


@pytest.mark.parametrize("change", [{"macs": 6}, {"more": 1}, {"seal": "0"}, {"format": 3}, {"sha256": {}}])
def test_an_edited_manifest_is_refused(manifest: Path, change: dict[str, object]) -> None:
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    with pytest.raises(InvalidInput, match="was changed after it was written"):
        read_manifest(manifest, "write it again")


@pytest.mark.parametrize("text", ["{", "[]", "3", "{}", '{"sha256": [], "format": "a", "seal": "b"}', "\udc80"])
def test_a_damaged_manifest_is_refused(manifest: Path, text: str) -> None:
    manifest.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match="is damaged: write it again"):
        read_manifest(manifest, "write it again")


@pytest.mark.parametrize("name", ["../other", "/etc/hostname"])
def test_only_files_beside_it_are_vouched_for(manifest: Path, name: str) -> None:
    content = {**json.loads(manifest.read_text()), "sha256": {name: "0"}}
    manifest.write_text(json.dumps({**content, "seal": seal_of(content)}))
    with pytest.raises(InvalidInput, match="which is not beside it"):
        read_manifest(manifest, "write it again")


def test_the_seal_does_not_depend_on_the_order() -> None:
    assert seal_of({"a": 1, "b": [2, 0.3]}) == seal_of({"b": [2, 0.3], "a": 1, "seal": "x"})


def test_a_better_network_is_told_in_the_metric_of_the_task() -> None:
    manifest = {
        "task": "next-token",
        "metric": "bits",
        "chosen_by": "largest",
        "better": {
            "name": "1k",
            "macs": 1000,
            "parameters": 9,
            "measured_on": "validation",
            "value": 3.25,
            "against": 3.5,
        },
    }
    said = "the smaller network of 1k MACs has the better validation bits, 3.25 against 3.5"
    assert better_in_words(manifest) == said
    del manifest["better"]
    assert better_in_words(manifest) is None
