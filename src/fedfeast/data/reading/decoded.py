"""A data set between its reader and its arrays: whatever form it came in, this is what is written or trained on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.data.reading.facts import SPLITS, DatasetFacts


@dataclass(frozen=True, eq=False)
class Decoded:
    """A data set on its way into arrays: labels at once, inputs in whatever order the source holds them."""

    class_names: tuple[str, ...]  # of the classes; else the symbols of the vocabulary, the labels, the targets
    channels: int
    side: int
    labels: Mapping[str, NDArray[Any]]  # by split
    inputs: Iterable[tuple[str, int, NDArray[Any]]]  # split, first position, (examples, *shape)
    kind: str = "images"
    task: str = "classification"
    shape: tuple[int, ...] = ()
    dtype: str = "uint8"  # of the inputs
    vocabulary: int = 0
    client_names: tuple[str, ...] = ()
    clients: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # the position of each example's, by split

    @property
    def facts(self) -> DatasetFacts:
        """The facts of what was found."""
        train, test, server = (len(self.labels.get(split, ())) for split in SPLITS)
        return DatasetFacts(
            len(self.class_names),
            self.channels,
            self.side,
            train,
            test,
            server,
            kind=self.kind,
            task=self.task,
            shape=self.shape,
            clients=len(self.client_names),
            vocabulary=self.vocabulary,
        )


def decoded_arrays(
    class_names: Sequence[str],
    splits: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
    clients: tuple[Sequence[str], Mapping[str, NDArray[np.int64]]] | None = None,
    **kept: Any,
) -> Decoded:
    """Return inputs and labels that are arrays already; channels and side are those of their shape."""
    shape = splits["train"][0].shape[1:]
    kind = kept.get("kind", "images")
    names, positions = clients or ((), {})
    return Decoded(
        tuple(class_names),
        1 if kind == "tokens" else shape[0],
        shape[-1],
        {split: labels for split, (_, labels) in splits.items()},
        [(split, 0, inputs) for split, (inputs, _) in splits.items()],
        shape=() if kind == "images" else shape,
        dtype=splits["train"][0].dtype.name,
        client_names=tuple(names),
        clients=dict(positions),
        **kept,
    )
