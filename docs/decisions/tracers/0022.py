from peacefs.client.transfer.small_writes import PreallocatedChunks
from peacefs.coordinator.cluster.chunk_writes import ChunkAssignments
from peacefs.client.transfer.small_writes import preallocated_chunk_kept_s
from peacefs.protocol.messages import Allocated

preallocated, assignments = PreallocatedChunks(), ChunkAssignments()
assert preallocated.next_request_id(0.0, 3) == ""  # nobody wrote before
request_id = preallocated.next_request_id(0.1, 3)  # goes along with the second file; its answer brings a chunk
assignments.assign(7, f"request {request_id}")
preallocated.put(0.1, 3, request_id, Allocated(7, 1, [], "token"))

placed = preallocated.take(0.2, 3)
assert placed is not None and placed.request_id == request_id
assert preallocated.take(0.2, 3) is None  # once
assert not assignments.abandon(7, "request of somebody else")
assert assignments.abandon(7, f"request {placed.request_id}")

preallocated.put(0.2, 3, "another", Allocated(8, 1, [], "token"))
assert preallocated.take(0.2 + preallocated_chunk_kept_s, 3) is None  # too old
