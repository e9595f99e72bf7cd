"""Judge the state that a start needs: operators, their schemas, and one version of each store per partition."""

from __future__ import annotations

from peacefs.protocol.errors import CheckpointDamaged
from peacefs.spark_connector.limits import checkpoint_partitions_max

from .findings import CheckpointFinding, Fault, Note, damage
from .formats.logs import BatchCommit, Offsets
from .formats.operators import StatefulOperator, StoreInfo, location_of
from .inspection import Inspection
from .layout import COMMITS, FIRST_FORM, STATE, StateVersion, StoreFiles, StoreKey
from .needs import Needs
from .state_chain import ChainFinder
from .tree import TreeEntry

_NO_STATE = "there is none: good for a query without state; of one with state it cannot be told that all is lost"
_NOT_DESCRIBED = (
    "a Spark before 4.0 wrote it, which keeps no metadata of operators: its stores and partitions were taken from "
    "what there is and from the offsets"
)
_FORK = "`peacefs checkpoint fork` makes a copy that names its own"
_ON_DEFAULT = f"Spark looks on its default one, and compares no schema if there is none there; {_FORK}"
_ANOTHER_NAME = "the operator's metadata names it in {named}: another name of {here}, or another file system"
#: Operators that bring all rows into one partition, by their names in the metadata.
_OF_ONE_PARTITION = ("globalLimit",)


class StateNeeds:
    """Judge the state of one checkpoint's operators, for `BatchVerifier`.

    Each version of state is judged as Spark would load it: through the chain that `ChainFinder` returns.
    """

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self.layout = inspection.layout

    def after(self, batch: int, commit: BatchCommit) -> Needs:
        """Check the state after `batch`. `commit` names its unique ids, if it has any."""
        needs = Needs()
        if not self.layout.operators and not self.layout.stores and commit.state_unique_ids is None:
            needs.notes.append(Note(STATE, _NO_STATE))
        if commit.version > 1 and not commit.state_unique_ids and (self.layout.operators or self.layout.stores):
            reason = "it is of format 2 and names no unique ids of the state that there is"
            needs.findings.append(CheckpointFinding(f"{COMMITS}/{batch}", Fault.INCONSISTENT, reason))
            return needs
        for operator in self._operators(commit):
            needs.add(self._operator(operator, batch, commit))
        return needs

    def _operators(self, commit: BatchCommit) -> list[int]:
        """Return the operators with files, those that the commit names, and the first gap in their numbers."""
        known = {*self.layout.operators, *(commit.state_unique_ids or ())}
        skipped = next((number for number in range(len(known)) if number not in known), None)
        return sorted(known if skipped is None else {*known, skipped})

    def _operator(self, number: int, batch: int, commit: BatchCommit) -> Needs:
        needs = Needs()
        operator = self._described(number, batch, needs)
        if operator is not None:
            self._schemas(number, operator, needs)
        else:
            self._schemas_there(number, needs)
        for key in self._stores(number, operator, batch):
            ids = self._unique_ids(commit, key)
            needs.add(self._state(key, batch + 1, ids))
        return needs

    def _described(self, number: int, batch: int, needs: Needs) -> StatefulOperator | None:
        files = self.layout.operators.get(number)
        of_batch = max((made for made in files.metadata if made <= batch), default=None) if files else None
        directory = f"{STATE}/{number}/_metadata"
        if of_batch is None and files is not None and self._describes_none(batch):
            needs.notes.append(Note(f"{STATE}/{number}", _NOT_DESCRIBED))
            return None
        if files is None or of_batch is None:
            reason = "it says which stores and partitions the operator has"
            needs.findings.append(CheckpointFinding(f"{directory}/metadata", Fault.MISSING, reason, files is None))
            return None
        entry = files.metadata[of_batch]
        needs.files.append(entry)
        try:
            return self._inspection.operator(entry)
        except CheckpointDamaged as error:
            # Metadata of version 1 is needed by readers of state only, not by a restart.
            needs.findings.append(damage(self.layout.relative(entry), error, stops=of_batch != FIRST_FORM))
            return None

    def _describes_none(self, batch: int) -> bool:
        """Return whether the Spark that planned the batch knew no operator metadata."""
        offsets = self._readable_offsets(batch)
        return offsets is not None and offsets.before_operator_metadata

    def _readable_offsets(self, batch: int) -> Offsets | None:
        entry = self.layout.offsets.get(batch)
        try:
            return self._inspection.offsets(entry) if entry is not None else None
        except CheckpointDamaged:
            return None

    def _schemas(self, number: int, operator: StatefulOperator, needs: Needs) -> None:
        for store in operator.state_store_info:
            for uri in store.state_schema_file_paths:
                self._named_schema(number, store, uri, needs)
            if not store.state_schema_file_paths:
                key = StoreKey(number, 0, store.store_name)
                entry = self.layout.stores.get(key, StoreFiles()).schema
                # Spark rewrites such schemas, and then no longer notices a query that does not fit.
                self._schema(f"{key.directory}/_metadata/schema", entry, needs, stops=False)

    def _named_schema(self, number: int, store: StoreInfo, uri: str, needs: Needs) -> None:
        """Check a schema that operator metadata names by a URI. Spark opens exactly that URI."""
        named, tree = location_of(uri), self._inspection.tree
        here = location_of(tree.uri("/"))
        path = f"{STATE}/{number}/_stateSchema/{store.store_name}/{named.path.rpartition('/')[2]}"
        if named.file_system and named.kind == here.kind and named.path == f"{self.layout.named}/{path}":
            if named.authority != here.authority:
                note = _ANOTHER_NAME.format(named=named.file_system, here=here.file_system)
                needs.notes.append(Note(path, note))
            self._schema(path, self.layout.by_path.get(path), needs, stops=True)
            return
        stops = False
        if not named.file_system:
            where = f"without its file system: {_ON_DEFAULT}"
        elif named.kind == here.kind and self._inspection.exists(named.path):
            where = f"which is another checkpoint's, and is read there; {_FORK}"
        else:
            elsewhere = "which is not there" if named.kind == here.kind else "in another file system"
            where, stops = f"{elsewhere}; {_FORK}", True
        reason = f"the operator's metadata names {uri}, {where}"
        needs.findings.append(CheckpointFinding(path, Fault.INCONSISTENT, reason, stops))
        if (entry := self.layout.by_path.get(path)) is not None:
            self._check_schema(entry, needs)

    def _schema(self, path: str, entry: TreeEntry | None, needs: Needs, *, stops: bool) -> None:
        if entry is None:
            reason = "it holds the schema of the state"
            needs.findings.append(CheckpointFinding(path, Fault.MISSING, reason, stops))
        else:
            self._check_schema(entry, needs)

    def _schemas_there(self, number: int, needs: Needs) -> None:
        """Check existing schemas of an operator without metadata. Spark reads them."""
        for key, files in self.layout.stores.items():
            if key.operator == number and key.partition == 0 and files.schema is not None:
                self._check_schema(files.schema, needs)

    def _check_schema(self, entry: TreeEntry, needs: Needs) -> None:
        needs.files.append(entry)
        try:
            self._inspection.schema(entry)
        except CheckpointDamaged as error:
            needs.findings.append(damage(self.layout.relative(entry), error))

    def _stores(self, number: int, operator: StatefulOperator | None, batch: int) -> list[StoreKey]:
        """Return the operator's stores in every partition.

        Without readable metadata, returns the existing stores, in as many partitions as the batch was shuffled
        into. An operator with state in partition 0 only may have no other partition.
        """
        there = [key for key in self.layout.stores if key.operator == number]
        if operator is None:
            offsets = self._readable_offsets(batch)
            shuffled = (offsets.shuffle_partitions if offsets is not None else None) or 0
            if not 0 < shuffled <= checkpoint_partitions_max or {key.partition for key in there} <= {0}:
                return there
            expected = {StoreKey(number, part, key.store) for key in there for part in range(shuffled)}
            return sorted({*there, *expected})
        return [
            StoreKey(number, partition, store.store_name)
            for store in operator.state_store_info
            for partition in range(self._partitions(number, operator, store, batch))
        ]

    def _partitions(self, number: int, operator: StatefulOperator, store: StoreInfo, batch: int) -> int:
        """Return how many partitions of a store a batch has written.

        Metadata of version 1 is written once, with the query's first number of partitions. A repartition changes
        the number only in the offsets. Nor does this metadata say whether all rows are in one partition.
        """
        if FIRST_FORM not in self.layout.operators[number].metadata:
            return store.num_partitions
        if operator.operator_info.operator_name in _OF_ONE_PARTITION or self._is_keyless(number, store):
            return 1
        offsets = self._readable_offsets(batch)
        shuffled = (offsets.shuffle_partitions if offsets is not None else None) or 0
        return shuffled if 0 < shuffled <= checkpoint_partitions_max else store.num_partitions

    def _is_keyless(self, number: int, store: StoreInfo) -> bool:
        """Return whether the state has no key, as in an aggregation of all rows."""
        entry = self.layout.stores.get(StoreKey(number, 0, store.store_name), StoreFiles()).schema
        try:
            return entry is not None and self._inspection.schema(entry).keyless
        except CheckpointDamaged:
            return False

    @staticmethod
    def _unique_ids(commit: BatchCommit, key: StoreKey) -> list[str] | None:
        """Return the unique ids of the operator's stores in this partition; None in format 1."""
        of_operator = (commit.state_unique_ids or {}).get(key.operator)
        if not of_operator:
            return None
        return of_operator[key.partition] if key.partition < len(of_operator) else []

    def _state(self, key: StoreKey, number: int, ids: list[str] | None) -> Needs:
        files = self.layout.stores.get(key)
        if files is None:
            reason = f"there is no state of partition {key.partition}"
            return Needs(findings=[CheckpointFinding(key.directory, Fault.MISSING, reason)])
        version = StateVersion(number, None)
        if ids is not None:
            candidates = [StateVersion(number, uid) for uid in ids]
            present = [found for found in candidates if found in files.changes or found in files.snapshots]
            if not present:
                reason = f"{COMMITS}/{number - 1} names unique ids of which none is that of a file here"
                return Needs(findings=[CheckpointFinding(f"{key.directory}/{number}_*", Fault.MISSING, reason)])
            version = present[0]
        offsets = self._readable_offsets(number - 1)
        falls_back = offsets is None or offsets.falls_back
        chain = ChainFinder(self._inspection, key, files, falls_back=falls_back).find(version)
        return Needs(chain.files, chain.findings, chain.notes, chain.partial)
