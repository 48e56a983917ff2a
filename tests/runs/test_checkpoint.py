import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.runs.checkpoint import Best, CheckpointFolder, TrainingState


def state(finished_rounds: int, best_round: int | None = None) -> TrainingState:
    best = None if best_round is None else Best(best_round, best_round / 100, torch.full((4,), float(best_round)))
    flat = torch.arange(4.0) + finished_rounds
    return TrainingState(finished_rounds, flat, {"count": torch.tensor([finished_rounds])}, best, 10 * finished_rounds)


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints")


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(file.name for file in folder.folder.iterdir() if file.suffix == ".safetensors")


def test_nothing_saved_is_no_error(folder: CheckpointFolder) -> None:
    assert folder.load_latest() == (None, [])


def test_a_saved_state_comes_back(folder: CheckpointFolder) -> None:
    folder.save(state(7, best_round=5))
    loaded, damaged = folder.load_latest()
    assert loaded is not None
    assert loaded.best is not None
    assert damaged == []
    assert torch.equal(loaded.flat, torch.arange(4.0) + 7)
    assert loaded.method_state["count"].tolist() == [7]
    assert (loaded.finished_rounds, loaded.metrics_bytes) == (7, 70)
    assert (loaded.best.finished_rounds, loaded.best.score) == (5, 0.05)
    assert loaded.best.flat.tolist() == [5.0] * 4
    assert loaded.best.vector == "global"
    assert loaded.server_state == {}


def test_the_servers_memory_and_a_served_average_come_back_beside_the_methods(folder: CheckpointFolder) -> None:
    memory = {"before": torch.ones(4), "count": torch.arange(4, dtype=torch.int32), "averaged": torch.tensor(7)}
    best = Best(7, 0.5, torch.zeros(4), "average")
    folder.save(replace(state(7), best=best, server_state=memory))
    loaded, _ = folder.load_latest()
    assert loaded is not None
    assert loaded.best is not None
    assert loaded.best.vector == "average"
    assert list(loaded.method_state) == ["count"]
    assert loaded.method_state["count"].tolist() == [7]
    assert loaded.server_state.keys() == memory.keys()
    for name, one in memory.items():
        assert torch.equal(loaded.server_state[name], one)
        assert loaded.server_state[name].dtype == one.dtype


def test_two_generations_and_their_bests_are_kept(folder: CheckpointFolder) -> None:
    for rounds, best_round in ((1, 1), (2, 1), (3, 3), (4, 4)):
        folder.save(state(rounds, best_round))
    assert names(folder) == [
        "best-000003.safetensors",
        "best-000004.safetensors",
        "round-000003.safetensors",
        "round-000004.safetensors",
    ]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "hash", "best"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(folder: CheckpointFolder, damage: str) -> None:
    folder.save(state(1, best_round=1))
    folder.save(state(2, best_round=2))
    newest = folder.folder / ("best-000002.safetensors" if damage == "best" else "round-000002.safetensors")
    content = newest.read_bytes()
    match damage:
        case "truncate" | "best":
            newest.write_bytes(content[:-3])
        case "flip":
            newest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "empty":
            newest.write_bytes(b"")
        case "hash":
            newest.with_name(f"{newest.name}.sha256").write_text("")
    loaded, damaged = folder.load_latest()
    assert loaded is not None
    assert loaded.finished_rounds == 1
    assert damaged == [newest.name]


def test_without_any_whole_best_the_run_goes_on_and_says_so(folder: CheckpointFolder) -> None:
    folder.save(state(1, best_round=1))
    folder.save(state(2, best_round=1))
    (folder.folder / "best-000001.safetensors").write_bytes(b"junk")
    loaded, damaged = folder.load_latest()
    assert loaded is not None
    assert (loaded.finished_rounds, loaded.best, damaged) == (2, None, ["best-000001.safetensors"])


def test_a_damaged_newer_checkpoint_does_not_count_as_a_generation(folder: CheckpointFolder) -> None:
    folder.save(state(5))
    folder.save(state(10))
    (folder.folder / "round-000010.safetensors").write_bytes(b"junk")
    folder.save(state(6))
    folder.save(state(7))
    assert {"round-000006.safetensors", "round-000007.safetensors"} <= set(names(folder))


def test_lost_hash_files_are_not_taken_for_a_new_run(folder: CheckpointFolder) -> None:
    folder.save(state(1))
    folder.save(state(2))
    for file in folder.folder.glob("*.sha256"):
        file.unlink()
    with pytest.raises(InvalidInput, match=r"hash files \(\.sha256\) in .* are gone"):
        folder.load_latest()


def test_what_a_killed_save_left_behind_is_removed(folder: CheckpointFolder) -> None:
    folder.save(state(1))
    (folder.folder / ".round-000002.safetensors.partial").write_bytes(b"half")
    folder.save(state(3))
    assert not list(folder.folder.glob(".*.partial"))


def test_an_unfinished_checkpoint_is_no_checkpoint(folder: CheckpointFolder) -> None:
    folder.save(state(1))
    folder.save(state(2))
    (folder.folder / "round-000002.safetensors.sha256").unlink()
    loaded, damaged = folder.load_latest()
    assert loaded is not None
    assert (loaded.finished_rounds, damaged) == (1, [])


def test_when_all_are_damaged_nothing_is_overwritten(folder: CheckpointFolder) -> None:
    folder.save(state(1))
    path = folder.folder / "round-000001.safetensors"
    path.write_bytes(b"junk")
    with pytest.raises(InvalidInput, match=r"every checkpoint in .* is damaged"):
        folder.load_latest()
    assert path.read_bytes() == b"junk"


def test_saving_over_a_damaged_checkpoint_mends_it(folder: CheckpointFolder) -> None:
    folder.save(state(1, best_round=1))
    for name in names(folder):
        (folder.folder / name).write_bytes(b"junk")
    folder.save(state(1, best_round=1))
    loaded, damaged = folder.load_latest()
    assert loaded is not None
    assert damaged == []


def test_hashes_are_in_the_form_of_sha256sum(folder: CheckpointFolder) -> None:
    folder.save(state(1, best_round=1))
    subprocess.run("sha256sum --check *.sha256", shell=True, cwd=folder.folder, check=True, capture_output=True)
