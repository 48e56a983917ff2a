"""The shape of an example, from whatever the data say of it."""

from fedfeast.errors import InvalidInput


def example_shape(
    builder: str, shape: tuple[int, ...] | None, channels: int | None, side: int | None, length: int | None
) -> tuple[int, ...]:
    """Return the shape itself, or that of an image, a sequence or tokens."""
    if shape and len(shape) > 3:
        raise InvalidInput(
            f"builder {builder} reads images, sequences and tokens, and an example has the shape {list(shape)}: "
            "give one of at most three axes."
        )
    if shape:
        return tuple(shape)
    if channels is not None and side is not None and length is None:
        return (channels, side, side)
    if length is not None:
        return (length,) if channels is None else (channels, length)
    raise InvalidInput(f"builder {builder} needs the shape of an example, which these data do not say: give shape.")
