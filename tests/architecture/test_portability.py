"""Nothing here needs what Unix alone has: every module is imported, and what it calls is looked up."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "fedfeast"
UNIX_MODULES = (
    "fcntl",
    "resource",
    "pwd",
    "grp",
    "termios",
    "tty",
    "pty",
    "syslog",
    "posix",
    "crypt",
    "spwd",
    "readline",
)
UNIX_NAMES = {
    "os": {
        *("fork", "forkpty", "killpg", "setsid", "getuid", "geteuid", "getgid", "getpgid", "uname", "statvfs", "chown"),
        *("fchown", "getloadavg", "sysconf", "nice", "mkfifo", "wait", "pread", "pwrite", "sched_getaffinity"),
        *("sched_setaffinity", "posix_fallocate", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "WNOHANG"),
    },
    "signal": {"SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT", "alarm", "pause", "setitimer"},
    "socket": {"AF_UNIX", "SO_REUSEPORT"},
}
# Where such a name stands behind a question whether it, or what it acts on, is there.
ASKED_FIRST = {("machine.py", "os.sched_getaffinity"), ("flower/local_fleet.py", "signal.SIGKILL")}

# Hidden from this package alone: on Unix the libraries below it may well use them. Triton is of Linux, and of modules
# that are imported on a CUDA device.
IMPORT_ALL = """
import builtins, importlib, pkgutil, sys
unix, real = set(sys.argv[1].split()), builtins.__import__
allowed = set()

def without(name, globals=None, locals=None, fromlist=(), level=0):
    first = name.partition(".")[0]
    if str((globals or {}).get("__name__")).startswith("fedfeast") and first in unix - allowed:
        raise ModuleNotFoundError(f"no module named {name!r} here")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = without
import fedfeast
names = [one.name for one in pkgutil.walk_packages(fedfeast.__path__, "fedfeast.") if not one.name.endswith("__main__")]
triton_users = "fedfeast.engines.graphs", "fedfeast.evaluation.passes.rectifying"
with_triton = [name for name in names if name.startswith(triton_users)]
for name in names:
    if name not in with_triton:
        importlib.import_module(name)
allowed.add("triton")
for name in with_triton:
    importlib.import_module(name)
print(len(names))
"""


def test_every_module_is_imported_without_what_unix_alone_has() -> None:
    hidden = " ".join((*UNIX_MODULES, "triton"))
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, hidden], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= len([path for path in SOURCE.rglob("*.py") if path.name != "__main__.py"]) - 1


def test_names_that_unix_alone_has_are_asked_for_first() -> None:
    found = {
        (path.relative_to(SOURCE).as_posix(), f"{node.value.id}.{node.attr}")
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.attr in UNIX_NAMES.get(node.value.id, set())
    }
    assert found == ASKED_FIRST
