"""Zip files that platforms give: opened, or refused in a sentence."""

import struct
import zipfile
import zlib
from pathlib import Path

from grading.errors import InputError

# What zipfile raises for an archive, or a file in it, that it can't read.
BROKEN = (
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError),
    *(struct.error, zlib.error),
)


def opened(path: Path) -> zipfile.ZipFile:
    """The archive, to be closed. InputError if it is none that can be read; OSError as open's."""
    try:
        return zipfile.ZipFile(path)
    except BROKEN:
        raise InputError(f"{path} is not a zip file that can be read") from None
