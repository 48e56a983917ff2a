import pytest

from fedfeast.units import format_macs


@pytest.mark.parametrize(
    ("macs", "text"),
    [(24_967_328, "24.97M"), (595_791_168, "595.8M"), (128_320, "128.3k"), (2.5e9, "2.5G"), (12, "12")],
)
def test_macs_for_people(macs: float, text: str) -> None:
    assert format_macs(macs) == text
