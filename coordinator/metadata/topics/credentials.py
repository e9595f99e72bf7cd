"""Datanodes and callers: decisions about them, and their credentials."""

from __future__ import annotations

from abc import ABC, abstractmethod

from peacefs.coordinator.metadata.model import AdminDecision, Enrolment
from peacefs.coordinator.metadata.token_records import TokenRecord, TokenRecords
from peacefs.protocol.ids import NodeId


class CredentialReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def decisions(self) -> dict[NodeId, AdminDecision]:
        """About the datanodes that are not in service, over ones included."""

    @abstractmethod
    def enrolments(self) -> dict[NodeId, Enrolment]:
        """The credentials of datanodes, revoked ones included."""

    @abstractmethod
    def token_records(self) -> TokenRecords:
        """All keys, tokens and OAuth2 clients."""


class CredentialChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def decide(self, node: NodeId, decision: AdminDecision) -> None:
        """Replaces what was decided about a datanode."""

    @abstractmethod
    def enrol(self, node: NodeId, enrolment: Enrolment) -> None:
        """Records the credential of a datanode, unless it has one."""

    @abstractmethod
    def replace_enrolment(self, node: NodeId, enrolment: Enrolment) -> None:
        """Replaces the credential of a datanode that has one, or what is said of it."""

    @abstractmethod
    def forget_enrolment(self, node: NodeId) -> None:
        """The datanode has no credential any more."""

    @abstractmethod
    def record_token(self, record: TokenRecord) -> None:
        """Replaces what was recorded under its key."""

    @abstractmethod
    def forget_token(self, record: TokenRecord) -> None: ...
