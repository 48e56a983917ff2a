import pytest
import torch

from fedfeast.networks import Layout

SHAPES = {"conv": (4, 3, 2, 2), "norm": (5,), "head": (2, 6)}


def test_offsets_are_aligned_and_pads_are_not_counted() -> None:
    layout = Layout.of(SHAPES, alignment=32)
    assert dict(layout.offsets) == {"conv": 0, "norm": 64, "head": 96}
    assert layout.size == 108
    assert layout.num_parameters == 48 + 5 + 12


def test_convolutions_are_stored_with_the_input_axis_last() -> None:
    layout = Layout.of(SHAPES)
    flat = torch.arange(layout.size)
    stored = flat[:48].view(4, 2, 2, 3)
    assert torch.equal(layout.views(flat)["conv"], stored.permute(0, 3, 1, 2))


def test_views_are_leading_slices_and_share_memory() -> None:
    layout = Layout.of(SHAPES, alignment=32)
    flat = torch.zeros(layout.size)
    slices = layout.views(flat, {"conv": (2, 1, 2, 2), "head": (2, 3)})
    slices["conv"].fill_(1.0)
    slices["head"].fill_(2.0)
    full = layout.views(flat)
    assert full["conv"].sum() == 2 * 1 * 4
    assert (full["conv"][:2, :1] == 1).all()
    assert (full["head"][:, :3] == 2).all()
    assert full["head"].sum() == 12


def test_views_of_a_part_of_a_larger_buffer() -> None:
    layout = Layout.of(SHAPES)
    buffer = torch.arange(100)
    assert torch.equal(layout.views(buffer[7:])["norm"], buffer[55:60])


def test_a_slice_larger_than_its_tensor_is_a_bug() -> None:
    layout = Layout.of(SHAPES)
    with pytest.raises(AssertionError):
        layout.views(torch.zeros(layout.size), {"norm": (6,)})


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (3, 4, 5), (3, 4, 5, 2), (2, 3, 2, 2, 3)], ids=len)
def test_tensors_of_any_rank(shape: tuple[int, ...]) -> None:
    layout = Layout.of({"before": (5,), "tensor": shape}, alignment=8)
    flat, values = torch.zeros(layout.size), torch.randn(shape)
    layout.views(flat)["tensor"].copy_(values)
    assert torch.equal(layout.views(flat)["tensor"], values)
    part = tuple(max(1, size - 1) for size in shape)
    assert torch.equal(layout.views(flat, {"tensor": part})["tensor"], values[tuple(slice(size) for size in part)])
    assert int(flat.count_nonzero()) == values.numel()
