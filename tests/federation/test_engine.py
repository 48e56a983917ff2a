from fedfeast.federation import LocalSgd


def test_the_papers_optimiser_is_the_default() -> None:
    assert LocalSgd() == LocalSgd(weight_decay=5e-4, clip_norm=10.0)
