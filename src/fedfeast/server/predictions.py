"""What every variant sees in one example."""

import io
import json
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from fedfeast.data import DatasetFacts
from fedfeast.data.reading.image_files import decode_image
from fedfeast.errors import InvalidInput
from fedfeast.server.offer import NAMES, Offer
from fedfeast.serving.onnx.session import Session
from fedfeast.stopwatch import Repeats, time_calls

KEPT_SESSIONS = 32
TIMED = Repeats(most=3)  # the fastest counts: others on this machine only ever make it slower
SHOWN_CLASSES = 10
# Of these the header names the size that is decoded; data sets may come in more (docs/decisions/037).
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")


@dataclass(frozen=True, eq=False)
class _Loaded:
    session: Session
    names: list[str]  # of the outputs
    task: str


@dataclass(frozen=True)
class Seen:
    """What a network makes of an example."""

    classes: list[tuple[str, float]]  # or labels, or next symbols: the likeliest with their probabilities
    numbers: list[float] | None  # of a regression
    milliseconds: float  # of one inference


class Predictor:
    """Runs variants on single examples; the most recently used stay loaded."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[str, _Loaded] = OrderedDict()
        self._lock = threading.Lock()  # one inference at a time, so that times mean something

    def predict(self, offer: Offer, name: str, example: torch.Tensor) -> Seen:
        """Return what a variant makes of an example, and the milliseconds of one inference."""
        loaded = self._load(offer, name)
        batch = _as_taken(example, loaded.session.input_dtype)[None]
        with self._lock:
            outputs = loaded.session(batch)[0].double()
            milliseconds = min(time_calls(lambda: loaded.session(batch), TIMED))
        if loaded.task == "regression":
            return Seen([], outputs.flatten().tolist(), milliseconds)
        if loaded.task == "multi-label":
            probabilities = outputs.sigmoid()
        else:  # of a text the symbol that comes after its end
            probabilities = outputs.reshape(-1, outputs.shape[-1])[-1].softmax(dim=0)
        if len(loaded.names) != len(probabilities):
            raise InvalidInput(
                f"{name} has {len(probabilities)} outputs and names for {len(loaded.names)}: export it again."
            )
        best = probabilities.topk(min(SHOWN_CLASSES, len(probabilities)))
        names = [loaded.names[position] for position in best.indices.tolist()]
        return Seen(list(zip(names, best.values.tolist(), strict=True)), None, milliseconds)

    def _load(self, offer: Offer, name: str) -> _Loaded:
        with self._lock:
            if name in self._loaded:
                self._loaded.move_to_end(name)
                return self._loaded[name]
        folder, manifest = offer.bundle(name)  # may take long, and holds nobody up
        names = manifest["vocabulary"] if "vocabulary" in manifest else manifest["class_names"]
        session = Session(folder / NAMES["onnx"], threads=1)
        loaded = _Loaded(session, names, manifest.get("task", "classification"))
        with self._lock:
            self._loaded[name] = loaded
            while len(self._loaded) > KEPT_SESSIONS:
                self._loaded.popitem(last=False)
        return loaded


def read_example(content: bytes, facts: DatasetFacts) -> torch.Tensor:
    """Return what a request's body holds: an image file's pixels, or numbers and token ids in JSON."""
    return read_image(content, facts.channels, facts.side) if facts.kind == "images" else read_numbers(content, facts)


def read_numbers(content: bytes, facts: DatasetFacts) -> torch.Tensor:
    """Return one example given as nested lists in JSON; another shape, or a token that there is none of, is refused."""
    shape = " x ".join(map(str, facts.input_shape))
    what = "token ids as a list" if facts.kind == "tokens" else "numbers as nested lists"
    remedy = f"send one example, {shape} {what}"
    try:
        numbers = np.asarray(json.loads(content), dtype=np.float64)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise InvalidInput(f"the body is no JSON of numbers: {remedy}.") from error
    if numbers.shape != facts.input_shape:
        raise InvalidInput(f"the example has the shape {list(numbers.shape)}: {remedy}.")
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():  # networks compute in float32
        raise InvalidInput(f"the example holds what is no finite number: {remedy}.")
    known = (numbers == numbers.round()) & (numbers >= 0) & (numbers < facts.vocabulary)
    if facts.kind == "tokens" and not known.all():
        wrong = numbers[~known].flat[0]
        raise InvalidInput(f"the example holds the token {wrong:g}: give ids from 0 to {facts.vocabulary - 1}.")
    return torch.from_numpy(numbers)


def _as_taken(example: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers in the type that a network takes: whole ones rounded, and within its range."""
    if dtype.is_floating_point or not example.is_floating_point():
        return example.to(dtype)
    range_of = torch.iinfo(dtype)
    return example.round().clamp(range_of.min, range_of.max).to(dtype)


def read_image(content: bytes, channels: int, side: int) -> torch.Tensor:
    """Return an image file's pixels (channels, side, side); one of another size is refused before it is decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of great sizes, which are refused below
            with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
                width, height = opened.size
    except Exception as error:  # Pillow's readers raise many types, and bytes from outside find all of them
        raise InvalidInput("the body is no image that can be read: send a PNG, JPEG, WebP, BMP or GIF file.") from error
    if (width, height) != (side, side):
        raise InvalidInput(
            f"the image has {width} x {height} pixels, and this run's networks take {side} x {side}: scale it first."
        )
    try:
        return torch.from_numpy(decode_image(content, "the image", channels, side).copy())
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput("the image is damaged: send another file.") from error
