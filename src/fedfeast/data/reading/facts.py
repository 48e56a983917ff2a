"""What a federation must know of a data set before its examples: how many, of which kind and shape, for which task."""

from dataclasses import dataclass
from typing import Any

KINDS = ("images", "numbers", "tokens")
TASKS = ("classification", "next-token", "multi-label", "regression")
SPLITS = ("train", "test", "server")


@dataclass(frozen=True)
class DatasetFacts:
    """Numbers and shapes of a data set; what old run folders do not say has the values of square images."""

    classes: int  # of a classification; else the size of the vocabulary, the number of labels or of target dimensions
    channels: int  # the first axis of an example; 1 for tokens
    side: int  # of the square images, in pixels; else the last axis of an example
    train_examples: int
    test_examples: int
    server_examples: int = 0  # an official validation split, which the server holds
    kind: str = "images"
    task: str = "classification"
    shape: tuple[int, ...] = ()  # of one example; images need none
    clients: int = 0  # the data's own: speakers, people, roles
    vocabulary: int = 0  # of tokens

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))  # a list where it was read from JSON
        if self.kind == "tokens" and not self.vocabulary:
            object.__setattr__(self, "vocabulary", self.classes)

    @property
    def examples(self) -> dict[str, int]:
        """The number of examples by split."""
        counts = (self.train_examples, self.test_examples, self.server_examples)
        return {split: count for split, count in zip(SPLITS, counts, strict=True) if count}

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.shape or (self.channels, self.side, self.side)

    @property
    def label_shape(self) -> tuple[int, ...]:
        """The shape of one example's label: none of a class, the window of next tokens, else one number a label."""
        if self.task == "classification":
            return ()
        return self.input_shape if self.task == "next-token" else (self.classes,)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of what a network is to say of one example: logits a class, a label or a next token, or numbers."""
        return (*self.input_shape, self.classes) if self.task == "next-token" else (self.classes,)

    @property
    def known(self) -> dict[str, Any]:
        """What a network's builder may ask for by name, as far as it makes sense for the kind of data."""
        known: dict[str, Any] = {"classes": self.classes, "shape": self.input_shape}
        if self.kind == "images":
            return {**known, "channels": self.channels, "side": self.side}
        if self.kind == "tokens":
            return {**known, "vocabulary": self.vocabulary, "length": self.input_shape[-1]}
        lengths = {"length": self.shape[-1]} if len(self.shape) > 1 else {}
        return {**known, "channels": self.channels, **lengths}
