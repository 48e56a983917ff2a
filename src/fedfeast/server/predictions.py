"""What every variant sees in one image."""

import io
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import torch
from PIL import Image

from fedfeast.data.reading.image_files import decode_image
from fedfeast.errors import InvalidInput
from fedfeast.server.offer import NAMES, Offer
from fedfeast.serving.onnx.session import Session
from fedfeast.stopwatch import Repeats, time_calls

KEPT_SESSIONS = 32
TIMED = Repeats(most=3)  # the fastest counts: others on this machine only ever make it slower
SHOWN_CLASSES = 10


@dataclass(frozen=True, eq=False)
class _Loaded:
    session: Session
    class_names: list[str]


class Predictor:
    """Runs variants on single images; the most recently used stay loaded."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[str, _Loaded] = OrderedDict()
        self._lock = threading.Lock()  # one inference at a time, so that times mean something

    def predict(self, offer: Offer, name: str, image: torch.Tensor) -> tuple[list[tuple[str, float]], float]:
        """Return the likeliest classes with their probabilities, and the milliseconds of one inference."""
        loaded = self._load(offer, name)
        batch = image[None]
        with self._lock:
            logits = loaded.session(batch)[0]
            milliseconds = min(time_calls(lambda: loaded.session(batch), TIMED))
        probabilities = torch.softmax(logits.double(), dim=0)
        best = probabilities.topk(min(SHOWN_CLASSES, len(probabilities)))
        names = [loaded.class_names[position] for position in best.indices.tolist()]
        return list(zip(names, best.values.tolist(), strict=True)), milliseconds

    def _load(self, offer: Offer, name: str) -> _Loaded:
        with self._lock:
            if name in self._loaded:
                self._loaded.move_to_end(name)
                return self._loaded[name]
        folder, manifest = offer.bundle(name)  # may take long, and holds nobody up
        loaded = _Loaded(Session(folder / NAMES["onnx"], threads=1), manifest["class_names"])
        with self._lock:
            self._loaded[name] = loaded
            while len(self._loaded) > KEPT_SESSIONS:
                self._loaded.popitem(last=False)
        return loaded


def read_image(content: bytes, channels: int, side: int) -> torch.Tensor:
    """Return an image file's pixels (channels, side, side); one of another size is refused before it is decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of great sizes, which are refused below
            with Image.open(io.BytesIO(content)) as opened:
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
