import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.server import predictions
from fedfeast.server.offer import Offer
from fedfeast.server.predictions import Predictor, read_image
from fedfeast.serving.bundle_cache import BundleCache


def png(width: int, height: int, mode: str = "L") -> bytes:
    content = io.BytesIO()
    Image.new(mode, (width, height), 200 if mode == "L" else (10, 20, 30)).save(content, "PNG")
    return content.getvalue()


def test_a_variant_predicts_as_its_bundle_does(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "KEPT_SESSIONS", 1)
    offer, predictor = Offer(BundleCache(trained), "digits", trained / "none"), Predictor()
    image = fedfeast.Run.open(trained).federation.test.test.inputs[0]
    for name in list(offer.by_id)[:2]:
        seen = predictor.predict(offer, name, image)
        classes = seen.classes
        with torch.no_grad():
            expected = torch.softmax(fedfeast.load_bundle(offer.bundle(name)[0])(image[None])[0].double(), dim=0)
        assert classes[0][0] == str(int(expected.argmax()))
        assert classes[0][1] == pytest.approx(float(expected.max()), abs=1e-4)
        assert sum(probability for _, probability in classes) == pytest.approx(1)
        assert seen.milliseconds > 0
    assert list(predictor._loaded) == [name], "only so many stay loaded"
    assert predictor.predict(offer, name, image).classes == classes


def test_pixels_come_out_as_they_went_in() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    assert torch.equal(read_image(content.getvalue(), 1, 8), torch.from_numpy(pixels)[None])
    assert read_image(png(8, 8, "RGB"), 3, 8)[:, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the body is no image that can be read"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "the body is no image that can be read"),
        (png(9, 8), "the image has 9 x 8 pixels, and this run's networks take 8 x 8: scale it first."),
        (png(12_000, 12_000), "the image has 12000 x 12000 pixels"),
        (png(8, 8)[:50], "the image does not decode as an image"),
    ],
)
def test_what_is_no_image_of_the_size(content: bytes, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_image(content, 1, 8)
