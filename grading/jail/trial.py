"""Starts one worker in a sandbox, which does nothing. The first thing that fails goes to stderr.

python -m grading.jail.trial CONFINEMENT    (as JSON, inside the sandbox's own command line)
"""

import os
import sys

from grading.jail.choice import confinement_from_json


def main() -> int:
    confinement = confinement_from_json(sys.argv[1])
    errors = os.dup(2)  # the worker closes its own
    try:
        confinement.enter()
        pid = confinement.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        confinement.shut_in()
        open(__file__).close()  # Python can still be read
    except OSError as error:
        os.write(errors, str(error).encode())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
