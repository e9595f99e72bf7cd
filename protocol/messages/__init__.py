"""The messages that frames carry, one module per conversation. Each is a struct; its tag is the class name.

    base         any: Failure, Done
    handshake    connector -> Hello, acceptor -> Challenge, connector -> Proof, acceptor -> Welcome
    chunks       writer or hop -> WriteChunk, Packet...; hop -> WriteAck
                 reader -> ReadChunk; datanode -> Packet...
                 reader -> RequestDescriptor; datanode -> DescriptorShared
    datanodes    datanode -> Register, ReportChunks, Heartbeat;
                 coordinator -> the replies, ReplicateChunk, DeleteChunks, VerifyChunks, ReportAgain;
                 coordinator -> ProveReplicas, datanode -> ReplicasProven;
                 coordinator -> BalanceDisks, datanode -> DiskBalance
    files        client -> CreateFile, PublishFile, OpenFile; client or gateway -> AllocateChunk, CompleteFile,
                 FlushFile, GetLayout, ReportCorrupt, RenewLease, KeepChunks, AbandonLease; gateway -> TakeLease;
                 coordinator -> FlushUploads, gateway -> UploadsFlushed
    grants       writer -> StateWriteSet, StreamEnded; coordinator -> Scheduled, Granted, GrantRefused;
                 coordinator -> AskStreams, datanode -> StreamsFound
    reads        client -> StateReads; coordinator -> ReadsScheduled
    names        client -> GetFileInfo, GetListing, Mkdirs, RenamePath, DeletePath, ...
    supervision  agent -> AgentBeat; coordinator -> AgentOrders
    coordinators standby -> CopyStore; leader -> StorePart

Every message may be answered by Failure, which carries the code of an error class. Import all messages from here,
not from the modules.
"""

from __future__ import annotations

from typing import Final

from .base import Done, Failure, Message, TracedMessage
from .chunks import (
    DescriptorShared,
    Hop,
    Packet,
    ReadChunk,
    Receipt,
    RequestDescriptor,
    WriteAck,
    WriteChunk,
)
from .coordinators import CopyStore, StorePart
from .datanodes import (
    BalanceDisks,
    DeleteChunks,
    DiskBalance,
    DiskReport,
    Heartbeat,
    HeartbeatAck,
    LatencySample,
    ProveReplicas,
    Register,
    Registered,
    Replica,
    ReplicaChallenge,
    ReplicaProof,
    ReplicasProven,
    ReplicateChunk,
    ReportAgain,
    ReportChunks,
    Trust,
    TrustedKey,
    Usage,
    VerifyChunks,
)
from .files import (
    AbandonLease,
    AllocateChunk,
    Allocated,
    ChunkLayout,
    Completed,
    CompleteFile,
    Created,
    CreateFile,
    Flushed,
    FlushFile,
    FlushUploads,
    GetLayout,
    KeepChunks,
    Layout,
    Leased,
    Opened,
    OpenFile,
    PublishFile,
    RenewLease,
    ReportCorrupt,
    TakeLease,
    UploadsFlushed,
    WrittenChunk,
)
from .grants import (
    AskStreams,
    Granted,
    GrantedChunk,
    GrantRefused,
    Scheduled,
    StateWriteSet,
    StreamEnded,
    StreamProgress,
    StreamsFound,
    StreamUnderWay,
)
from .handshake import PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST, Challenge, Hello, Proof, Target, Welcome
from .names import (
    AclEntries,
    ChangeAcl,
    ChangeOwner,
    ChangePermission,
    ChangeQuota,
    ChangeReplication,
    ChangeTimes,
    ConcatFiles,
    CopyPath,
    DeletePath,
    DropSnapshot,
    ExchangePaths,
    FileInfo,
    GetAclEntries,
    GetFileInfo,
    GetListing,
    GetQuotaSums,
    GetServerSettings,
    GetTreeSums,
    GetXAttrs,
    Listing,
    Mkdirs,
    NameCall,
    NameChange,
    NameChanged,
    NameStatus,
    OpenForAppend,
    QuotaSums,
    RecoverLease,
    RemoveXAttr,
    RenamePath,
    RenameTakenSnapshot,
    ReturnToSnapshot,
    ServerSettings,
    SetXAttr,
    SnapshotTaken,
    SwitchSnapshots,
    TakeSnapshot,
    TreeSums,
    TruncatePath,
    XAttrs,
)
from .reads import ReadsScheduled, StateReads
from .supervision import AgentBeat, AgentCommand, AgentOrders, RunLogTail, RunOrder, RunReport, WantedLog

# fmt: off
__all__ = [
    "ORDERS",
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSION_OLDEST",
    "AbandonLease",
    "AclEntries",
    "AgentBeat",
    "AgentCommand",
    "AgentOrders",
    "AllocateChunk",
    "Allocated",
    "AnyMessage",
    "AskStreams",
    "BalanceDisks",
    "Challenge",
    "ChangeAcl",
    "ChangeOwner",
    "ChangePermission",
    "ChangeQuota",
    "ChangeReplication",
    "ChangeTimes",
    "ChunkLayout",
    "CompleteFile",
    "Completed",
    "ConcatFiles",
    "CopyPath",
    "CopyStore",
    "CreateFile",
    "Created",
    "DeleteChunks",
    "DeletePath",
    "DescriptorShared",
    "DiskBalance",
    "DiskReport",
    "Done",
    "DropSnapshot",
    "ExchangePaths",
    "Failure",
    "FileInfo",
    "FlushFile",
    "FlushUploads",
    "Flushed",
    "GetAclEntries",
    "GetFileInfo",
    "GetLayout",
    "GetListing",
    "GetQuotaSums",
    "GetServerSettings",
    "GetTreeSums",
    "GetXAttrs",
    "GrantRefused",
    "Granted",
    "GrantedChunk",
    "Heartbeat",
    "HeartbeatAck",
    "Hello",
    "Hop",
    "KeepChunks",
    "LatencySample",
    "Layout",
    "Leased",
    "Listing",
    "Message",
    "Mkdirs",
    "NameCall",
    "NameChange",
    "NameChanged",
    "NameStatus",
    "OpenFile",
    "OpenForAppend",
    "Opened",
    "Packet",
    "Proof",
    "ProveReplicas",
    "PublishFile",
    "QuotaSums",
    "ReadChunk",
    "ReadsScheduled",
    "Receipt",
    "RecoverLease",
    "Register",
    "Registered",
    "RemoveXAttr",
    "RenamePath",
    "RenameTakenSnapshot",
    "RenewLease",
    "Replica",
    "ReplicaChallenge",
    "ReplicaProof",
    "ReplicasProven",
    "ReplicateChunk",
    "ReportAgain",
    "ReportChunks",
    "ReportCorrupt",
    "RequestDescriptor",
    "ReturnToSnapshot",
    "RunLogTail",
    "RunOrder",
    "RunReport",
    "Scheduled",
    "ServerSettings",
    "SetXAttr",
    "SnapshotTaken",
    "StateReads",
    "StateWriteSet",
    "StorePart",
    "StreamEnded",
    "StreamProgress",
    "StreamUnderWay",
    "StreamsFound",
    "SwitchSnapshots",
    "TakeLease",
    "TakeSnapshot",
    "Target",
    "TracedMessage",
    "TreeSums",
    "TruncatePath",
    "Trust",
    "TrustedKey",
    "UploadsFlushed",
    "Usage",
    "VerifyChunks",
    "WantedLog",
    "Welcome",
    "WriteAck",
    "WriteChunk",
    "WrittenChunk",
    "XAttrs",
]
# fmt: on

AnyMessage = (
    Hello
    | Challenge
    | Proof
    | Welcome
    | Failure
    | WriteChunk
    | Packet
    | WriteAck
    | ReadChunk
    | RequestDescriptor
    | DescriptorShared
    | Register
    | Registered
    | ReportChunks
    | Heartbeat
    | HeartbeatAck
    | CreateFile
    | Created
    | OpenFile
    | Opened
    | AllocateChunk
    | Allocated
    | CompleteFile
    | PublishFile
    | Completed
    | FlushFile
    | Flushed
    | FlushUploads
    | UploadsFlushed
    | TakeLease
    | Leased
    | RenewLease
    | KeepChunks
    | AbandonLease
    | GetLayout
    | Layout
    | ReportCorrupt
    | Done
    | CopyStore
    | StorePart
    | ReplicateChunk
    | DeleteChunks
    | VerifyChunks
    | ProveReplicas
    | ReplicasProven
    | BalanceDisks
    | DiskBalance
    | ReportAgain
    | StateWriteSet
    | Scheduled
    | Granted
    | GrantRefused
    | StreamEnded
    | AskStreams
    | StreamsFound
    | StateReads
    | ReadsScheduled
    | AgentBeat
    | AgentOrders
    | GetFileInfo
    | FileInfo
    | GetListing
    | Listing
    | GetTreeSums
    | GetQuotaSums
    | TreeSums
    | QuotaSums
    | GetXAttrs
    | XAttrs
    | GetAclEntries
    | AclEntries
    | GetServerSettings
    | ServerSettings
    | NameChanged
    | Mkdirs
    | RenamePath
    | ExchangePaths
    | DeletePath
    | CopyPath
    | ChangePermission
    | ChangeOwner
    | ChangeReplication
    | ChangeTimes
    | ChangeQuota
    | SetXAttr
    | RemoveXAttr
    | ChangeAcl
    | TruncatePath
    | ConcatFiles
    | OpenForAppend
    | RecoverLease
    | SwitchSnapshots
    | TakeSnapshot
    | SnapshotTaken
    | RenameTakenSnapshot
    | DropSnapshot
    | ReturnToSnapshot
)

#: A coordinator's orders and questions to a datanode. Each contains the epoch of the leader.
ORDERS: Final = (
    ReplicateChunk | DeleteChunks | VerifyChunks | ProveReplicas | BalanceDisks | FlushUploads | AskStreams
)
