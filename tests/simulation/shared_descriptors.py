"""Open files that datanodes of the simulated world pass to readers on the same host."""

from __future__ import annotations

from typing import Any

from store.simulated_disk import SimulatedDisk, SimulatedFile

from peacefs.runtime import effects as fx


class SharedDescriptor(fx.File):
    """An open file of another process. It survives its name and its datanode, but not a machine crash."""

    def __init__(self, disk: SimulatedDisk, file: fx.File) -> None:
        self._disk = disk
        self._file: SimulatedFile = disk.share(file)

    def perform(self, effect: fx.Effect) -> Any:
        """Perform an effect that readers may perform on a shared file. Raises OSError."""
        match effect:
            case fx.ReadInto():
                data = self._disk.read_shared(self._file, effect.offset, len(effect.target))
                effect.target[: len(data)] = data
                return len(data)
            case fx.CloseFile():
                return None
        raise AssertionError(f"{type(effect).__name__} is nothing to do with a shared file")


def local_address(address: fx.Address) -> fx.Address:
    """Return the address of the local socket that belongs to this port."""
    host, port = address
    return host, -port


def port_beside(address: fx.Address) -> tuple[fx.Address, bool]:
    """Return the address of the port, and whether the given address was that of its local socket."""
    host, port = address
    return (host, abs(port)), port < 0
