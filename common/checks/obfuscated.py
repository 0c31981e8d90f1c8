"""Python text that nobody reads by chance: what checks compare with, in a student's copy.

A release of the course seals the labs' `expected` and `clinic_...` files, because a right program
in another style gives an exercise away. Sealing is no encryption: whoever wants to read the text
can.
"""

import base64
import re
import zlib
from pathlib import Path
from types import CodeType

TEXT = '''"""Sealed: this file holds expected values. See common/checks/obfuscated.py."""

from common.checks import obfuscated

exec(obfuscated.code({packed!r}, __file__))
'''


def seal(text: str) -> str:
    """The text of a module that does what this module does."""
    return TEXT.format(packed=base64.b85encode(zlib.compress(text.encode(), 9)).decode())


def code(packed: str, file: str) -> CodeType:
    """The sealed module, compiled under the name of its file."""
    return compile(_opened(packed), file, "exec")


def read(path: Path) -> str:
    """The text of a module, sealed or not."""
    text = path.read_text(encoding="utf-8")
    packed = re.search(r"obfuscated\.code\('(.+)', __file__\)\)\n\Z", text)
    return _opened(packed[1]) if packed else text


def _opened(packed: str) -> str:
    return zlib.decompress(base64.b85decode(packed)).decode()
