"""The store that misbehaves does so when told, and its log tells what it has sent: other tests rest on both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from midstream.errors import StoreError
from midstream.state.store import Store, open_store
from tests.cluster.faultystore import NO_FAULTS, Faults, FaultyStore, faulty_store
from tests.cluster.storelink import store_link
from tests.servers import S3Server

DATA = bytes(range(256)) * 2000


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyStore]:
    with faulty_store(s3_server.endpoint, seed=1) as proxy:
        proxy.open("one")
        proxy.open("other")
        yield proxy


@pytest.fixture
def one(proxy: FaultyStore, s3_server: S3Server) -> Store:
    return behind(proxy, "one", s3_server)


def behind(proxy: FaultyStore, client: str, server: S3Server, max_retries: str = "0") -> Store:
    patience = {"timeout": "500ms", "connect_timeout": "500ms", "max_retries": max_retries}
    options = {**server.options, "endpoint": proxy.doors[client].endpoint, **patience}
    return open_store(server.url(f"faulty-{uuid4().hex}"), options)


def test_it_is_a_store_like_any_other_and_tells_what_it_has_sent(proxy: FaultyStore, one: Store) -> None:
    began = time.time()
    one.put("segments/a", DATA)
    assert one.create("segments/b", b"b")
    assert not one.create("segments/b", b"c")
    assert one.read("segments/a").to_pybytes() == DATA
    assert one.read("segments/a", 10, 20).to_pybytes() == DATA[10:30]
    assert [item.path for item in one.list("segments")] == ["segments/a", "segments/b"]
    one.delete(["segments/a", "segments/b"])
    assert list(one.list("segments")) == []
    assert proxy.read_by("one", "segments", began, time.time()) == len(DATA) + 20
    assert proxy.read_by("other", "segments", began, time.time()) == 0


@pytest.mark.parametrize("faults", [Faults(errors=1.0), Faults(stalls=1.0), Faults(lost=1.0), Faults(silence=1.0)])
def test_faults_come_and_go(proxy: FaultyStore, one: Store, faults: Faults) -> None:
    proxy.misbehave(faults)
    with pytest.raises(StoreError):
        one.create("a", b"a")
    proxy.misbehave(NO_FAULTS)
    assert one.create("a", b"a") is (faults.lost + faults.silence == 0), (
        "only a lost answer is one to something that was done"
    )


@pytest.mark.parametrize("faults", [Faults(stalls=1.0), Faults(silence=1.0)])
def test_a_store_that_does_not_answer_for_a_moment(proxy: FaultyStore, s3_server: S3Server, faults: Faults) -> None:
    """The one request that obstore does not repeat by itself."""
    store = behind(proxy, "one", s3_server, max_retries="3")
    proxy.misbehave(faults)
    mended = threading.Timer(0.8, proxy.misbehave, [NO_FAULTS])
    mended.start()
    assert store.create("a", b"a")
    mended.join()
    assert not store.create("a", b"a")


def test_slow_answers(proxy: FaultyStore, one: Store) -> None:
    one.put("a", DATA[:10_000])
    proxy.misbehave(Faults(bytes_per_second=50_000))
    began = time.monotonic()
    assert one.read("a").size == 10_000
    assert time.monotonic() - began > 0.15
    proxy.misbehave(Faults(bytes_per_second=5_000))
    with pytest.raises(StoreError):
        one.read("a")


def test_one_client_is_cut_off(proxy: FaultyStore, one: Store, s3_server: S3Server) -> None:
    other = behind(proxy, "other", s3_server)
    one.put("a", b"a")
    proxy.shut("one")
    with pytest.raises(StoreError):
        one.read("a")
    other.put("b", b"b")
    proxy.unshut("one")
    assert one.read("a").to_pybytes() == b"a"


def test_a_line_to_cut_is_made_on_any_machine(proxy: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_link(proxy, "one") as link:
        link.cut()
        link.mend()
    monkeypatch.setenv("PATH", "")
    with store_link(proxy, "one") as link:
        assert link.how.startswith("a door of the proxy")
        link.cut()
        assert proxy.doors["one"].shut
        link.mend()
        assert not proxy.doors["one"].shut
