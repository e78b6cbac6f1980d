import os
from pathlib import Path

from midstream.bench.written import WrittenBytes


def test_new_and_changed_files_count_and_old_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * 10)
    (tmp_path / "log").write_bytes(b"x" * 10)
    written = WrittenBytes(tmp_path)
    written.start()

    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "new").write_bytes(b"x" * 7)
    (tmp_path / "log").write_bytes(b"x" * 30)

    assert written.total() == 37


def test_a_file_that_was_seen_counts_after_it_is_gone(tmp_path: Path) -> None:
    written = WrittenBytes(tmp_path)
    written.start()
    (tmp_path / "delta").write_bytes(b"x" * 5)
    written.total()
    os.remove(tmp_path / "delta")
    (tmp_path / "snapshot").write_bytes(b"x" * 6)

    assert written.total() == 11
