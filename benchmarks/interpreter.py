"""Report which Python this is, and whether it was built with profile-guided optimisation.

`python benchmarks/interpreter.py` says it in a line and exits with 1 for one that was not. So `setup.sh` asks what
it finds, before anything is installed: imports nothing but the standard library.
"""

from __future__ import annotations

import platform
import sys
import sysconfig


def is_optimised() -> bool:
    """Return whether a profile steered the build of this interpreter (`configure --enable-optimizations`)."""
    if "deb_system" in sysconfig.get_scheme_names():
        # Debian and who builds as it does: what `sysconfig` tells there is of the shared library's build, the
        # program's own is profiled.
        return True
    told = (sysconfig.get_config_var(name) for name in ("CONFIG_ARGS", "PY_CFLAGS", "PY_CFLAGS_NODIST"))
    words = " ".join(str(each) for each in told)
    return "--enable-optimizations" in words or "-fprofile-use" in words or "-fprofile-instr-use" in words


def described() -> str:
    """For people, as in `Python 3.11.2, optimised`."""
    return f"Python {platform.python_version()}, {'optimised' if is_optimised() else 'not optimised'}"


if __name__ == "__main__":
    print(described())
    sys.exit(not is_optimised())
