"""Methods of ClientNamenodeProtocol about access control lists and extended attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from peacefs.protocol import messages as m
from peacefs.protocol.hadoop import attributes_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import XAttrProto

from .method import Method, MethodCall
from .statuses import acl_spec, acl_status_proto

_FLAGS: Final = ((pb.XATTR_CREATE, "CREATE"), (pb.XATTR_REPLACE, "REPLACE"))


async def _change_acl(call: MethodCall, path: str, operation: str, spec: str = "") -> None:
    await call.name(m.ChangeAcl(path, call.user, request_id=call.request_id, operation=operation, spec=spec))


async def _modify_entries(
    call: MethodCall, asked: pb.ModifyAclEntriesRequestProto
) -> pb.ModifyAclEntriesResponseProto:
    await _change_acl(call, asked.src, "MODIFYACLENTRIES", acl_spec(asked.aclSpec))
    return pb.ModifyAclEntriesResponseProto()


async def _remove_entries(
    call: MethodCall, asked: pb.RemoveAclEntriesRequestProto
) -> pb.RemoveAclEntriesResponseProto:
    await _change_acl(call, asked.src, "REMOVEACLENTRIES", acl_spec(asked.aclSpec, with_permissions=False))
    return pb.RemoveAclEntriesResponseProto()


async def _remove_default(
    call: MethodCall, asked: pb.RemoveDefaultAclRequestProto
) -> pb.RemoveDefaultAclResponseProto:
    await _change_acl(call, asked.src, "REMOVEDEFAULTACL")
    return pb.RemoveDefaultAclResponseProto()


async def _remove_acl(call: MethodCall, asked: pb.RemoveAclRequestProto) -> pb.RemoveAclResponseProto:
    await _change_acl(call, asked.src, "REMOVEACL")
    return pb.RemoveAclResponseProto()


async def _set_acl(call: MethodCall, asked: pb.SetAclRequestProto) -> pb.SetAclResponseProto:
    await _change_acl(call, asked.src, "SETACL", acl_spec(asked.aclSpec))
    return pb.SetAclResponseProto()


async def _get_acl_status(call: MethodCall, asked: pb.GetAclStatusRequestProto) -> pb.GetAclStatusResponseProto:
    status = await call.name(m.GetAclEntries(asked.src, call.user))
    return pb.GetAclStatusResponseProto(result=acl_status_proto(status))


def _name(attribute: XAttrProto) -> str:
    return f"{XAttrProto.XAttrNamespaceProto.Name(attribute.namespace).lower()}.{attribute.name}"


def _attribute(name: str, value: bytes | None) -> XAttrProto:
    prefix, _, rest = name.partition(".")
    namespace = XAttrProto.XAttrNamespaceProto.Value(prefix.upper())
    # Omit an empty value, as HDFS does.
    return XAttrProto(namespace=namespace, name=rest, value=value or None)


def _attributes(found: Iterable[tuple[str, bytes]]) -> list[XAttrProto]:
    return [_attribute(name, value) for name, value in found]


async def _set_attribute(call: MethodCall, asked: pb.SetXAttrRequestProto) -> pb.SetXAttrResponseProto:
    flags = [name for bit, name in _FLAGS if asked.flag & bit]
    await call.name(
        m.SetXAttr(
            asked.src,
            call.user,
            request_id=call.request_id,
            name=_name(asked.xAttr),
            value=asked.xAttr.value,
            flags=flags,
        )
    )
    return pb.SetXAttrResponseProto()


async def _get_attributes(call: MethodCall, asked: pb.GetXAttrsRequestProto) -> pb.GetXAttrsResponseProto:
    names = [_name(each) for each in asked.xAttrs]
    found = await call.files.attributes.values(asked.src, call.user, names)
    return pb.GetXAttrsResponseProto(xAttrs=_attributes(found.items()))


async def _list_attributes(call: MethodCall, asked: pb.ListXAttrsRequestProto) -> pb.ListXAttrsResponseProto:
    found = await call.name(m.GetXAttrs(asked.src, call.user))
    return pb.ListXAttrsResponseProto(xAttrs=[_attribute(name, None) for name in found])


async def _remove_attribute(call: MethodCall, asked: pb.RemoveXAttrRequestProto) -> pb.RemoveXAttrResponseProto:
    await call.name(m.RemoveXAttr(asked.src, call.user, request_id=call.request_id, name=_name(asked.xAttr)))
    return pb.RemoveXAttrResponseProto()


ATTRIBUTE_METHODS: Final[Mapping[str, Method]] = {
    "modifyAclEntries": Method(pb.ModifyAclEntriesRequestProto, _modify_entries),
    "removeAclEntries": Method(pb.RemoveAclEntriesRequestProto, _remove_entries),
    "removeDefaultAcl": Method(pb.RemoveDefaultAclRequestProto, _remove_default),
    "removeAcl": Method(pb.RemoveAclRequestProto, _remove_acl),
    "setAcl": Method(pb.SetAclRequestProto, _set_acl),
    "getAclStatus": Method(pb.GetAclStatusRequestProto, _get_acl_status, is_read=True),
    "setXAttr": Method(pb.SetXAttrRequestProto, _set_attribute),
    "getXAttrs": Method(pb.GetXAttrsRequestProto, _get_attributes, is_read=True),
    "listXAttrs": Method(pb.ListXAttrsRequestProto, _list_attributes, is_read=True),
    "removeXAttr": Method(pb.RemoveXAttrRequestProto, _remove_attribute),
}
