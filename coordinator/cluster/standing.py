"""How far a datanode has come in leaving, or in going away for a while. Pure."""

from __future__ import annotations

from enum import Enum

from peacefs.coordinator.metadata.model import Mode


class AdminState(Enum):
    """Whether a datanode serves, is about to leave or to be away for a while, or may be switched off."""

    IN_SERVICE = "in service"
    DECOMMISSIONING = "decommissioning"
    DECOMMISSIONED = "decommissioned"
    ENTERING_MAINTENANCE = "entering maintenance"
    IN_MAINTENANCE = "in maintenance"


#: By the operator's decision, and by whether no chunk needs the datanode.
ADMIN_STATES = {
    (Mode.IN_SERVICE, False): AdminState.IN_SERVICE,
    (Mode.IN_SERVICE, True): AdminState.IN_SERVICE,
    (Mode.DECOMMISSION, False): AdminState.DECOMMISSIONING,
    (Mode.DECOMMISSION, True): AdminState.DECOMMISSIONED,
    (Mode.MAINTENANCE, False): AdminState.ENTERING_MAINTENANCE,
    (Mode.MAINTENANCE, True): AdminState.IN_MAINTENANCE,
}
