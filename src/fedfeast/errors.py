"""The one exception for what a user can mend."""


class InvalidInput(ValueError):
    """Bad user input: the message is one sentence with the offending value and the fix."""


def in_one_line(error: BaseException) -> str:
    """Return what somebody else's error says, fit for a sentence of ours."""
    return " ".join(str(error).split())
