"""The app of the server: one training run over the nodes."""

from fedfeast.flower.server import build_server_app

app = build_server_app()
