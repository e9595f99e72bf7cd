from peacefs.coordinator.journal.etcd_messages_pb2 import Compare, PutRequest, TxnResponse

# The bytes that etcd reads, by the numbers of its fields: key 1, value 2, lease 3; and of a comparison key 3, version 4.
assert PutRequest(key=b"key", value=b"value", lease=7).SerializeToString() == b"\x0a\x03key\x12\x05value\x18\x07"
assert Compare(key=b"key", version=0).SerializeToString() == b"\x1a\x03key\x20\x00"
# An answer with a header that nobody asks for.
assert TxnResponse.FromString(b"\x0a\x04\x10\x05\x18\x09\x10\x01").succeeded
