"""Tables as pandas DataFrames, where pandas is installed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedfeast.errors import InvalidInput

if TYPE_CHECKING:
    from pandas import DataFrame


def frame_of(rows: Sequence[Mapping[str, Any]], index: str | None = None, without: str = "its rows") -> "DataFrame":
    """Return rows as a DataFrame, by one of their columns if an index is named.

    Where pandas is missing it is refused; ``without`` says what has the same then.
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise InvalidInput(
            f"a table as a DataFrame needs pandas: pip install 'fedfeast[notebook]'; without it {without} has the same."
        ) from error
    frame = DataFrame.from_records([dict(row) for row in rows])
    return frame if index is None or frame.empty else frame.set_index(index)
