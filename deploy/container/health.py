#!/usr/bin/env python3
"""Ask a service of this container whether it is live: exit status 0, or 1 with its reasons.

HEALTH_URL names it; by default it is a coordinator with TLS. The certificate is not looked at, as by Kubernetes'
probes: it bears the name of the machine, and nothing is sent that anybody may not read.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

_URL = os.environ.get("HEALTH_URL", "https://127.0.0.1:9870/health/live")
_TIMEOUT_S = 8.0


def main() -> int:
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(_URL, timeout=_TIMEOUT_S, context=unverified):
            return 0
    except urllib.error.HTTPError as unwell:
        print(unwell.read().decode(errors="replace"), file=sys.stderr)
    except OSError as unreachable:
        print(f"{_URL}: {unreachable}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
