"""Clients of HDFS at a coordinator that asks for tokens: who has no delegation token gets nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest
from support.hadoop_rpc import GREETING, SASL_GREETING, HadoopRpc, RemoteError, address_of, context

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.hadoop import attributes_pb2
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import TokenProto

pytestmark = pytest.mark.cluster
KIND = "HDFS_DELEGATION_TOKEN"


class Fetched:
    """A delegation token, taken apart as Hadoop writes it: four fields of at most 127 bytes."""

    def __init__(self, url_string: str) -> None:
        raw = base64.urlsafe_b64decode(url_string + "=" * (-len(url_string) % 4))
        fields = []
        while raw:
            fields.append(raw[1 : 1 + raw[0]])
            raw = raw[1 + raw[0] :]
        self.identifier, self.password, kind, service = fields
        self.kind, self.service = kind.decode(), service.decode()

    @property
    def proto(self) -> TokenProto:
        return TokenProto(identifier=self.identifier, password=self.password, kind=self.kind, service=self.service)


@pytest.fixture
def http(cluster: LocalCluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=cluster.http_address, trust_env=False) as client:
        yield client


@pytest.fixture
def token(http: httpx.Client, administration: TokenAdministration) -> Fetched:
    bearer = administration.create("alice", 3600).token
    answer = http.get(
        "/webhdfs/v1/",
        params={"op": "GETDELEGATIONTOKEN", "renewer": "alice", "kind": KIND, "service": "10.0.0.7:8020"},
        headers={"authorization": f"Bearer {bearer}"},
    )
    return Fetched(answer.json()["Token"]["urlString"])


def owner(rpc: HadoopRpc, path: str) -> str:
    asked = pb.GetFileInfoRequestProto(src=path)
    return str(rpc.call("getFileInfo", asked, pb.GetFileInfoResponseProto).fs.owner)


def test_client_that_proves_its_token_is_its_owner_until_the_token_is_cancelled(
    cluster: LocalCluster, token: Fetched
) -> None:
    assert (token.kind, token.service) == (KIND, "10.0.0.7:8020")
    address = address_of(cluster.hdfs_uri)
    with HadoopRpc(*address, "", token=(token.identifier, token.password)) as rpc:
        assert owner(rpc, "/")
        taken = pb.SetOwnerRequestProto(src="/", username="alice")
        with pytest.raises(RemoteError, match=r"Permission denied. user=alice"):
            rpc.call("setOwner", taken, pb.SetOwnerResponseProto)
        more = attributes_pb2.GetDelegationTokenRequestProto(renewer="alice")
        with pytest.raises(RemoteError, match="can be issued only with a bearer token"):
            rpc.call("getDelegationToken", more, attributes_pb2.GetDelegationTokenResponseProto)
        renew = attributes_pb2.RenewDelegationTokenRequestProto(token=token.proto)
        renewed = rpc.call("renewDelegationToken", renew, attributes_pb2.RenewDelegationTokenResponseProto)
        assert renewed.newExpiryTime > 0
        end = attributes_pb2.CancelDelegationTokenRequestProto(token=token.proto)
        rpc.call("cancelDelegationToken", end, attributes_pb2.CancelDelegationTokenResponseProto)
        with pytest.raises(RemoteError, match="was cancelled") as refused:
            owner(rpc, "/")
    assert refused.value.class_name == "org.apache.hadoop.security.AccessControlException"
    with pytest.raises(RemoteError, match="was cancelled"):
        HadoopRpc(*address, "", token=(token.identifier, token.password))


def test_stranger_over_hdfs_gets_nothing(cluster: LocalCluster, token: Fetched) -> None:
    address = address_of(cluster.hdfs_uri)
    with HadoopRpc(*address, "alice") as rpc, pytest.raises(RemoteError, match="SIMPLE authentication is not"):
        owner(rpc, "/")
    for identifier, password in ((token.identifier, bytes(32)), (token.identifier[:-1] + b"\x01", token.password)):
        with pytest.raises(RemoteError):
            HadoopRpc(*address, "", token=(identifier, password))
    claims = HadoopRpc(*address, "root", token=(token.identifier, token.password))
    with claims, pytest.raises(RemoteError, match="doesn't match what the client claims to be"):
        owner(claims, "/")
    with HadoopRpc(*address, "", token=(token.identifier, token.password)) as rpc:
        assert owner(rpc, "/")


def test_context_before_the_proof_is_no_way_around_it(cluster: LocalCluster) -> None:
    for greeting in (GREETING, SASL_GREETING):
        with HadoopRpc.bare(*address_of(cluster.hdfs_uri)) as rpc:
            rpc.send(greeting + context("root"))
            with pytest.raises(RemoteError, match=r"not been authenticated|not enabled"):
                owner(rpc, "/")
