"""Limits and deadlines that several modules of a service process share. Names contain their unit."""

from typing import Final

# After refusing a request, the server waits this long before it resets the connection, so that the client can read
# the refusal.
http_linger_s: Final = 1.0
http_connections_max: Final = 4096
