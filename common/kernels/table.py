"""What the reports of both kernel languages share: their tables as text, and values that crossed to another process."""

import io


def plain_text(table):
    """A rich table as text without colours."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=200,
        highlight=False,
        markup=False,
        color_system=None,
        force_jupyter=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()).rstrip("\n")


def size_text(lengths):
    """A grid or block as people write it: lengths of 1 at its end are left out."""
    while len(lengths) > 1 and lengths[-1] == 1:
        lengths = lengths[:-1]
    return " × ".join(map(str, lengths))


def tuples(value):
    """A value with tuples in place of lists, as they were before it crossed to another process."""
    return tuple(tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
