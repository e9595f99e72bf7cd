"""WebHDFS operations on storage policies, of which there is one, and erasure coding, which there is not.

HDFS's clients ask for these. The answers say that all data is on disks, under the policy HOT, and replicated.
"""

from __future__ import annotations

from typing import Any, Final

from peacefs.coordinator.namespace.permissions import Access
from peacefs.coordinator.operations.names import Names
from peacefs.protocol.asgi import Scope
from peacefs.protocol.errors import IllegalChange, NoErasureCodingPolicy, Unsupported
from peacefs.protocol.webhdfs.answers import Answer, empty_answer, json_answer
from peacefs.protocol.webhdfs.policy_requests import (
    GetErasureCodingCodecs,
    GetErasureCodingPolicies,
    GetErasureCodingPolicy,
    GetStoragePolicies,
    GetStoragePolicy,
    SetStoragePolicy,
    UnsetErasureCodingPolicy,
    UnsetStoragePolicy,
)
from peacefs.protocol.webhdfs.request import Request

from .webhdfs_handlers import Handler

#: HDFS's policy for all replicas on disks, but without the fallback to archive storage, which does not exist here.
_HOT: Final[dict[str, Any]] = {
    "copyOnCreateFile": False,
    "creationFallbacks": [],
    "id": 7,
    "name": "HOT",
    "replicationFallbacks": [],
    "storageTypes": ["DISK"],
}
_OTHERS: Final = ("ALL_NVDIMM", "ALL_SSD", "COLD", "LAZY_PERSIST", "ONE_SSD", "PROVIDED", "WARM")
#: HDFS's policy for replicated files. Its clients recognise the number.
_REPLICATION: Final[dict[str, Any]] = {
    "cellSize": 1 << 20,
    "codecName": "replication",
    "extraOptions": {},
    "id": 0,
    "name": "replication",
    "numDataUnits": 1,
    "numParityUnits": 2,
}


class PolicyHandlers:
    def __init__(self, names: Names) -> None:
        self._names = names
        self.handlers: dict[type[Request], Handler] = {
            GetStoragePolicy: self._get_storage_policy,
            GetStoragePolicies: self._get_storage_policies,
            SetStoragePolicy: self._set_storage_policy,
            UnsetStoragePolicy: self._unset_storage_policy,
            GetErasureCodingPolicy: self._get_erasure_coding_policy,
            GetErasureCodingPolicies: self._get_erasure_coding_policies,
            GetErasureCodingCodecs: self._get_erasure_coding_codecs,
            UnsetErasureCodingPolicy: self._unset_erasure_coding_policy,
        }

    async def _get_storage_policy(self, asked: GetStoragePolicy, _scope: Scope) -> Answer:
        await self._names.status(asked.path, asked.user)
        return json_answer({"BlockStoragePolicy": _HOT})

    async def _get_storage_policies(self, _asked: GetStoragePolicies, _scope: Scope) -> Answer:
        return json_answer({"BlockStoragePolicies": {"BlockStoragePolicy": [_HOT]}})

    async def _set_storage_policy(self, asked: SetStoragePolicy, _scope: Scope) -> Answer:
        name = asked.policy.upper()
        if name in _OTHERS:
            raise Unsupported(
                f"the storage policy {name} is not supported: all storage is of one type, DISK, and all files are "
                "under HOT"
            )
        if name != _HOT["name"]:
            raise IllegalChange(f"Cannot find a block policy with the name {asked.policy}")
        await self._names.check_access(asked.path, asked.user, Access.WRITE)
        return empty_answer()

    async def _unset_storage_policy(self, asked: UnsetStoragePolicy, _scope: Scope) -> Answer:
        await self._names.check_access(asked.path, asked.user, Access.WRITE)
        return empty_answer()

    async def _get_erasure_coding_policy(self, asked: GetErasureCodingPolicy, _scope: Scope) -> Answer:
        await self._names.status(asked.path, asked.user)
        return json_answer(_REPLICATION)

    async def _get_erasure_coding_policies(self, _asked: GetErasureCodingPolicies, _scope: Scope) -> Answer:
        return json_answer({"ErasureCodingPolicies": {"ErasureCodingPolicyInfo": []}})

    async def _get_erasure_coding_codecs(self, _asked: GetErasureCodingCodecs, _scope: Scope) -> Answer:
        return json_answer({"ErasureCodingCodecs": {}})

    async def _unset_erasure_coding_policy(self, asked: UnsetErasureCodingPolicy, _scope: Scope) -> Answer:
        await self._names.check_access(asked.path, asked.user, Access.WRITE)
        raise NoErasureCodingPolicy(f"No erasure coding policy is set on {asked.path}")
