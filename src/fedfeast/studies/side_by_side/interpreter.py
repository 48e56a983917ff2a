"""How a process of the same Python is started, which finds the same modules."""

import os
import sys
from collections.abc import Mapping


def python_words() -> list[str]:
    """Return the words of a command line that starts this Python without the current folder on its path."""
    return [sys.executable, "-P"]


def child_variables(further: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with further variables; modules are looked for where this process does."""
    places = dict.fromkeys(place or os.getcwd() for place in sys.path)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **further}
