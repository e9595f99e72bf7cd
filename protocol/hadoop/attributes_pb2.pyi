from peacefs.protocol.hadoop import hdfs_pb2 as _hdfs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class XAttrSetFlagProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    XATTR_CREATE: _ClassVar[XAttrSetFlagProto]
    XATTR_REPLACE: _ClassVar[XAttrSetFlagProto]
XATTR_CREATE: XAttrSetFlagProto
XATTR_REPLACE: XAttrSetFlagProto

class GetSnapshottableDirListingRequestProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSnapshottableDirListingResponseProto(_message.Message):
    __slots__ = ("snapshottableDirList",)
    SNAPSHOTTABLEDIRLIST_FIELD_NUMBER: _ClassVar[int]
    snapshottableDirList: _hdfs_pb2.SnapshottableDirectoryListingProto
    def __init__(self, snapshottableDirList: _Optional[_Union[_hdfs_pb2.SnapshottableDirectoryListingProto, _Mapping]] = ...) -> None: ...

class GetSnapshotListingRequestProto(_message.Message):
    __slots__ = ("snapshotRoot",)
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    def __init__(self, snapshotRoot: _Optional[str] = ...) -> None: ...

class GetSnapshotListingResponseProto(_message.Message):
    __slots__ = ("snapshotList",)
    SNAPSHOTLIST_FIELD_NUMBER: _ClassVar[int]
    snapshotList: _hdfs_pb2.SnapshotListingProto
    def __init__(self, snapshotList: _Optional[_Union[_hdfs_pb2.SnapshotListingProto, _Mapping]] = ...) -> None: ...

class GetSnapshotDiffReportRequestProto(_message.Message):
    __slots__ = ("snapshotRoot", "fromSnapshot", "toSnapshot")
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    FROMSNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TOSNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    fromSnapshot: str
    toSnapshot: str
    def __init__(self, snapshotRoot: _Optional[str] = ..., fromSnapshot: _Optional[str] = ..., toSnapshot: _Optional[str] = ...) -> None: ...

class GetSnapshotDiffReportResponseProto(_message.Message):
    __slots__ = ("diffReport",)
    DIFFREPORT_FIELD_NUMBER: _ClassVar[int]
    diffReport: _hdfs_pb2.SnapshotDiffReportProto
    def __init__(self, diffReport: _Optional[_Union[_hdfs_pb2.SnapshotDiffReportProto, _Mapping]] = ...) -> None: ...

class GetSnapshotDiffReportListingRequestProto(_message.Message):
    __slots__ = ("snapshotRoot", "fromSnapshot", "toSnapshot", "cursor")
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    FROMSNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TOSNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    fromSnapshot: str
    toSnapshot: str
    cursor: _hdfs_pb2.SnapshotDiffReportCursorProto
    def __init__(self, snapshotRoot: _Optional[str] = ..., fromSnapshot: _Optional[str] = ..., toSnapshot: _Optional[str] = ..., cursor: _Optional[_Union[_hdfs_pb2.SnapshotDiffReportCursorProto, _Mapping]] = ...) -> None: ...

class GetSnapshotDiffReportListingResponseProto(_message.Message):
    __slots__ = ("diffReport",)
    DIFFREPORT_FIELD_NUMBER: _ClassVar[int]
    diffReport: _hdfs_pb2.SnapshotDiffReportListingProto
    def __init__(self, diffReport: _Optional[_Union[_hdfs_pb2.SnapshotDiffReportListingProto, _Mapping]] = ...) -> None: ...

class CreateSnapshotRequestProto(_message.Message):
    __slots__ = ("snapshotRoot", "snapshotName")
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTNAME_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    snapshotName: str
    def __init__(self, snapshotRoot: _Optional[str] = ..., snapshotName: _Optional[str] = ...) -> None: ...

class CreateSnapshotResponseProto(_message.Message):
    __slots__ = ("snapshotPath",)
    SNAPSHOTPATH_FIELD_NUMBER: _ClassVar[int]
    snapshotPath: str
    def __init__(self, snapshotPath: _Optional[str] = ...) -> None: ...

class RenameSnapshotRequestProto(_message.Message):
    __slots__ = ("snapshotRoot", "snapshotOldName", "snapshotNewName")
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTOLDNAME_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTNEWNAME_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    snapshotOldName: str
    snapshotNewName: str
    def __init__(self, snapshotRoot: _Optional[str] = ..., snapshotOldName: _Optional[str] = ..., snapshotNewName: _Optional[str] = ...) -> None: ...

class RenameSnapshotResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AllowSnapshotRequestProto(_message.Message):
    __slots__ = ("snapshotRoot",)
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    def __init__(self, snapshotRoot: _Optional[str] = ...) -> None: ...

class AllowSnapshotResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DisallowSnapshotRequestProto(_message.Message):
    __slots__ = ("snapshotRoot",)
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    def __init__(self, snapshotRoot: _Optional[str] = ...) -> None: ...

class DisallowSnapshotResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteSnapshotRequestProto(_message.Message):
    __slots__ = ("snapshotRoot", "snapshotName")
    SNAPSHOTROOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTNAME_FIELD_NUMBER: _ClassVar[int]
    snapshotRoot: str
    snapshotName: str
    def __init__(self, snapshotRoot: _Optional[str] = ..., snapshotName: _Optional[str] = ...) -> None: ...

class DeleteSnapshotResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDelegationTokenRequestProto(_message.Message):
    __slots__ = ("renewer",)
    RENEWER_FIELD_NUMBER: _ClassVar[int]
    renewer: str
    def __init__(self, renewer: _Optional[str] = ...) -> None: ...

class GetDelegationTokenResponseProto(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: _hdfs_pb2.TokenProto
    def __init__(self, token: _Optional[_Union[_hdfs_pb2.TokenProto, _Mapping]] = ...) -> None: ...

class RenewDelegationTokenRequestProto(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: _hdfs_pb2.TokenProto
    def __init__(self, token: _Optional[_Union[_hdfs_pb2.TokenProto, _Mapping]] = ...) -> None: ...

class RenewDelegationTokenResponseProto(_message.Message):
    __slots__ = ("newExpiryTime",)
    NEWEXPIRYTIME_FIELD_NUMBER: _ClassVar[int]
    newExpiryTime: int
    def __init__(self, newExpiryTime: _Optional[int] = ...) -> None: ...

class CancelDelegationTokenRequestProto(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: _hdfs_pb2.TokenProto
    def __init__(self, token: _Optional[_Union[_hdfs_pb2.TokenProto, _Mapping]] = ...) -> None: ...

class CancelDelegationTokenResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModifyAclEntriesRequestProto(_message.Message):
    __slots__ = ("src", "aclSpec")
    SRC_FIELD_NUMBER: _ClassVar[int]
    ACLSPEC_FIELD_NUMBER: _ClassVar[int]
    src: str
    aclSpec: _containers.RepeatedCompositeFieldContainer[_hdfs_pb2.AclEntryProto]
    def __init__(self, src: _Optional[str] = ..., aclSpec: _Optional[_Iterable[_Union[_hdfs_pb2.AclEntryProto, _Mapping]]] = ...) -> None: ...

class ModifyAclEntriesResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveAclRequestProto(_message.Message):
    __slots__ = ("src",)
    SRC_FIELD_NUMBER: _ClassVar[int]
    src: str
    def __init__(self, src: _Optional[str] = ...) -> None: ...

class RemoveAclResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveAclEntriesRequestProto(_message.Message):
    __slots__ = ("src", "aclSpec")
    SRC_FIELD_NUMBER: _ClassVar[int]
    ACLSPEC_FIELD_NUMBER: _ClassVar[int]
    src: str
    aclSpec: _containers.RepeatedCompositeFieldContainer[_hdfs_pb2.AclEntryProto]
    def __init__(self, src: _Optional[str] = ..., aclSpec: _Optional[_Iterable[_Union[_hdfs_pb2.AclEntryProto, _Mapping]]] = ...) -> None: ...

class RemoveAclEntriesResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveDefaultAclRequestProto(_message.Message):
    __slots__ = ("src",)
    SRC_FIELD_NUMBER: _ClassVar[int]
    src: str
    def __init__(self, src: _Optional[str] = ...) -> None: ...

class RemoveDefaultAclResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetAclRequestProto(_message.Message):
    __slots__ = ("src", "aclSpec")
    SRC_FIELD_NUMBER: _ClassVar[int]
    ACLSPEC_FIELD_NUMBER: _ClassVar[int]
    src: str
    aclSpec: _containers.RepeatedCompositeFieldContainer[_hdfs_pb2.AclEntryProto]
    def __init__(self, src: _Optional[str] = ..., aclSpec: _Optional[_Iterable[_Union[_hdfs_pb2.AclEntryProto, _Mapping]]] = ...) -> None: ...

class SetAclResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetAclStatusRequestProto(_message.Message):
    __slots__ = ("src",)
    SRC_FIELD_NUMBER: _ClassVar[int]
    src: str
    def __init__(self, src: _Optional[str] = ...) -> None: ...

class GetAclStatusResponseProto(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _hdfs_pb2.AclStatusProto
    def __init__(self, result: _Optional[_Union[_hdfs_pb2.AclStatusProto, _Mapping]] = ...) -> None: ...

class SetXAttrRequestProto(_message.Message):
    __slots__ = ("src", "xAttr", "flag")
    SRC_FIELD_NUMBER: _ClassVar[int]
    XATTR_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    src: str
    xAttr: _hdfs_pb2.XAttrProto
    flag: int
    def __init__(self, src: _Optional[str] = ..., xAttr: _Optional[_Union[_hdfs_pb2.XAttrProto, _Mapping]] = ..., flag: _Optional[int] = ...) -> None: ...

class SetXAttrResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetXAttrsRequestProto(_message.Message):
    __slots__ = ("src", "xAttrs")
    SRC_FIELD_NUMBER: _ClassVar[int]
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    src: str
    xAttrs: _containers.RepeatedCompositeFieldContainer[_hdfs_pb2.XAttrProto]
    def __init__(self, src: _Optional[str] = ..., xAttrs: _Optional[_Iterable[_Union[_hdfs_pb2.XAttrProto, _Mapping]]] = ...) -> None: ...

class GetXAttrsResponseProto(_message.Message):
    __slots__ = ("xAttrs",)
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    xAttrs: _containers.RepeatedCompositeFieldContainer[_hdfs_pb2.XAttrProto]
    def __init__(self, xAttrs: _Optional[_Iterable[_Union[_hdfs_pb2.XAttrProto, _Mapping]]] = ...) -> None: ...

class ListXAttrsRequestProto(_message.Message):
    __slots__ = ("src",)
    SRC_FIELD_NUMBER: _ClassVar[int]
    src: str
    def __init__(self, src: _Optional[str] = ...) -> None: ...

class ListXAttrsResponseProto(_message.Message):
    __slots__ = ("xAttrs",)
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    xAttrs: _containers.RepeatedCompositeFieldContainer[_hdfs_pb2.XAttrProto]
    def __init__(self, xAttrs: _Optional[_Iterable[_Union[_hdfs_pb2.XAttrProto, _Mapping]]] = ...) -> None: ...

class RemoveXAttrRequestProto(_message.Message):
    __slots__ = ("src", "xAttr")
    SRC_FIELD_NUMBER: _ClassVar[int]
    XATTR_FIELD_NUMBER: _ClassVar[int]
    src: str
    xAttr: _hdfs_pb2.XAttrProto
    def __init__(self, src: _Optional[str] = ..., xAttr: _Optional[_Union[_hdfs_pb2.XAttrProto, _Mapping]] = ...) -> None: ...

class RemoveXAttrResponseProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
