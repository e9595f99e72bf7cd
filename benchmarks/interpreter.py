"""Report which Python this is, and whether it was built with profile-guided optimisation.

`python benchmarks/interpreter.py` prints one line and exits with 1 if it was not. `setup.sh` uses it to choose a
Python before anything is installed, so it imports only the standard library.
"""

from __future__ import annotations

import platform
import sys
import sysconfig


def is_optimised() -> bool:
    """Return whether a profile steered the build of this interpreter (`configure --enable-optimizations`)."""
    if "deb_system" in sysconfig.get_scheme_names():
        # On Debian and similar systems, `sysconfig` describes the build of the shared library; the program itself
        # is built with a profile.
        return True
    told = (sysconfig.get_config_var(name) for name in ("CONFIG_ARGS", "PY_CFLAGS", "PY_CFLAGS_NODIST"))
    words = " ".join(str(each) for each in told)
    return "--enable-optimizations" in words or "-fprofile-use" in words or "-fprofile-instr-use" in words


def described() -> str:
    """Describe the interpreter for people, such as `Python 3.11.2, optimised`."""
    return f"Python {platform.python_version()}, {'optimised' if is_optimised() else 'not optimised'}"


if __name__ == "__main__":
    print(described())
    sys.exit(not is_optimised())
