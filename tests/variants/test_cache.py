import csv
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.variants import Variant, VariantCache, packaged_caches, read_cache, write_cache

PAPER = ElasticResNet(SearchSpace())


def test_the_paper_cache_ships_with_the_package() -> None:
    assert "cifar100-56" in packaged_caches()
    cache = read_cache("cifar100-56", PAPER)
    assert len(cache) == 56
    macs = [variant.macs for variant in cache]
    assert macs == sorted(set(macs))
    assert (macs[0], macs[-1], cache[-1].parameters) == (24_967_328, 595_791_168, 11_780_420)


def test_affordable_is_a_prefix_with_an_inclusive_budget() -> None:
    cache = read_cache("cifar100-56", PAPER)
    assert cache.affordable(24_967_327) == ()
    assert cache.affordable(24_967_328) == (cache[0],)
    assert cache.affordable(25e6) == (cache[0],)
    assert cache.affordable(1e12) == cache.variants


@pytest.mark.parametrize("classes", [10, 200])
def test_one_cache_serves_any_number_of_classes(classes: int) -> None:
    network = ElasticResNet(replace(PAPER.space, classes=classes))
    cache = read_cache("cifar100-56", network)
    assert cache[0].macs == network.macs(cache[0].architecture) == 24_967_328 + (classes - 100) * 104


def test_write_then_read(tmp_path: Path) -> None:
    cache = VariantCache.of([Variant.of(PAPER, PAPER.space.largest), Variant.of(PAPER, PAPER.space.smallest)])
    write_cache(cache, PAPER, tmp_path / "cache.csv")
    assert read_cache(str(tmp_path / "cache.csv"), PAPER) == cache
    assert cache[0].architecture == PAPER.space.smallest


def packaged_text() -> str:
    import fedfeast.variants

    return (Path(fedfeast.variants.__file__).parent / "caches" / "cifar100-56.csv").read_text()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda text: text.replace("24967328", "24967329"), "another space"),
        (lambda text: text.replace("336972", "336973"), "another space"),
        (lambda text: text.replace("[3, 7, 6, 7]", "[3, 7, 6, 6]"), "another space"),
        (lambda text: text.replace("[3, 7, 6, 7]", "[3, 7, 6, 99]"), "not in the network's space"),
        (lambda text: text.replace("[3, 7, 6, 7]", "__import__('os')"), "is damaged"),
        (lambda text: text.replace("w_indices", "widths"), "lacks the column w_indices"),
        (lambda text: text.splitlines()[0], "empty"),
        (lambda text: "", "lacks the column"),
        (lambda text: text + text.splitlines()[1], "two variants cost"),
        (lambda text: "\x00\xff", "lacks the column"),
        (lambda text: text.replace("[3, 7, 6, 7]", "['a', 7, 6, 7]"), "is damaged"),
        (lambda text: text.replace("[3, 7, 6, 7]", "[3.0, 7, 6, 7]"), "is damaged"),
        (lambda text: text.replace("[3, 7, 6, 7]", "[true, 7, 6, 7]"), "is damaged"),
        (lambda text: text.replace("[3, 7, 6, 7]", "[" * 100_000), "is damaged"),
        (lambda text: text.replace("[3, 7, 6, 7]", "7" * 200_000), "is damaged"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "cache.csv"
    path.write_text(damage(packaged_text()))
    with pytest.raises(InvalidInput, match=message):
        read_cache(str(path), PAPER)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "cache.csv"
    path.write_text(packaged_text(), encoding="utf-8-sig")
    assert len(read_cache(str(path), PAPER)) == 56


def test_a_cache_of_another_space_is_refused() -> None:
    with pytest.raises(InvalidInput, match="another space"):
        read_cache("cifar100-56", ElasticResNet(replace(PAPER.space, stem_channels=32)))


def test_an_unknown_cache_names_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"neither a file nor one of .*cifar100-56"):
        read_cache("cifar100", PAPER)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("cinic10-56", {"classes": 10}), ("tinyimagenet-56", {"classes": 200, "image_size": 64, "stem_stride": 2})],
)
def test_the_other_data_sets_caches_hold_the_papers_architectures(name: str, changes: dict[str, int]) -> None:
    network = ElasticResNet(replace(PAPER.space, **changes))  # type: ignore[arg-type]
    cache, paper = read_cache(name, network), read_cache("cifar100-56", PAPER)
    assert [one.architecture for one in cache] == [one.architecture for one in paper]
    text = resources.files("fedfeast.variants").joinpath("caches", f"{name}.csv").read_text()
    for row, variant in zip(csv.DictReader(text.splitlines()), cache, strict=True):
        assert (int(row["macs"]), int(row["params"])) == (variant.macs, variant.parameters)
        assert variant.macs <= float(row["target"])
