"""Evaluation by a fleet's clients: the server asks, nodes answer with sums over their own examples."""
