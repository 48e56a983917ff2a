"""The one exception for what a user can mend."""


class InvalidInput(ValueError):
    """Bad user input: the message is one sentence with the offending value and the fix."""
