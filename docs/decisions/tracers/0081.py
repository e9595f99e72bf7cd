from peacefs.coordinator.hdfs.method_table import find_method
from peacefs.protocol.errors import NoSuchMethod, Unsupported
from peacefs.protocol.hadoop.namenode_pb2 import MkdirsRequestProto
from peacefs.protocol.hadoop.rpc_codec import ConnectionHeader, Request, RequestReader

client = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
assert find_method(client, 1, "mkdirs").request is MkdirsRequestProto
for name, refusal in (("createSymlink", Unsupported), ("makeCoffee", NoSuchMethod)):
    try:
        find_method(client, 1, name)
    except refusal as error:
        assert name in error.message
    else:
        raise AssertionError(name)

reader = RequestReader(1 << 20)
reader.take(b"hrpc\x09\x00\x00" + bytes.fromhex("0000000706180022002800"))
assert isinstance(reader.next(), ConnectionHeader)
call = reader.next()
assert isinstance(call, Request) and call.header.call == 0
