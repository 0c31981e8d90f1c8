"""Files, written whole or not at all."""

import contextlib
import os


@contextlib.contextmanager
def whole(path):
    """A path beside this one to write to, which takes its place at the end; a full disk, or a crash, leaves the old file.

    Of several processes that write the same file at once, the last one's stays.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        yield new
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def replace(path, text) -> None:
    """Writes a file whole or not at all."""
    with whole(path) as new, open(new, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)
