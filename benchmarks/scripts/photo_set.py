"""A made-up folder of photos, CLASS/NUMBER.jpg: things and textures in changing colours, places, sizes and light."""

from collections.abc import Callable
from math import cos, pi, sin
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Colour = tuple[int, int, int]
Painter = Callable[[ImageDraw.ImageDraw, "Scene"], None]


class Scene:
    """One photo's size and draws; lengths are shares of the shorter side."""

    def __init__(self, generator: np.random.Generator, width: int, height: int) -> None:
        self.generator, self.width, self.height = generator, width, height
        self.side = min(width, height)

    def between(self, least: float, most: float) -> float:
        """Draw a number."""
        return float(self.generator.uniform(least, most))

    def place(self) -> tuple[float, float]:
        """Draw a point around the middle."""
        reach = 0.15 * self.side
        return self.width / 2 + self.between(-reach, reach), self.height / 2 + self.between(-reach, reach)

    def colour(self, base: Colour, spread: int = 45) -> Colour:
        """Draw a colour near another."""
        red, green, blue = (int(np.clip(part + self.between(-spread, spread), 0, 255)) for part in base)
        return red, green, blue

    def any_colour(self) -> Colour:
        """Draw any colour."""
        red, green, blue = (int(self.between(20, 235)) for _ in range(3))
        return red, green, blue


def _paint_balls(draw: ImageDraw.ImageDraw, scene: Scene) -> None:
    for _ in range(int(scene.between(1, 4))):
        (x, y), radius, colour = scene.place(), scene.between(0.15, 0.32) * scene.side, scene.any_colour()
        for step in range(12):  # lighter towards a spot of light
            share = 1 - step / 12
            tone = tuple(int(part + (255 - part) * step / 18) for part in colour)
            middle = x - radius * 0.3 * (1 - share), y - radius * 0.3 * (1 - share)
            draw.ellipse(_box(middle, radius * share), fill=tone)


def _paint_bricks(draw: ImageDraw.ImageDraw, scene: Scene) -> None:
    height, base = scene.between(0.06, 0.13) * scene.side, scene.colour((160, 80, 60), 60)
    width, gap = 2.4 * height, 0.12 * height
    for row in range(int(scene.height / height) + 1):
        for column in range(-1, int(scene.width / width) + 1):
            left, top = (column + (row % 2) / 2) * width, row * height
            draw.rectangle((left, top, left + width - gap, top + height - gap), fill=scene.colour(base, 20))


def _paint_flowers(draw: ImageDraw.ImageDraw, scene: Scene) -> None:
    for _ in range(int(scene.between(1, 4))):
        (x, y), radius, petals = scene.place(), scene.between(0.14, 0.26) * scene.side, int(scene.between(5, 9))
        colour, turn = scene.any_colour(), scene.between(0, pi)
        for number in range(petals):
            angle = turn + 2 * pi * number / petals
            draw.ellipse(_box((x + radius * cos(angle), y + radius * sin(angle)), 0.45 * radius), fill=colour)
        draw.ellipse(_box((x, y), 0.45 * radius), fill=scene.colour((230, 190, 40), 30))


def _paint_houses(draw: ImageDraw.ImageDraw, scene: Scene) -> None:
    (x, y), half = scene.place(), scene.between(0.18, 0.3) * scene.side
    draw.rectangle((x - half, y - 0.4 * half, x + half, y + half), fill=scene.any_colour())
    draw.polygon(
        [(x - 1.2 * half, y - 0.4 * half), (x + 1.2 * half, y - 0.4 * half), (x, y - 1.4 * half)],
        fill=scene.any_colour(),
    )
    for left in (-0.7, 0.2):
        box = (x + left * half, y, x + (left + 0.5) * half, y + 0.5 * half)
        draw.rectangle(box, fill=scene.colour((240, 235, 170), 15))


def _paint_stripes(draw: ImageDraw.ImageDraw, scene: Scene) -> None:
    width, slope, colour = scene.between(0.06, 0.16) * scene.side, scene.between(-0.6, 0.6), scene.any_colour()
    for number in range(-20, 60):
        left = number * 2 * width
        shift = slope * scene.height
        draw.polygon(
            [(left, 0), (left + width, 0), (left + width + shift, scene.height), (left + shift, scene.height)],
            fill=colour,
        )


def _paint_stars(draw: ImageDraw.ImageDraw, scene: Scene) -> None:
    for _ in range(int(scene.between(1, 4))):
        (x, y), radius, turn = scene.place(), scene.between(0.16, 0.34) * scene.side, scene.between(0, pi)
        reach = [radius if corner % 2 == 0 else 0.4 * radius for corner in range(10)]
        corners = [
            (x + one * cos(turn + pi * at / 5), y + one * sin(turn + pi * at / 5)) for at, one in enumerate(reach)
        ]
        draw.polygon(corners, fill=scene.any_colour())


CLASSES: dict[str, Painter] = {
    "balls": _paint_balls,
    "bricks": _paint_bricks,
    "flowers": _paint_flowers,
    "houses": _paint_houses,
    "stars": _paint_stars,
    "stripes": _paint_stripes,
}


def write_photos(folder: Path, each: int, broken: int = 0, longest: int = 1024, seed: int = 0) -> Path:
    """Write so many photos of each class, and among them some files that are broken or no images; return the folder."""
    generator = np.random.default_rng(seed)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(each):
            _photo(name, generator, longest).save(folder / name / f"IMG_{number:04}.jpg", quality=88)
    names = list(CLASSES)
    for number in range(broken):
        place = folder / names[number % len(names)]
        content = (place / "IMG_0000.jpg").read_bytes()
        made = [
            ("cut", ".jpg", content[: len(content) // 3]),
            ("notes", ".txt", b"to be sorted"),
            ("empty", ".png", b""),
        ]
        stem, ending, given = made[number % len(made)]
        (place / f"{stem}_{number}{ending}").write_bytes(given)
    return folder


def _photo(name: str, generator: np.random.Generator, longest: int) -> Image.Image:
    width, height = (longest, longest * 3 // 4) if generator.random() < 0.6 else (longest * 3 // 4, longest)
    # Painted small and enlarged: a camera's noise is added at full size.
    scene = Scene(generator, width // 4, height // 4)
    image = Image.new("RGB", (scene.width, scene.height), scene.any_colour())
    draw = ImageDraw.Draw(image)
    for _ in range(int(scene.between(0, 14))):  # clutter behind
        point = scene.between(0, scene.width), scene.between(0, scene.height)
        draw.ellipse(_box(point, scene.between(0.01, 0.05) * scene.side), fill=scene.any_colour())
    CLASSES[name](draw, scene)
    image = image.rotate(scene.between(-12, 12), fillcolor=scene.any_colour())
    image = image.filter(ImageFilter.GaussianBlur(scene.between(0, 0.01) * scene.side)).resize((width, height))
    light = np.linspace(scene.between(0.6, 1.1), scene.between(0.6, 1.1), width)[None, :, None]
    noise = generator.normal(0, scene.between(4, 22), (height // 2, width // 2, 1)).repeat(2, 0).repeat(2, 1)
    pixels = np.asarray(image, dtype=np.float32) * light + noise[:height, :width]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _box(middle: tuple[float, float], radius: float) -> tuple[float, float, float, float]:
    return middle[0] - radius, middle[1] - radius, middle[0] + radius, middle[1] + radius
