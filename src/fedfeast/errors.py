"""The one exception for what a user can mend."""

import re

_PLACE = re.compile(r"(?<![\w.~/])~?/(?:[^\s/:;,()'\"]+/)+")  # all of an absolute path but its last part


class InvalidInput(ValueError):
    """Bad user input: the message is one sentence with the offending value and the fix."""


def in_one_line(error: BaseException) -> str:
    """Return what somebody else's error says, fit for a sentence of ours."""
    return " ".join(str(error).split())


def without_places(sentence: str) -> str:
    """Return a sentence for people elsewhere: of this machine's paths only their last parts."""
    return _PLACE.sub("", sentence)
