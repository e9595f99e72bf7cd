import msgspec

from peacefs.coordinator.cluster.chunk_map import ChunkState
from peacefs.coordinator.cluster.possession import Possession
from peacefs.datanode.control.prover import digest_of_content
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.messages import Hop, ReplicaProof, ReplicasProven
from peacefs.protocol.tokens import ChunkWrite, Signer

# A pipeline with another address is another pipeline.
signer = Signer(b"the secret of the cluster")
permit = ChunkWrite(100.0, 7, 1, [Hop("dn-1", "10.0.0.1", 9866)])
mac = signer.sign(permit)[-22:]
forged = Signer(b"guessed").sign(msgspec.structs.replace(permit, pipeline=[Hop("dn-1", "10.6.6.6", 9866)]))
try:
    signer.verify(forged[:-22] + mac, ChunkWrite, 0.0)
except AccessDenied as why:
    print(why.message)
else:
    raise AssertionError("it was taken")

# Two hold the content, one says so.
possession = Possession(lambda: b"drawn for this question")
possession.ask(0.0, ChunkState(7, 1, 11, 2), ["real-1", "real-2", "liar"])
for question in possession.take_questions(0.0):
    (challenge,) = question.message.challenges
    digest = digest_of_content(challenge)
    digest.update(b"the content" if question.node != "liar" else b"whatever")
    possession.answered(question, ReplicasProven([ReplicaProof(7, 1, digest.digest(), b"")]))
(evidence,) = possession.take_evidence(0.0)
assert evidence.agreeing(["real-1", "liar", "real-2"]) == ["real-1", "real-2"]
