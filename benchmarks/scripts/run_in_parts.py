"""Train a run on several machines one after another: a while on each, then packed into small files for the next."""

import argparse
import hashlib
import json
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from statistics import mean
from typing import Any

import numpy as np
from packed_weights import Vector, decode, encode, join, part

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method
from fedfeast.runs import Interrupted
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.training import Silent
from fedfeast.whole_files import make_folder, sha256_of, whole_folder, write_bytes, write_json

FORMAT = "fedfeast run in parts, 1"
MANIFEST = "parts.json"
MIB = 1 << 20
PIECE_BYTES = 16 * MIB - MIB // 16  # a file of a part
PIECES_OF_PART = 4  # with the manifest less than 64 MiB
GRACE_SECONDS = 30  # after the time is over, to reach a validated round


@dataclass(frozen=True)
class Packed:
    """One file of a run folder, and how it was packed."""

    path: str
    size: int
    sha256: str
    length: int  # in the stream
    origin: str | None = None  # a checkpoint: the one its weights are told from, empty for the drawn weights


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write what is needed to go on, in files of at most 16 MiB")
    packing.add_argument("run", type=Path)
    packing.add_argument("out", type=Path, help="a new or empty folder")
    packing.add_argument("--part", default="1/1", help="I/N: only the I-th of N parts, of at most 64 MiB each")
    unpacking = commands.add_parser("unpack", help="make the run folder again")
    unpacking.add_argument("parts", type=Path, nargs="+", help="one or several folders with the parts' files")
    unpacking.add_argument("run", type=Path, help="a new or empty folder")
    training = commands.add_parser("train", help="train or go on, and stop when the time is over")
    training.add_argument("recipe")
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--minutes", type=float, required=True, help="from now on; it ends after a validated round")
    training.add_argument("--set", action="append", default=[], dest="settings")
    arguments = parser.parse_args(words)
    try:
        if arguments.command == "pack":
            print(pack(arguments.run, arguments.out, arguments.part))
        elif arguments.command == "unpack":
            print(unpack(arguments.parts, arguments.run))
        else:
            print(train(arguments.recipe, arguments.out, arguments.minutes, arguments.settings))
    except InvalidInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def pack(run: Path, out: Path, share: str = "1/1") -> str:
    """Write a run, or one of several shares of it, into a new folder; return a sentence about it."""
    number, count = _read_share(share)
    folder = RunFolder.open(run)
    with folder.locked():
        state, _ = folder.checkpoints.load_latest()
        if state is None:
            raise InvalidInput(f"{run} has no checkpoint yet, so that nothing is lost by starting anew: train on.")
        drawn = _drawn_weights(folder)
        checkpoints = [run / "checkpoints" / f"round-{state.finished_rounds:06d}.safetensors"]
        if state.best is not None:
            checkpoints.append(run / "checkpoints" / f"best-{state.best.finished_rounds:06d}.safetensors")
        entries, stream = _pack_files(run, checkpoints, drawn)
    pieces = [stream[at : at + PIECE_BYTES] for at in range(0, len(stream), PIECE_BYTES)]
    needed = -(-len(pieces) // PIECES_OF_PART)
    if 1 < count < needed:
        raise InvalidInput(f"--part {share}: this run takes {needed} parts of at most 64 MiB, so divide it by that.")
    names = [f"piece-{place:03d}.bin" for place in range(1, len(pieces) + 1)]
    manifest = {
        "format": FORMAT,
        "recipe": folder.recipe().name,
        "finished_rounds": state.finished_rounds,
        "drawn_weights": hashlib.sha256(drawn.tobytes()).hexdigest(),
        "files": [asdict(entry) for entry in entries],
        "pieces": {name: hashlib.sha256(piece).hexdigest() for name, piece in zip(names, pieces, strict=True)},
    }
    first, last = (len(pieces) * place // count for place in (number - 1, number))
    with whole_folder(out) as partial:
        write_json(partial / MANIFEST, manifest)
        for name, piece in list(zip(names, pieces, strict=True))[first:last]:
            write_bytes(partial / name, piece)
    size = sum(map(len, pieces[first:last])) / MIB
    told = f"part {number} of {count}" if count > 1 else "all" if needed == 1 else f"all ({needed} parts)"
    return f"packed round {state.finished_rounds}, {told}: {last - first} of {len(pieces)} pieces, {size:.1f} MiB."


def unpack(parts: Sequence[Path], run: Path) -> str:
    """Make a packed run's folder again out of all its pieces; return a sentence about it."""
    manifest, stream = _read_pieces(parts)
    entries = [Packed(**entry) for entry in manifest["files"]]
    with whole_folder(run) as partial:
        drawn: Vector | None = None
        weights: dict[str, Vector] = {}
        place = 0
        for entry in entries:
            packed = stream[place : place + entry.length]
            place += entry.length
            if entry.origin is not None and drawn is None:  # what a recipe needs has come before
                drawn = _drawn_weights(RunFolder.open(partial))
                _refuse_other_draw(drawn, manifest)
            origin = None if entry.origin is None else weights.get(entry.origin, drawn)
            content, told = _unpack_file(packed, origin, entry)
            weights |= {_origin_name(entry.path, vector): one for vector, one in told.items()}
            target = partial / _inner_path(entry.path)
            make_folder(target.parent, run)
            write_bytes(target, content)
    return f"unpacked round {manifest['finished_rounds']} of {manifest['recipe']} into {run}: {len(entries)} files."


def _unpack_file(packed: bytes, origin: Vector | None, entry: Packed) -> tuple[bytes, dict[str, Vector]]:
    """Return a file as it was, and the vectors in it where it is a checkpoint."""
    try:
        content, told = (zlib.decompress(packed), {}) if origin is None else _unpack_checkpoint(packed, origin)
    except (zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
        raise InvalidInput(f"{entry.path} cannot be unpacked ({error}): pack the run again.") from error
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise InvalidInput(f"{entry.path} does not come out as it was packed: pack the run again.")
    return content, told


class _StopInTime(Silent):
    """Ends training in order when the time is over; keeps what the summary says."""

    def __init__(self, end: float) -> None:
        self.end, self.total, self.finished = end, 0, 0
        self.seconds: list[float] = []

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        self.finished, self.total = finished_rounds, total_rounds
        for name in damaged:
            print(f"passed over the damaged {name}", file=sys.stderr)

    def on_round(self, row: dict[str, Any]) -> None:
        self.finished = row["round"]
        self.seconds.append(row["seconds"] - row.get("setup_seconds", 0.0))
        # After a validated round the latest weights are mostly the best ones too, and travel once.
        late = time.monotonic() - self.end
        if late >= GRACE_SECONDS or (late >= 0 and "validation_score" in row):
            raise KeyboardInterrupt  # as if somebody had asked: training saves and ends


def train(recipe: str, out: Path, minutes: float, settings: Sequence[str] = ()) -> str:
    """Train a run, or go on with it, for some minutes; return a line about where it stands."""
    began = time.monotonic()
    if not minutes > 0:
        raise InvalidInput(f"--minutes {minutes:g}: give a time above 0.")
    run, watch = fedfeast.Run.create(recipe, out, settings), _StopInTime(began + 60 * minutes)
    try:
        run.train(watch)
        ending = f"finished, test population score {run.population_score:.4f}"
    except Interrupted as stop:
        ending = f"saved{stop.reason and ' after: '}{stop.reason}, go on with the same command"
    pace = f"{mean(watch.seconds):.3f} s a round over {len(watch.seconds)} rounds" if watch.seconds else "no round"
    judged = [row for row in run.folder.metrics() if "validation_score" in row]
    validation = (
        f"validation {judged[-1]['validation_score']:.4f} at {judged[-1]['round']}" if judged else "no validation"
    )
    elapsed = time.monotonic() - began
    return f"round {watch.finished} of {watch.total}, {pace}, {validation}, {elapsed:.0f} s: {ending}."


def _pack_files(run: Path, checkpoints: Sequence[Path], drawn: Vector) -> tuple[list[Packed], bytes]:
    """Return the files that a run needs, and what they come to: small ones, then the checkpoints."""
    entries, parts = [], []
    for path in _small_files(run, checkpoints):
        content = path.read_bytes()
        parts.append(zlib.compress(content, 9))
        digest = hashlib.sha256(content).hexdigest()
        entries.append(Packed(path.relative_to(run).as_posix(), len(content), digest, len(parts[-1])))
    origins = {"": drawn}
    for path in checkpoints:
        name, origin = _nearest(path, origins)
        packed, vectors = _pack_checkpoint(path, origin)
        content, _ = _unpack_checkpoint(packed, origin)  # while it can still be mended
        digest = sha256_of(path)
        assert hashlib.sha256(content).hexdigest() == digest
        parts.append(packed)
        relative = path.relative_to(run).as_posix()
        entries.append(Packed(relative, len(content), digest, len(packed), name))
        origins = {_origin_name(relative, vector): told for vector, told in vectors.items()} or origins
    return entries, b"".join(parts)


def _nearest(path: Path, origins: Mapping[str, Vector]) -> tuple[str, Vector]:
    """Return from what a checkpoint's weights are told: the vector that they are, else the first."""
    _, tensors = _split_checkpoint(path.read_bytes())
    weights = next(content for name, _, content in tensors if name == "weights")
    same = (name for name, origin in origins.items() if origin.tobytes() == weights)
    name = next(same, next(iter(origins)))
    return name, origins[name]


def _origin_name(path: str, vector: str) -> str:
    return path if vector == "weights" else f"{path}#{vector}"


def _small_files(run: Path, checkpoints: Sequence[Path]) -> Iterator[Path]:
    """Yield everything else, without older checkpoints and what a killed process left."""
    hashes = {path.with_name(f"{path.name}.sha256") for path in checkpoints}
    for path in sorted(run.rglob("*")):
        is_older = path.parent == run / "checkpoints" and path not in hashes
        if path.is_file() and not is_older and not path.name.endswith((".lock", ".partial")):
            yield path


def _split_checkpoint(content: bytes) -> tuple[bytes, list[tuple[str, dict[str, Any], bytes]]]:
    """Return the header of a safetensors file as it is, and its tensors in the order of the file."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = content[:start]
    told = {name: facts for name, facts in json.loads(header[8:]).items() if name != "__metadata__"}
    tensors = sorted(told.items(), key=lambda item: item[1]["data_offsets"])
    return header, [
        (name, facts, content[start + facts["data_offsets"][0] : start + facts["data_offsets"][1]])
        for name, facts in tensors
    ]


def _pack_checkpoint(path: Path, origin: Vector) -> tuple[bytes, dict[str, Vector]]:
    """Return a checkpoint as what differs from other weights, and the vectors that it holds, the weights first."""
    header, tensors = _split_checkpoint(path.read_bytes())
    told = [name for name, facts, _ in tensors if _is_told(name, facts, origin)]
    contents = {name: content for name, _, content in tensors}
    vectors = {name: np.frombuffer(contents[name], dtype=np.float32) for name in _weights_first(told)}
    sections = [zlib.compress(header)]
    for name, _, content in tensors:
        if name in vectors:
            sections.append(encode(vectors[name], _origin_within(name, vectors, origin)))
        else:
            sections.append(zlib.compress(content))
    return join(sections), vectors


def _unpack_checkpoint(packed: bytes, origin: Vector) -> tuple[bytes, dict[str, Vector]]:
    coded, *sections = part(packed)
    header = zlib.decompress(coded)
    tensors = _split_checkpoint(header)[1]
    by_name = {name: section for (name, _, _), section in zip(tensors, sections, strict=True)}
    vectors: dict[str, Vector] = {}
    for name in _weights_first([name for name, facts, _ in tensors if _is_told(name, facts, origin)]):
        vectors[name] = decode(by_name[name], _origin_within(name, vectors, origin))
    contents = [
        vectors[name].tobytes() if name in vectors else zlib.decompress(section) for name, section in by_name.items()
    ]
    return header + b"".join(contents), vectors


def _weights_first(names: Sequence[str]) -> list[str]:
    """Return the names in the order in which vectors are told: the server's are told from the weights."""
    return sorted(names, key=lambda name: name != "weights")


def _origin_within(name: str, vectors: Mapping[str, Vector], origin: Vector) -> Vector:
    return origin if name == "weights" else vectors.get("weights", origin)


def _is_told(name: str, facts: dict[str, Any], origin: Vector) -> bool:
    """Return whether a tensor is told by its differences; a method's own state and other precisions are not."""
    is_vector = name == "weights" or name.startswith("server.")
    return is_vector and bool(facts["dtype"] == "F32" and facts["shape"] == [len(origin)])


def _drawn_weights(folder: RunFolder) -> Vector:
    """Return the weights that the recipe's seed draws: they are the same everywhere and need not travel."""
    recipe = folder.recipe()
    network = build_method(recipe)[0].network
    drawn: Vector = network.initial_weights(named_generator(recipe.seed, "weights")).numpy()
    return drawn


def _refuse_other_draw(drawn: Vector, manifest: dict[str, Any]) -> None:
    if hashlib.sha256(drawn.tobytes()).hexdigest() != manifest["drawn_weights"]:
        raise InvalidInput(
            "this machine draws other initial weights than the one that packed: unpack with the same fedfeast."
        )


def _read_pieces(parts: Sequence[Path]) -> tuple[dict[str, Any], bytes]:
    """Return manifest and stream of a packed run; all pieces must be there and whole."""
    manifests = [_read_manifest(folder) for folder in parts]
    manifest = manifests[0]
    for folder, other in zip(parts, manifests, strict=True):
        if other != manifest:
            raise InvalidInput(f"{folder} and {parts[0]} are not parts of the same pack: pack the run again.")
    stream = []
    for name, digest in manifest["pieces"].items():
        found = next((path for folder in parts if (path := folder / name).is_file()), None)
        if found is None:
            missing = f"{name} of {len(manifest['pieces'])} pieces is not in {', '.join(map(str, parts))}"
            raise InvalidInput(f"{missing}: fetch the other parts too, and name their folders.")
        content = found.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise InvalidInput(f"{found} is damaged ({len(content)} bytes): fetch it again.")
        stream.append(content)
    whole = b"".join(stream)
    if sum(entry["length"] for entry in manifest["files"]) != len(whole):
        raise InvalidInput(f"{parts[0] / MANIFEST} does not fit its pieces: pack the run again.")
    return manifest, whole


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / MANIFEST).read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        entries = [Packed(**entry) for entry in content["files"]]
        names = [*content["pieces"], *(_inner_path(entry.path).name for entry in entries)]
        if not entries or not isinstance(content["pieces"], dict) or any(Path(name).name != name for name in names):
            raise ValueError("names that a pack does not have")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{folder} is no packed run ({type(error).__name__} in {MANIFEST}): give the folder that pack wrote."
        ) from error
    return dict(content)


def _inner_path(path: str) -> PurePosixPath:
    """Return a path below the run folder; one that leads out of it is refused."""
    inner = PurePosixPath(path)
    if inner.is_absolute() or ".." in inner.parts or "\\" in path or not inner.parts:
        raise ValueError(f"the path {path!r}")
    return inner


def _read_share(share: str) -> tuple[int, int]:
    number, _, count = share.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise InvalidInput(f"--part {share}: write it as 1/2, the first of two.")
    return int(number), int(count)


if __name__ == "__main__":
    main()
