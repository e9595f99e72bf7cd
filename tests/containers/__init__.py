"""Images that are really built, and the compose files that are really started, by podman: `make containers`."""
