"""Shakespeare's plays: what every role says, character by character, to be continued."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from fedfeast.data.reading.decoded import Decoded, decoded_arrays
from fedfeast.data.reading.sources import list_files, read_arrays, read_files
from fedfeast.errors import InvalidInput

ALPHABET = "\n !&',-.24568:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH = 80  # characters of a window
TRAIN_SHARE = (4, 5)  # of a role's characters: the first ones
LEAST_CHARACTERS = 200  # of a role
# The tables break some names in two, and the first half stands as a line of the speaker before.
_FIRST_HALVES = frozenset(
    ("ANTIPHOLUS", "BISHOP", "CARDINAL", "COUNTESS", "DON", "Ghost", "Ghosts", "LADY", "RICHARD", "Varro's")
)
_STRANGE_SHARE = 0.01  # of characters outside the alphabet, which are left out; more of them are another language

Texts = Mapping[tuple[str, str], NDArray[np.uint8]]  # by play and role, as positions in the alphabet


def read_shakespeare(source: Path) -> Decoded:
    """Read plays as CSV files, roles as PLAY/ROLE.txt, or shakespeare.npz; a role's last fifth is its test text."""
    texts = _read_codes(source) if source.suffix == ".npz" else _read_plays(source)
    if not texts:
        raise InvalidInput(
            f"{source} holds no role of {LEAST_CHARACTERS} characters: give the CSV files of the plays, "
            "or folders of one text file a role."
        )
    splits: dict[str, list[tuple[NDArray[np.uint8], NDArray[np.int64]]]] = {"train": [], "test": []}
    for codes in texts.values():
        border = len(codes) * TRAIN_SHARE[0] // TRAIN_SHARE[1]
        splits["train"].append(_windows(codes[:border]))
        splits["test"].append(_windows(codes[border:]))
    arrays, held = {}, {}
    for split, parts in splits.items():
        inputs, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
        arrays[split] = (inputs, labels)
        held[split] = np.repeat(np.arange(len(parts)), [len(windows) for windows, _ in parts])
    names = tuple(f"{play}/{role}" for play, role in texts)
    return decoded_arrays(
        tuple(ALPHABET), arrays, (names, held), kind="tokens", task="next-token", vocabulary=len(ALPHABET)
    )


def _windows(codes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return windows side by side and the characters that follow; what the last one lacks counts nowhere (-1)."""
    known = len(codes) - 1
    count = -(-known // LENGTH)
    inputs, labels = np.zeros(count * LENGTH, np.uint8), np.full(count * LENGTH, -1, np.int64)
    inputs[:known], labels[:known] = codes[:-1], codes[1:]
    return inputs.reshape(-1, LENGTH), labels.reshape(-1, LENGTH)


def _read_codes(source: Path) -> Texts:
    codes, offsets, roles, plays, titles, alphabet = read_arrays(
        source, ("codes", "offsets", "role", "play", "plays", "alphabet")
    ).values()
    if "".join(alphabet) != ALPHABET or len(offsets) != len(roles) + 1 or offsets[-1] != len(codes):
        raise InvalidInput(f"{source} holds another alphabet or other roles than it should: get the file again.")
    return {
        (str(titles[play]), str(role)): codes[offsets[number] : offsets[number + 1]]
        for number, (play, role) in enumerate(zip(plays, roles, strict=True))
    }


def _read_plays(source: Path) -> Texts:
    """Return the roles of whatever form the source has, cleaned, without those that say too little."""
    names = list_files(source)
    tables = [name for name in names if name.endswith(".csv") and PurePosixPath(name).stem != "all"]
    scripts = [name for name in names if name.endswith(".txt") and len(PurePosixPath(name).parts) > 1]
    lines: dict[tuple[str, str], list[str]] = {}
    spelled: dict[tuple[str, str], str] = {}  # a role's first spelling; others differ in case, blanks or a colon
    spoken = _lines_of_tables(source, tables) if tables else _lines_of_scripts(source, scripts)
    for play, role, line in spoken:
        plain = re.sub(r"\s+", "", role).rstrip(":").lower()
        role = spelled.setdefault((play, plain), re.sub(r"\s+", " ", role).strip().rstrip(":"))
        cleaned = clean(line)
        if cleaned:
            lines.setdefault((play, role), []).append(cleaned + "\n")
    texts = {who: "".join(said) for who, said in lines.items()}
    return {who: encode(text, "/".join(who)) for who, text in texts.items() if len(text) >= LEAST_CHARACTERS}


def clean(line: str) -> str:
    """Return a line without what stands in square brackets, with single blanks."""
    return re.sub(r"\s+", " ", re.sub(r"\[[^\]]*\]", "", line)).strip()


def encode(text: str, place: str) -> NDArray[np.uint8]:
    """Return a text as positions in the alphabet, without the odd character outside of it."""
    table = np.full(0x110000, 255, np.uint8)
    table[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))
    codes: NDArray[np.uint8] = table[np.frombuffer(text.encode("utf-32-le", errors="replace"), np.uint32)]
    strange = np.mean(codes == 255)
    if strange > _STRANGE_SHARE:
        raise InvalidInput(
            f"the text of {place} has {100 * strange:.0f} % characters outside the alphabet of the plays: "
            "give the English plays, or prepare your own tokens under another name."
        )
    return np.asarray(codes[codes != 255])


def _lines_of_tables(source: Path, tables: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield play, role and line of CSV files with the columns Player and Line, in the order of their names."""
    titles = _titles(source)
    contents = dict(read_files(source, tables))
    for name in tables:
        rows = csv.DictReader(io.StringIO(contents[name].decode("utf-8", errors="replace")))
        if not {"Player", "Line"} <= set(rows.fieldnames or ()):
            raise InvalidInput(f"{source / name} has no columns Player and Line: give the plays as they are published.")
        stem, speaker, half = PurePosixPath(name).stem, "", ""
        for row, following in pairwise([*rows, {}]):
            if row["Player"]:
                speaker, half = f"{half} {row['Player']}".strip(), ""
            elif row.get("Chapter"):
                speaker = ""  # what follows before the next name is no one's
            elif row["Line"] in _FIRST_HALVES and following.get("Player"):
                half = row["Line"]
            elif row["Line"] and speaker:
                yield titles.get(stem, stem.replace("_", " ").title()), speaker, row["Line"]


def _titles(source: Path) -> dict[str, str]:
    """Return the plays' titles by the names of their files, where the list of plays lies beside them."""
    found = [name for name in list_files(source) if PurePosixPath(name).name == "plays_meta.json"]
    try:
        listed = [json.loads(content) for _, content in read_files(source, found)]
        return {str(play["file_name"]): str(play["name"]) for plays in listed for play in plays}
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{source / found[0]} is damaged ({error!r}): get it again, or remove it.") from error


def _lines_of_scripts(source: Path, scripts: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield play, role and line of text files, one a role."""
    contents = dict(read_files(source, scripts))
    for name in scripts:
        path = PurePosixPath(name)
        for line in contents[name].decode("utf-8", errors="replace").splitlines():
            yield path.parent.name, path.stem, line
