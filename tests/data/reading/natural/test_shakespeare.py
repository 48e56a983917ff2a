from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.natural.shakespeare import ALPHABET, clean, encode, read_shakespeare
from fedfeast.data.reading.prepared import open_prepared, write_prepared
from fedfeast.errors import InvalidInput

Write = Callable[[str, Path], Path]
LINE = "To be, or not to be, that is the question\n"


def text_of(decoded: Decoded, client: int, split: str) -> str:
    """Return what a client's windows say: the first input, then every label that counts."""
    inputs = {name: block for name, _, block in decoded.inputs}[split]
    chosen = decoded.clients[split] == client
    labels = decoded.labels[split][chosen].ravel()
    return ALPHABET[inputs[chosen][0, 0]] + "".join(ALPHABET[code] for code in labels[labels >= 0])


def test_roles_are_clients_and_their_last_fifth_the_test(tmp_path: Path, write_unpacked: Write) -> None:
    decoded = read_shakespeare(write_unpacked("shakespeare", tmp_path))
    assert decoded.client_names == ("Hamlet, Prince of Denmark/HAMLET", "Macbeth/FIRST WITCH", "Macbeth/LADY MACBETH")
    for client, lines in enumerate((12, 8, 13)):
        train, test = (text_of(decoded, client, split) for split in ("train", "test"))
        assert train + test == lines * LINE
        assert len(train) == len(lines * LINE) * 4 // 5


def test_windows_lie_side_by_side_and_the_last_is_filled_up(tmp_path: Path, write_unpacked: Write) -> None:
    decoded = read_shakespeare(write_unpacked("shakespeare", tmp_path))
    (_, _, inputs), _ = decoded.inputs
    labels = decoded.labels["train"]
    assert np.array_equal(inputs[0, 1:], labels[0, :-1])
    assert inputs[1, 0] == labels[0, -1]
    assert (labels[5, 2:] == -1).all(), "403 characters: 402 have a next one, 2 of them in the sixth window"
    assert (labels[5, :2] >= 0).all()
    write_prepared(tmp_path / "kept", decoded, {"normalisation": None})
    dataset = open_prepared(tmp_path / "kept")
    assert dataset.classes == 68
    assert dataset.train.labels.tolist() == labels.tolist()


def test_other_forms_give_the_same(tmp_path: Path, write_unpacked: Write) -> None:
    plays = read_shakespeare(write_unpacked("shakespeare", tmp_path))
    folder = tmp_path / "roles"
    for client, lines in zip(plays.client_names, (12, 8, 13), strict=True):
        path = folder / f"{client}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines * LINE.replace("To", "[Aside]  To"))
    (folder / "Macbeth" / "Porter.txt").write_text("Knock,\n" * 20)
    codes = [encode(lines * LINE, "it") for lines in (12, 8, 13)]
    np.savez_compressed(
        tmp_path / "shakespeare.npz",
        codes=np.concatenate(codes),
        offsets=np.cumsum([0, *map(len, codes)]),
        role=np.array(["HAMLET", "FIRST WITCH", "LADY MACBETH"]),
        play=np.array([0, 1, 1], np.uint8),
        plays=np.array(["Hamlet, Prince of Denmark", "Macbeth"]),
        alphabet=np.array(list(ALPHABET)),
    )
    for other in (read_shakespeare(folder), read_shakespeare(tmp_path / "shakespeare.npz")):
        assert other.facts == plays.facts
        assert other.client_names == plays.client_names
        for (_, _, first), (_, _, second) in zip(plays.inputs, other.inputs, strict=True):
            assert np.array_equal(first, second)


def test_cleaning() -> None:
    assert clean("  Well,\t[Aside to him]  my   lord [Dies]") == "Well, my lord"
    assert encode("a sha$l" + 200 * "b", "it").tolist()[:6] == [ALPHABET.index(one) for one in "a shal"]
    with pytest.raises(InvalidInput, match="the text of Faust/FAUST has 17 % characters outside the alphabet"):
        encode("fü abc" * 50, "Faust/FAUST")


def test_what_is_no_play_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no role of 200 characters"):
        read_shakespeare(tmp_path)
    (tmp_path / "hamlet.csv").write_text("role,text\nHAMLET,To be\n")
    with pytest.raises(InvalidInput, match=r"hamlet.csv has no columns Player and Line"):
        read_shakespeare(tmp_path)
    (tmp_path / "plays_meta.json").write_text("[1]")
    with pytest.raises(InvalidInput, match=r"plays_meta.json is damaged"):
        read_shakespeare(tmp_path)
