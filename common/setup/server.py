"""JupyterLab's server, which starts in half the time: python -m common.setup.server ARGUMENTS

Without this module, jsonschema leaves addresses in schemas unchecked. With it, every start would
build a grammar of addresses anew, which takes longer than all other imports together.
"""

import sys
from typing import Any

modules: dict[str, Any] = sys.modules
modules["rfc3987_syntax"] = None

from jupyterlab.labapp import main  # noqa: E402  (it imports jsonschema)

if __name__ == "__main__":
    sys.exit(main())
