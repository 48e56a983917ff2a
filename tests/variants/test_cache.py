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


def test_the_authors_cache_ships_with_true_stated_and_run_time_macs() -> None:
    cache = read_cache("cifar100-56-authors", PAPER, "keep")
    assert len(cache) == 56
    assert cache.is_priced
    prices = [variant.price for variant in cache]
    assert prices == sorted(prices)
    anchors = [cache[row] for row in (0, 3, 22, 38, 55)]
    assert [one.stated_macs for one in anchors] == [24_957_968, 49_578_000, 228_809_712, 408_240_144, 595_671_072]
    assert [one.price for one in anchors] == [24_967_328, 49_587_360, 228_846_432, 408_295_584, 595_735_872]
    assert [one.macs for one in anchors] == [24_967_328, 49_587_360, 281_340_768, 578_902_176, 652_064_064]
    assert sum(one.macs > 1.05 * one.price for one in cache) == 31, "the networks that cost more than their label says"
    assert cache[35] == cache[36], "one network stands there twice"


@pytest.mark.parametrize(("name", "classes", "dearer_stem"), [("cinic10", 10, 0), ("tinyimagenet", 200, 27 * 3072)])
def test_the_authors_networks_are_recounted_for_the_other_data_sets(name: str, classes: int, dearer_stem: int) -> None:
    """A price has the head of the data's classes; TinyImageNet's stem is charged at 64x64 although its stride is 2."""
    stride = 2 if dearer_stem else 1
    space = SearchSpace(classes=classes, image_size=32 * stride, stem_stride=stride)
    originals = read_cache("cifar100-56-authors", PAPER, "keep")
    cache = read_cache(f"{name}-56-authors", ElasticResNet(space), "keep")
    for one, original in zip(cache, originals, strict=True):
        assert one.architecture == original.architecture, "in the same order"
        head_inputs, stem = space.stage_width(one.architecture, 3), space.stem_width(one.architecture)
        assert one.macs == original.macs + (classes - 100) * head_inputs
        assert one.parameters == original.parameters + (classes - 100) * (head_inputs + 1)
        assert one.price == original.price + (classes - 100) * head_inputs + dearer_stem * stem
        assert one.stated_macs is None, "no compute was published that is counted with them"
    if name == "cinic10":
        assert [one.price for one in cache] == [one.stated_macs for one in originals]
    else:
        assert [cache[row].price for row in (0, 55)] == [26_968_384, 601_116_288]


def test_ties_need_a_rule() -> None:
    with pytest.raises(InvalidInput, match=r"two variants cost 369616896 MACs: keep one .* variants\.ties=keep"):
        read_cache("cifar100-56-authors", PAPER)


def test_a_price_decides_order_and_affordability(tmp_path: Path) -> None:
    small, large = Variant.of(PAPER, PAPER.space.smallest), Variant.of(PAPER, PAPER.space.largest)
    cheap, dear = replace(large, listed_price=10), replace(small, listed_price=20, stated_macs=7)
    cache = VariantCache.of([dear, cheap])
    assert cache.variants == (cheap, dear)
    assert cache.affordable(19) == (cheap,)
    stated = VariantCache.of([dear, replace(cheap, stated_macs=5)])
    write_cache(stated, PAPER, tmp_path / "priced.csv")
    assert read_cache(str(tmp_path / "priced.csv"), PAPER) == stated


@pytest.mark.parametrize("column", ["price", "stated"])
@pytest.mark.parametrize(
    "value", ["", "0", "-5", "1e6", "cheap", "1" + 30 * "0", 5000 * "9", str(10**15 + 1)], ids=lambda value: value[:9]
)
def test_a_column_with_gaps_is_refused(tmp_path: Path, column: str, value: str) -> None:
    header, first, second, *_ = packaged_text().splitlines()
    path = tmp_path / "gaps.csv"
    path.write_text("\n".join([f"{header},{column}", f"{first},24967328", f"{second},{value}"]))
    with pytest.raises(InvalidInput, match=rf"gaps\.csv:3 has .* in its column {column}: give every row"):
        read_cache(str(path), PAPER)


@pytest.mark.parametrize("column", ["price", "stated"])
def test_the_header_of_a_price_may_have_spaces_and_no_other_letters(tmp_path: Path, column: str) -> None:
    header, first, second, *_ = packaged_text().splitlines()
    path = tmp_path / "priced.csv"

    def write(*columns: str) -> None:
        path.write_text("\n".join([",".join((header, *columns)), f"{first},7,7", f"{second},9,9"]))

    write(f" {column} ", "x")
    cache = read_cache(str(path), PAPER)
    assert [one.listed_price if column == "price" else one.stated_macs for one in cache] == [7, 9]
    write(column.capitalize(), "x")
    with pytest.raises(InvalidInput, match=rf"has the column '{column.capitalize()}': write {column}, or call it"):
        read_cache(str(path), PAPER)
    write(column, f" {column}")
    with pytest.raises(InvalidInput, match=f"has the column {column} twice"):
        read_cache(str(path), PAPER)


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache.csv").write_text("7" * 200_000)
    with pytest.raises(InvalidInput, match="is damaged"):
        read_cache(str(tmp_path / "cache.csv"), PAPER)


def test_rows_of_one_price_keep_the_order_of_the_file() -> None:
    small, large = Variant.of(PAPER, PAPER.space.smallest), Variant.of(PAPER, PAPER.space.largest)
    first, second = replace(large, listed_price=10), replace(small, listed_price=10)
    assert VariantCache.of([first, second], "keep").affordable(10) == (first, second)
    assert VariantCache.of([second, first], "keep").affordable(10) == (second, first)
