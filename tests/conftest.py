"""Where there is no GPU, kernels run through Triton's interpreter, chosen here because any test may import Triton."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
