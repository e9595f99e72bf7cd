import os, socket, tempfile, threading
from pathlib import Path
from peacefs.protocol.messages import Packet
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.tls import TlsFiles, TlsIdentity
from peacefs.client.local_cluster.trial_certificates import TrialAuthority

with tempfile.TemporaryDirectory() as directory:
    authority = TrialAuthority(Path(directory))
    service = TlsIdentity(authority.issue(["node1"]), "node1")
    client = TlsIdentity(TlsFiles(ca=authority.ca))
    ours, theirs = (SocketConnection(end, "the other end") for end in socket.socketpair())
    accepting = threading.Thread(target=theirs.secure, args=(service.server_context(),))
    accepting.start()
    ours.secure(client.connector_context(), "node1")
    accepting.join()
    assert ours.channel == theirs.channel != b""
    for end in (ours, theirs):
        end.greeted()
    data = os.urandom(1 << 20)
    sending = threading.Thread(target=ours.send, args=(Packet(0, b""), data, 10.0))
    sending.start()
    assert bytes(theirs.receive(10.0).payload) == data
    sending.join()
    ours.close(), theirs.close()
