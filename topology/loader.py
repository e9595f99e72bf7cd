"""Reads a description of the network from a file. The only module of this package that does I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from peacefs.protocol.errors import InvalidTopology
from peacefs.protocol.limits import MIB

from .model import Topology
from .rack_table import parse_rack_table
from .toml_file import parse_toml

topology_file_bytes_max: Final = 16 * MIB


def load_topology(path: Path) -> Topology:
    """Read TOML if the name ends in .toml, else a rack table. Raises InvalidTopology, which names the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(topology_file_bytes_max + 1)
        if len(raw) > topology_file_bytes_max:
            raise InvalidTopology(f"larger than {topology_file_bytes_max} bytes")
        text = raw.decode()
        return parse_toml(text) if path.suffix == ".toml" else parse_rack_table(text)
    except OSError as error:
        raise InvalidTopology(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InvalidTopology(f"{path}: not UTF-8 at byte {error.start}") from None
    except InvalidTopology as mistake:
        raise InvalidTopology(f"{path}: {mistake.message}") from None
