"""Kernels in Triton; importing this package needs it."""
