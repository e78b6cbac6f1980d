"""Collecting files nobody needs: segments and staged files that no retained manifest names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, manifest_path
from midstream.state.store import ObjectInfo
from midstream.state.warmup import WARMUPS

_NAME = re.compile(r"(?P<epoch>\d{12})-(?P<job>g(?P<generation>\d+)-[0-9a-f]+)?.*")
"""Files begin with the epoch they were written in; those of a compaction go on with the id of its job."""

_ABANDONED_SECONDS = 3600.0
"""The age at which a half-written file, a report nobody has taken, or what a process told while it copied, counts as
left behind."""

_OTHERS_SECONDS = 3600.0
"""The age at which merged files of an earlier driver that no manifest names are orphans. Before, that driver may be
about to commit them: it has not learnt yet that another one has started."""

DRY_RUNS, SHADOWS, REPORTS = "dry-runs", "shadows", "reports"
ASIDE = (DRY_RUNS, SHADOWS, WARMUPS)
"""What is tried beside the stream writes here, and takes it away itself unless its driver dies."""

_SWEEP_EVERY = 100
"""Epochs between listings of the whole store for orphans. Superseded files are known without a listing."""


@dataclass
class Collector:
    """Keeps the files of the last `retain` epochs. Runs beside the stream, in one thread."""

    ledger: Ledger
    retain: int
    pinned: Callable[[], set[str]] = set
    """Files that no manifest names and that must stay nevertheless."""
    in_flight: Callable[[], Iterable[str]] = frozenset
    """Ids of merges whose files no manifest names yet."""
    _needed: dict[int, set[str]] = field(default_factory=dict)

    def recover(self) -> None:
        """At a start: learn what retained manifests need, and sweep what a crash left behind."""
        self.ledger.store.sweep(_ABANDONED_SECONDS)
        for folder in ASIDE:
            self.ledger.store.delete([item.path for item in self.ledger.store.list(folder)])
        for epoch in self.ledger.epochs():
            self._needed[epoch] = self.ledger.read(epoch).paths
        if self._needed:
            self._sweep(max(self._needed))

    def committed(self, manifest: Manifest) -> int:
        """After a commit: drop epochs past retention and what only they needed. Gives the number of files removed."""
        self._needed[manifest.epoch] = manifest.paths
        expired = [epoch for epoch in self._needed if epoch <= manifest.epoch - self.retain]
        removed = self._clear_staging(manifest.epoch)
        if expired:
            freed: set[str] = set().union(*(self._needed.pop(epoch) for epoch in expired))
            for needed in (*self._needed.values(), self.pinned()):
                freed -= needed
            # Manifests go first: a manifest never names a file that is not there.
            self.ledger.store.delete([manifest_path(epoch) for epoch in expired])
            self.ledger.store.delete(sorted(freed))
            removed += len(freed) + len(expired)
        if manifest.epoch % _SWEEP_EVERY == 0:
            removed += self._sweep(manifest.epoch)
        return removed

    def _clear_staging(self, epoch: int) -> int:
        """Remove files staged in the checkpoint before the last epoch: its own may be asked for again after a crash."""
        paths = [item.path for item in self.ledger.store.list("staging") if _staged_epoch(item.path) < epoch]
        self.ledger.store.delete(paths)
        return len(paths)

    def _sweep(self, last: int) -> int:
        """Remove orphans: files of committed epochs no manifest names. Those of later epochs may be being written.

        The stream goes on meanwhile, perhaps epochs ahead of this. So it is asked in this order: which files there are;
        which merges are under way; what the manifests name by now. A merge is under way until the manifest that names
        its files is there, so that its files are found by one of the last two.
        """
        found = list(self.ledger.store.list("segments"))
        jobs = set(self.in_flight())
        named = dict(self._needed)
        for epoch in self.ledger.epochs():
            if epoch not in named:
                named[epoch] = self.ledger.read(epoch).paths
        needed = self.pinned().union(*named.values())
        orphans = [item.path for item in found if item.path not in needed and self._is_over(item, last, jobs)]
        told = (item for folder in (REPORTS, WARMUPS) for item in self.ledger.store.list(folder))
        orphans += [item.path for item in told if _age(item) > _ABANDONED_SECONDS]
        self.ledger.store.delete(orphans)
        return len(orphans)

    def _is_over(self, item: ObjectInfo, last: int, jobs: set[str]) -> bool:
        """Whether nobody can still be about to commit a file."""
        name = _NAME.fullmatch(item.path.rpartition("/")[2])
        if name is None or int(name["epoch"]) > last:
            return False
        if name["job"] is None:
            return True
        if name["job"] in jobs:
            return False
        if int(name["generation"]) == self.ledger.driver.generation:
            return True
        return _age(item) > _OTHERS_SECONDS


def _age(item: ObjectInfo) -> float:
    return (datetime.now(UTC) - item.modified).total_seconds()


def _staged_epoch(path: str) -> int:
    """Staged files lie in `staging/<sink>/<epoch>/`."""
    return int(path.split("/")[2])
