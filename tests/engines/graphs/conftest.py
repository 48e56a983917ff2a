from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

# Fused layers are kernels, and kernels need Triton; everything else here does not.
collect_ignore = [] if find_spec("triton") else ["kernels", "test_fused_layers.py", "halo/test_convolution.py"]


@pytest.fixture(autouse=True, scope="module")
def _products_of_whole_floats() -> Iterator[None]:
    """On a GPU, products of float32 would be made in TF32, here and in the reference."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
