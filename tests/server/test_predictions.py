import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedfeast
from fedfeast.data import DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.server import predictions
from fedfeast.server.offer import Offer
from fedfeast.server.predictions import Predictor, _as_taken, read_example, read_image
from fedfeast.serving.bundle_cache import BundleCache


def png(width: int, height: int, mode: str = "L") -> bytes:
    content = io.BytesIO()
    Image.new(mode, (width, height), 200 if mode == "L" else (10, 20, 30)).save(content, "PNG")
    return content.getvalue()


def encoded(kind: str) -> bytes:
    content = io.BytesIO()
    Image.new("L", (16, 16), 200).save(content, kind)
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


def test_names_for_other_outputs_are_refused(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer = Offer(BundleCache(trained), "digits", trained / "none")
    name = next(iter(offer.by_id))
    folder, manifest = offer.bundle(name)
    monkeypatch.setattr(offer, "bundle", lambda name: (folder, {**manifest, "class_names": ["a"]}))
    with pytest.raises(InvalidInput, match=f"{name} has 10 outputs and names for 1: export it again"):
        Predictor().predict(offer, name, torch.zeros(1, 8, 8, dtype=torch.uint8))


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
        (encoded("ICO"), "the body is no image that can be read: send a PNG, JPEG, WebP, BMP or GIF file."),
        (encoded("TIFF"), "the body is no image that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n", "the body is no image that can be read"),
    ],
)
def test_what_is_no_image_of_the_size(content: bytes, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_image(content, 1, 8)


NUMBERS = DatasetFacts(2, 2, 3, 1, 1, kind="numbers", shape=(2, 3))
TOKENS = DatasetFacts(5, 1, 3, 1, 1, kind="tokens", shape=(3,), vocabulary=5)


def test_numbers_and_tokens_come_as_json() -> None:
    assert read_example(b"[[1, 2.5, 3], [4, 5, -6]]", NUMBERS).tolist() == [[1, 2.5, 3], [4, 5, -6]]
    assert read_example(b"[0, 4, 1]", TOKENS).tolist() == [0, 4, 1]
    assert read_example(png(8, 8), DatasetFacts(10, 1, 8, 1, 1)).shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("content", "facts", "sentence"),
    [
        (b"", NUMBERS, "the body is no JSON of numbers: send one example, 2 x 3 numbers as nested lists."),
        (b"\xff", NUMBERS, "the body is no JSON of numbers"),
        (b'{"a": 1}', NUMBERS, "the body is no JSON of numbers"),
        (b"[[1, 2, 3], [4, 5]]", NUMBERS, "the body is no JSON of numbers"),
        (b"[" * 100_000, NUMBERS, "the body is no JSON of numbers"),
        (b"[1, 2, 3]", NUMBERS, r"the example has the shape \[3\]: send one example, 2 x 3 numbers"),
        (b"[[1, 2, NaN], [4, 5, 6]]", NUMBERS, "the example holds what is no finite number"),
        (b"[[1, 2, 1e300], [4, 5, 6]]", NUMBERS, "the example holds what is no finite number"),
        (b"[0, 5]", TOKENS, "send one example, 3 token ids as a list."),
        (b"[0, 5, 1]", TOKENS, "the example holds the token 5: give ids from 0 to 4."),
        (b"[0, -1, 1]", TOKENS, "the example holds the token -1"),
        (b"[0, 0.5, 1]", TOKENS, "the example holds the token 0.5"),
    ],
)
def test_what_is_no_example_of_the_shape(content: bytes, facts: DatasetFacts, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_example(content, facts)


def test_numbers_go_in_as_the_network_takes_them() -> None:
    raw = torch.tensor([1.4, -1.6, 1e9], dtype=torch.float64)
    assert _as_taken(raw, torch.int16).tolist() == [1, -2, 32767]
    assert _as_taken(raw, torch.float32).dtype == torch.float32
