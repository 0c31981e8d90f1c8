"""A sealed module does what the module does, and its text can be read back."""

import importlib.util

from common.checks import obfuscated

TEXT = '"""Expected values."""\n\n\ndef double(x):\n    return 2 * x\n'


def test_a_sealed_module_works_and_shows_nothing(tmp_path):
    path = tmp_path / "oracle.py"
    path.write_text(obfuscated.seal(TEXT))
    assert "double" not in path.read_text()
    spec = importlib.util.spec_from_file_location("oracle", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.double(4) == 8


def test_text_is_read_sealed_or_not(tmp_path):
    path = tmp_path / "oracle.py"
    for text in (TEXT, obfuscated.seal(TEXT)):
        path.write_text(text)
        assert obfuscated.read(path) == TEXT
