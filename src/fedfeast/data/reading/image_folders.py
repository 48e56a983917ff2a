"""A user's own images: one folder per class, with or without a train and a test folder above them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.image_files import decode_images, inspect_image
from fedfeast.data.reading.options import CLIENT_FOLDERS, PrepareOptions, count_test
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator

Tree = Mapping[str, Sequence[Path]]  # a class's files


def read_image_folder(folder: Path, options: PrepareOptions) -> Decoded:
    """Read CLASS/FILES, a share of each class held out as the test set, or train/CLASS/FILES and test/CLASS/FILES."""
    if not folder.is_dir():
        raise InvalidInput(f"--from {folder} is no folder: give one that holds a folder of images per class.")
    _refuse_idle(folder, options)
    if options.clients is not None:
        return _read_clients(folder, options)
    inside = {path.name for path in _subfolders(folder)}
    if {"train", "test"} <= inside:
        if options.test_share is not None:
            raise InvalidInput(
                f"--test-share {options.test_share} has no effect, since {folder} holds a test folder: leave it out."
            )
        if inside > {"train", "test"}:
            other = min(inside - {"train", "test"})
            raise InvalidInput(f"{folder} holds {other} beside train and test: move it elsewhere.")
        trees = {split: _read_tree(folder / split) for split in ("train", "test")}
        _require_same_classes(folder, trees)
    else:
        trees = _hold_out(_read_tree(folder), options)
    channels, side = _inspect(trees, options.size)
    files = {
        split: [str(file.relative_to(folder)) for members in tree.values() for file in members]
        for split, tree in trees.items()
    }
    labels = {
        split: np.repeat(np.arange(len(tree)), [len(members) for members in tree.values()])
        for split, tree in trees.items()
    }
    images = decode_images(folder, files, channels, side, resize=options.size is not None)
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


def _read_clients(folder: Path, options: PrepareOptions) -> Decoded:
    """Read CLIENT/CLASS/FILES; a client need not have every class."""
    clients = _subfolders(folder)
    if len(clients) < 2:
        raise InvalidInput(f"{folder} holds {len(clients)} folders of clients: give two or more, CLIENT/CLASS/IMAGES.")
    if {path.name for path in clients} == {"train", "test"}:
        raise InvalidInput(f"{folder} holds train and test, which are no clients: leave out --clients.")
    trees = {client.name: _read_tree(client, least_classes=1) for client in clients}
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
    channels, side = _inspect({split: {"all": files} for split, files in paths.items()}, options.size)
    files = {split: [str(file.relative_to(folder)) for file in each] for split, each in paths.items()}
    labels, held = (
        {split: np.array([member[place] for member in members]) for split, members in splits.items()}
        for place in (1, 2)
    )
    images = decode_images(folder, files, channels, side, resize=options.size is not None)
    return Decoded(tuple(classes), channels, side, labels, images, client_names=tuple(trees), clients=held)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _read_tree(folder: Path, least_classes: int = 2) -> Tree:
    """Return the files of every class, both in alphabetical order."""
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
        tree[path.name] = members
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


def _inspect(trees: Mapping[str, Tree], size: int | None) -> tuple[int, int]:
    """Return channels and side after a look at every image's header, before anything is written."""
    files = [file for tree in trees.values() for members in tree.values() for file in members]
    first_size, all_grey = None, True
    for file in files:
        (width, height), is_grey = inspect_image(file)
        all_grey &= is_grey
        first_size = first_size or (width, height)
        if size is None and (width, height) != first_size:
            raise InvalidInput(
                f"{file} has {width} x {height} pixels, but {files[0]} has {first_size[0]} x {first_size[1]}: "
                "give --size N to resize all images to N x N."
            )
        if size is None and width != height:
            raise InvalidInput(
                f"{file} has {width} x {height} pixels and is no square: give --size N to crop and resize all images."
            )
    assert first_size is not None
    return (1 if all_grey else 3), size or first_size[0]
