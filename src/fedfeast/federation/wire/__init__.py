"""Weights and changes in fewer bytes, each way."""
