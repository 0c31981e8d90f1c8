"""What a command can't do, and why. The command line prints the text of these errors."""


class CommandError(Exception):
    """A command can't do what was asked. The text is one sentence for the person who called it."""


class InputError(CommandError, ValueError):
    """Something given can't be used. The text says what was given and what is allowed."""
