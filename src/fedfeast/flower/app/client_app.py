"""The app of every node: says who it is, and trains what it is sent."""

from fedfeast.flower.client import build_client_app

app = build_client_app()
