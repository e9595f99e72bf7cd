"""All methods that HDFS clients may call, by protocol and name.

Methods of HDFS that are missing here are answered as unsupported operations, with the reason. docs/hdfs.md lists
the supported methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peacefs.protocol.errors import NoSuchMethod, NoSuchProtocol, ProtocolMismatch, Unsupported

from .attribute_methods import ATTRIBUTE_METHODS
from .block_methods import BLOCK_METHODS
from .cluster_methods import CLUSTER_METHODS, REFRESH_METHODS, VERSION_METHODS
from .method import Method
from .name_methods import NAME_METHODS
from .snapshot_methods import SNAPSHOT_METHODS
from .token_methods import TOKEN_METHODS

_CLIENT: Final = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
#: The methods of each protocol. All protocols have version 1.
PROTOCOLS: Final[Mapping[str, Mapping[str, Method]]] = {
    _CLIENT: {
        **NAME_METHODS,
        **BLOCK_METHODS,
        **ATTRIBUTE_METHODS,
        **SNAPSHOT_METHODS,
        **CLUSTER_METHODS,
        **TOKEN_METHODS,
    },
    "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol": VERSION_METHODS,
    "org.apache.hadoop.security.RefreshUserMappingsProtocol": REFRESH_METHODS,
}
PROTOCOL_VERSION: Final = 1

_NO_LINKS = "Symlinks not supported"
_NO_ENCRYPTION = "there are no encryption zones"
_NO_ERASURE_CODING = "all files are replicated: there is no erasure coding"
_NO_CACHE = "there is no centralized cache: datanodes read through the page cache of their machines"
_NO_EDITS = "the metadata has no edit log that clients could follow"
_ONE_STORAGE = "all storage is of one type, DISK"
_BY_COMMAND = "operators use the commands of peacefs: see `peacefs --help`"
#: The unsupported methods of ClientProtocol, with the reason.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "createSymlink": _NO_LINKS,
    "createEncryptionZone": _NO_ENCRYPTION,
    "listEncryptionZones": _NO_ENCRYPTION,
    "reencryptEncryptionZone": _NO_ENCRYPTION,
    "listReencryptionStatus": _NO_ENCRYPTION,
    "setErasureCodingPolicy": _NO_ERASURE_CODING,
    "unsetErasureCodingPolicy": _NO_ERASURE_CODING,
    "addErasureCodingPolicies": _NO_ERASURE_CODING,
    "removeErasureCodingPolicy": _NO_ERASURE_CODING,
    "enableErasureCodingPolicy": _NO_ERASURE_CODING,
    "disableErasureCodingPolicy": _NO_ERASURE_CODING,
    "getECTopologyResultForPolicies": _NO_ERASURE_CODING,
    "addCacheDirective": _NO_CACHE,
    "modifyCacheDirective": _NO_CACHE,
    "removeCacheDirective": _NO_CACHE,
    "listCacheDirectives": _NO_CACHE,
    "addCachePool": _NO_CACHE,
    "modifyCachePool": _NO_CACHE,
    "removeCachePool": _NO_CACHE,
    "listCachePools": _NO_CACHE,
    "getCurrentEditLogTxid": _NO_EDITS,
    "getEditsFromTxid": _NO_EDITS,
    "rollEdits": _NO_EDITS,
    "satisfyStoragePolicy": _ONE_STORAGE,
    "saveNamespace": _BY_COMMAND,
    "restoreFailedStorage": _BY_COMMAND,
    "refreshNodes": _BY_COMMAND,
    "finalizeUpgrade": _BY_COMMAND,
    "upgradeStatus": _BY_COMMAND,
    "metaSave": _BY_COMMAND,
    "setBalancerBandwidth": _BY_COMMAND,
    "listOpenFiles": "a coordinator keeps no list of open files that survives a restart",
}


def find_method(protocol: str, version: int, name: str) -> Method:
    """Return a method. Raises NoSuchProtocol, ProtocolMismatch, NoSuchMethod or Unsupported."""
    methods = PROTOCOLS.get(protocol)
    if methods is None:
        raise NoSuchProtocol(f"Unknown protocol: {protocol[:200]}")
    if version != PROTOCOL_VERSION:
        raise ProtocolMismatch(
            f"Protocol {protocol} version mismatch. (client = {version}, server = {PROTOCOL_VERSION})"
        )
    method = methods.get(name)
    if method is None:
        if protocol == _CLIENT and name in UNSUPPORTED:
            raise Unsupported(f"{name}: {UNSUPPORTED[name]}")
        raise NoSuchMethod(f"Unknown method {name[:200]} called on {protocol} protocol.")
    return method
