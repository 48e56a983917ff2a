"""A user's own images: one folder per class, with or without a train and a test folder above them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.image_files import Fault, NoImage, decode_images, inspect_image
from fedfeast.data.reading.options import CLIENT_FOLDERS, PrepareOptions, count_test
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator

Tree = Mapping[str, Sequence[Path]]  # a class's files


@dataclass(frozen=True)
class ImageFolder:
    """A folder whose files were looked at: what is to be decoded, and what was left out since it is no image."""

    decoded: Decoded
    skipped: tuple[Fault, ...]


@dataclass
class _Looks:
    """What the headers of a folder's files say; each file is looked at once."""

    folder: Path
    skipped: list[Fault] = field(default_factory=list)
    sizes: dict[Path, tuple[int, int]] = field(default_factory=dict)
    all_grey: bool = True

    def keeps(self, file: Path) -> bool:
        """Look at a file: note its size and colours, or why it is skipped."""
        try:
            self.sizes[file], is_grey = inspect_image(file)
        except NoImage as fault:
            self.skipped.append(Fault(str(file.relative_to(self.folder)), fault.reason))
            return False
        self.all_grey &= is_grey
        return True


def read_image_folder(folder: Path, options: PrepareOptions, known_faults: Collection[Fault] = ()) -> ImageFolder:
    """Read CLASS/FILES, a share of each class held out as the test set, or train/CLASS/FILES and test/CLASS/FILES.

    Files that are no images are left out and told, as are those whose faults are known from an earlier try.
    """
    if not folder.is_dir():
        raise InvalidInput(f"--from {folder} is no folder: give one that holds a folder of images per class.")
    _refuse_idle(folder, options)
    looks = _Looks(folder, list(known_faults))
    faulty = {folder / fault.file for fault in known_faults}

    def keeps(file: Path) -> bool:
        return file not in faulty and looks.keeps(file)

    read = _read_clients if options.clients is not None else _read_classes
    return ImageFolder(read(folder, options, looks, keeps), tuple(looks.skipped))


def _read_classes(folder: Path, options: PrepareOptions, looks: _Looks, keeps: Callable[[Path], bool]) -> Decoded:
    """Read folders of classes, in a train and a test folder or without."""
    inside = {path.name for path in _subfolders(folder)}
    if {"train", "test"} <= inside:
        if options.test_share is not None:
            raise InvalidInput(
                f"--test-share {options.test_share} has no effect, since {folder} holds a test folder: leave it out."
            )
        if inside > {"train", "test"}:
            other = min(inside - {"train", "test"})
            raise InvalidInput(f"{folder} holds {other} beside train and test: move it elsewhere.")
        trees = {split: _read_tree(folder / split, keeps) for split in ("train", "test")}
        _require_same_classes(folder, trees)
    else:
        trees = _hold_out(_read_tree(folder, keeps), options)
    channels, side = _measure(looks, options.size)
    files = {
        split: [str(file.relative_to(folder)) for members in tree.values() for file in members]
        for split, tree in trees.items()
    }
    labels = {
        split: np.repeat(np.arange(len(tree)), [len(members) for members in tree.values()])
        for split, tree in trees.items()
    }
    images = decode_images(folder, files, channels, side, resize=options.size is not None, gather_faults=True)
    return Decoded(tuple(trees["train"]), channels, side, labels, images)


def _refuse_idle(folder: Path, options: PrepareOptions) -> None:
    """Refuse options that a folder of images has no use for."""
    for name in ("labels", "test", "task", "kind"):
        if getattr(options, name) is not None:
            raise InvalidInput(f"--{name} has no meaning for {folder}, a folder of images by class: leave it out.")
    if options.clients not in (None, CLIENT_FOLDERS):
        raise InvalidInput(
            f"--clients {options.clients} names a column, but {folder} is a folder: "
            f"say --clients {CLIENT_FOLDERS} for CLIENT/CLASS/IMAGES."
        )


def _read_clients(folder: Path, options: PrepareOptions, looks: _Looks, keeps: Callable[[Path], bool]) -> Decoded:
    """Read CLIENT/CLASS/FILES; a client need not have every class."""
    clients = _subfolders(folder)
    if len(clients) < 2:
        raise InvalidInput(f"{folder} holds {len(clients)} folders of clients: give two or more, CLIENT/CLASS/IMAGES.")
    if {path.name for path in clients} == {"train", "test"}:
        raise InvalidInput(f"{folder} holds train and test, which are no clients: leave out --clients.")
    trees = {client.name: _read_tree(client, keeps, least_classes=1) for client in clients}
    classes = sorted({name for tree in trees.values() for name in tree})
    if len(classes) < 2:
        raise InvalidInput(f"{folder} has one class only ({classes[0]}): a data set needs two or more.")
    splits: dict[str, list[tuple[Path, int, int]]] = {"train": [], "test": []}
    for position, (client, tree) in enumerate(trees.items()):
        members = [(file, classes.index(name), position) for name, files in tree.items() for file in files]
        drawn = named_generator(options.seed, "test set", client).permutation(len(members))
        is_test = set(drawn[: count_test(options.share, len(members))].tolist())
        for number, member in enumerate(members):
            splits["test" if number in is_test else "train"].append(member)
    if not splits["test"]:
        raise InvalidInput(f"every client in {folder} has one image only: add some, so that there are test images.")
    paths = {split: [file for file, _, _ in members] for split, members in splits.items()}
    channels, side = _measure(looks, options.size)
    files = {split: [str(file.relative_to(folder)) for file in each] for split, each in paths.items()}
    labels, held = (
        {split: np.array([member[place] for member in members]) for split, members in splits.items()}
        for place in (1, 2)
    )
    images = decode_images(folder, files, channels, side, resize=options.size is not None, gather_faults=True)
    return Decoded(tuple(classes), channels, side, labels, images, client_names=tuple(trees), clients=held)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _read_tree(folder: Path, keeps: Callable[[Path], bool], least_classes: int = 2) -> Tree:
    """Return the images of every class, both in alphabetical order."""
    classes = _subfolders(folder)
    if not classes:
        raise InvalidInput(f"{folder} has no class folders: put the images of each class into a folder of its own.")
    if len(classes) < least_classes:
        raise InvalidInput(f"{folder} has one class only ({classes[0].name}): a data set needs two or more.")
    tree = {}
    for path in classes:
        members = sorted(file for file in path.iterdir() if not file.name.startswith("."))
        if not members:
            raise InvalidInput(f"the class folder {path} is empty: add images to it or remove it.")
        deeper = [member for member in members if member.is_dir()]
        if deeper:
            raise InvalidInput(f"the class folder {path} holds a folder ({deeper[0].name}): put images alone into it.")
        tree[path.name] = [member for member in members if keeps(member)]
        if not tree[path.name]:
            raise InvalidInput(
                f"the class folder {path} holds no image that can be read ({_why_none(members)}): "
                "add images to it or remove it."
            )
    return tree


def _require_same_classes(folder: Path, trees: Mapping[str, Tree]) -> None:
    for one, other in (("train", "test"), ("test", "train")):
        missing = sorted(trees[one].keys() - trees[other].keys())
        if missing:
            raise InvalidInput(
                f"class {missing[0]!r} is in {folder / one} but not in {folder / other}: both need the same classes."
            )


def _hold_out(tree: Tree, options: PrepareOptions) -> dict[str, Tree]:
    """Draw the test set: the same share of every class."""
    train, test = {}, {}
    for name, members in tree.items():
        if len(members) < 2:
            raise InvalidInput(f"class {name!r} has one image only ({members[0]}): it needs one to train, one to test.")
        num_test = count_test(options.share, len(members))
        # By class, so that new images of one class leave the others' draw alone.
        drawn = named_generator(options.seed, "test set", name).permutation(len(members))
        train[name] = [members[position] for position in sorted(drawn[num_test:])]
        test[name] = [members[position] for position in sorted(drawn[:num_test])]
    return {"train": train, "test": test}


def _why_none(members: Sequence[Path]) -> str:
    """Say of the first file of a class without images why it is none."""
    try:
        inspect_image(members[0])
    except NoImage as fault:
        return f"{members[0].name}: {fault.reason}"
    return f"{members[0].name} is damaged"


def _measure(looks: _Looks, size: int | None) -> tuple[int, int]:
    """Return channels and side of all images, from their headers, before anything is written."""
    first_file, first_size = next(iter(looks.sizes.items()))
    for file, (width, height) in looks.sizes.items():
        if size is None and (width, height) != first_size:
            raise InvalidInput(
                f"{file} has {width} x {height} pixels, but {first_file} has {first_size[0]} x {first_size[1]}: "
                "give --size N to resize all images to N x N."
            )
        if size is None and width != height:
            raise InvalidInput(
                f"{file} has {width} x {height} pixels and is no square: give --size N to crop and resize all images."
            )
    return (1 if looks.all_grey else 3), size or first_size[0]
