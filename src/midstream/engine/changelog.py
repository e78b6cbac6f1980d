"""What is kept of changes in the checkpoint: each as it was submitted, and every transition it went through."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

from midstream.changes.change import Change
from midstream.coordinator.messages import Record
from midstream.coordinator.modification import Modification, Phase
from midstream.engine.code import SourceText, pack, source_texts, unpack
from midstream.engine.history import HistoryEntry
from midstream.errors import CheckpointError
from midstream.state.ledger import Ledger, now, numbered

CHANGES = "changes"
JOURNAL = "journal"
CODE = "code"
FORMAT = 1


@dataclass(frozen=True)
class Origin:
    """Who has handed a change in, under what id of their own, and the files of code that came with it."""

    by: str | None = None
    client_id: str | None = None
    files: tuple[SourceText, ...] = ()


NOBODY = Origin()


@dataclass(frozen=True)
class Submission:
    """A change as it was handed in. An undo has no change of its own: it names what it takes back."""

    change: Change | None
    undoes: int | None = None
    allow_state_loss: bool = False
    time_limit: float | None = None
    promotes: str | None = None
    """The shadow whose state it takes over. That lives with its driver, so no later one can carry it out."""
    origin: Origin = NOBODY

    @property
    def text(self) -> str:
        return str(self.change) if self.change is not None else f"undo {self.undoes}"


class ChangeLog:
    """Numbered files, created if absent: a driver that was taken over cannot add to them unseen."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._store = ledger.store
        self._next_record = max(numbered(self._store, JOURNAL), default=0) + 1
        self._known: dict[int, Submission] = {}

    def submit(self, submission: Submission) -> int:
        """Keep a change; its number. Raises when its functions cannot travel."""
        packed = pack(submission)
        sources = [asdict(text) for text in submission.origin.files or source_texts(submission)]
        number = max(numbered(self._store, CHANGES), default=0)
        created = False
        while not created:
            number += 1
            body = {
                "format": FORMAT,
                "id": number,
                "submitted_at": now(),
                "text": submission.text,
                "undoes": submission.undoes,
                "allow_state_loss": submission.allow_state_loss,
                "by": submission.origin.by,
                "client_id": submission.origin.client_id,
                "sources": sources,
                "pickle": base64.b64encode(packed).decode(),
            }
            created = self._store.create(_path(CHANGES, number), json.dumps(body, indent=1).encode())
        self._known[number] = submission
        return number

    def submission(self, id: int) -> Submission:
        if id not in self._known:
            self._known[id] = self._read(id, lambda body: unpack(base64.b64decode(body["pickle"])))
        return self._known[id]

    def entry(self, modification: Modification) -> HistoryEntry:
        """A modification in the words it was handed in with, and who has."""
        submission = self.submission(modification.id)
        return HistoryEntry(submission.text, modification, submission.origin.by, submission.origin.client_id)

    def sources(self, id: int) -> list[SourceText]:
        """The text of the functions of a change, as they were when it was submitted."""
        found: list[SourceText] = self._read(id, lambda body: [SourceText(**source) for source in body["sources"]])
        return found

    def handed_in(self, origin: Origin) -> int | None:
        """The number of the change a client has handed in under the same id of its own, if it has."""
        if origin.client_id is None:
            return None
        for number in sorted(numbered(self._store, CHANGES), reverse=True):
            if self.submission(number).origin.client_id == origin.client_id:
                return number
        return None

    def keep_code(self, file: SourceText, by: str | None, used_for: str) -> None:
        """Write down code that was sent to be run, before it is, whatever becomes of it."""
        at = now()
        body = {"format": FORMAT, "at": at, "by": by, "used_for": used_for, **asdict(file)}
        path = f"{CODE}/{at.replace(':', '').replace('+', 'Z')}-{file.sha256[:16]}.json"
        self._store.create(path, json.dumps(body, indent=1).encode())

    def append(self, record: Record) -> None:
        """Write a transition down. Raises when another driver has. One that may or may not have been written, because
        the store failed, can be written again."""
        path = _path(JOURNAL, self._next_record)
        data = json.dumps({"format": FORMAT, **asdict(record)}).encode()
        if not self._store.create(path, data) and self._store.read(path).to_pybytes() != data:
            holder = self._ledger.holder()
            raise CheckpointError.taken_over(self._ledger.driver, holder, record.epoch or 0)
        self._next_record += 1

    def records(self) -> list[Record]:
        """All transitions, oldest first."""
        return [self._record(number) for number in sorted(numbered(self._store, JOURNAL))]

    def _record(self, number: int) -> Record:
        def build(body: dict[str, Any]) -> Record:
            facts = {key: value for key, value in body.items() if key not in ("format", "phase")}
            return Record(phase=Phase(body["phase"]), **facts)

        return self._load(_path(JOURNAL, number), build)  # type: ignore[no-any-return]

    def _read(self, id: int, build: Any) -> Any:
        return self._load(_path(CHANGES, id), build)

    def _load(self, path: str, build: Any) -> Any:
        try:
            body = json.loads(self._store.read(path).to_pybytes())
            if body["format"] > FORMAT:
                raise CheckpointError.newer_format(path, body["format"], FORMAT)
            return build(body)
        except (ValueError, KeyError, TypeError, AttributeError, ImportError) as cause:
            raise CheckpointError.damaged_file(path, cause) from cause


def _path(folder: str, number: int) -> str:
    return f"{folder}/{number:06d}.json"
