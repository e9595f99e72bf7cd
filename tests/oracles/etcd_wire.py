"""etcd's messages as Google's own library writes and reads them.

The fields are those of etcd's public `rpc.proto` and `kv.proto`, by etcd's names; each line gives a field's name,
number and type, `*` for a repeated one and `?` for a member of a oneof.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "etcdserverpb"
_TYPES = {"int64": 3, "uint64": 4, "bool": 8, "string": 9, "bytes": 12, "enum": 5}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
_FIELDS = {
    "ResponseHeader": "cluster_id 1 uint64, member_id 2 uint64, revision 3 int64, raft_term 4 uint64",
    "KeyValue": "key 1 bytes, create_revision 2 int64, mod_revision 3 int64, version 4 int64, value 5 bytes, "
    "lease 6 int64",
    "RangeRequest": "key 1 bytes, range_end 2 bytes, limit 3 int64, revision 4 int64, sort_order 5 enum, "
    "sort_target 6 enum, serializable 7 bool",
    "RangeResponse": "header 1 ResponseHeader, kvs 2 KeyValue*, more 3 bool, count 4 int64",
    "PutRequest": "key 1 bytes, value 2 bytes, lease 3 int64, prev_kv 4 bool",
    "PutResponse": "header 1 ResponseHeader, prev_kv 2 KeyValue",
    "DeleteRangeRequest": "key 1 bytes, range_end 2 bytes, prev_kv 3 bool",
    "DeleteRangeResponse": "header 1 ResponseHeader, deleted 2 int64, prev_kvs 3 KeyValue*",
    "RequestOp": "request_range 1 RangeRequest?, request_put 2 PutRequest?, "
    "request_delete_range 3 DeleteRangeRequest?",
    "ResponseOp": "response_range 1 RangeResponse?, response_put 2 PutResponse?, "
    "response_delete_range 3 DeleteRangeResponse?",
    "Compare": "result 1 enum, target 2 enum, key 3 bytes, version 4 int64?, create_revision 5 int64?, "
    "mod_revision 6 int64?, value 7 bytes?, lease 8 int64?, range_end 64 bytes",
    "TxnRequest": "compare 1 Compare*, success 2 RequestOp*, failure 3 RequestOp*",
    "TxnResponse": "header 1 ResponseHeader, succeeded 2 bool, responses 3 ResponseOp*",
    "CompactionRequest": "revision 1 int64, physical 2 bool",
    "LeaseGrantRequest": "TTL 1 int64, ID 2 int64",
    "LeaseGrantResponse": "header 1 ResponseHeader, ID 2 int64, TTL 3 int64, error 4 string",
    "LeaseRevokeRequest": "ID 1 int64",
    "LeaseKeepAliveRequest": "ID 1 int64",
    "LeaseKeepAliveResponse": "header 1 ResponseHeader, ID 2 int64, TTL 3 int64",
    "StatusResponse": "header 1 ResponseHeader, version 2 string, dbSize 3 int64, leader 4 uint64, "
    "raftIndex 5 uint64, raftTerm 6 uint64, errors 8 string*",
    "Member": "ID 1 uint64, name 2 string, peerURLs 3 string*, clientURLs 4 string*, isLearner 5 bool",
    "MemberListResponse": "header 1 ResponseHeader, members 2 Member*",
    "AuthenticateRequest": "name 1 string, password 2 string",
    "AuthenticateResponse": "header 1 ResponseHeader, token 2 string",
}


def _declared() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="etcd_wire.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        if "?" in fields:
            message.oneof_decl.add(name="one_of")
        for field in fields.split(", "):
            called, number, kind = field.split()
            plain = kind.rstrip("*?")
            label = _REPEATED if kind.endswith("*") else _OPTIONAL
            added = message.field.add(name=called, number=int(number), label=label)
            added.type = _TYPES.get(plain, _MESSAGE)
            if plain not in _TYPES:
                added.type_name = f".{_PACKAGE}.{plain}"
            if kind.endswith("?"):
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = {name: pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in _FIELDS}
    return {name: message_factory.GetMessageClass(of) for name, of in found.items()}


#: Classes of messages by etcd's names.
MESSAGES = _declared()
