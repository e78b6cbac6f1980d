from pathlib import Path

from midstream.bench.native import committed_offset


def test_the_committed_offset_is_that_of_the_last_committed_batch(tmp_path: Path) -> None:
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
    for batch in range(12):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{{"offset":{(batch + 1) * 100},"timestamp":0}}\n'
        (tmp_path / "offsets" / str(batch)).write_text(text)
    for batch in range(11):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}\n")
        (tmp_path / "commits" / f".{batch}.crc").write_text("")

    assert committed_offset(tmp_path) == 1100
