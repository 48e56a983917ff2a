"""The Flower app that a fleet runs, as files that ``flwr run`` hands to the SuperLink."""

from importlib import resources
from pathlib import Path

from fedfeast.whole_files import whole_folder

FILES = ("pyproject.toml", "server_app.py", "client_app.py")


def write_app(folder: Path) -> None:
    """Write the app's files into a new or empty folder."""
    packaged = resources.files("fedfeast.flower.app")
    with whole_folder(folder) as partial:
        for name in FILES:
            (partial / name).write_text(packaged.joinpath(name).read_text())
