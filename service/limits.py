"""Limits and deadlines that several modules of a service process share; the unit is the last word of each name."""

from typing import Final

# An offender may read its refusal before the connection is reset.
http_linger_s: Final = 1.0
http_connections_max: Final = 4096
