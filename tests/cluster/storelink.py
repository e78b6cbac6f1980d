"""The line between one executor and the store, which can be cut: the rest of the cluster still hears the executor.

Where the kernel lets us, the executor's host is a network namespace with two cables, one to the cluster and one to the
store, and the cut takes the second down: packets vanish, nobody is told. Where it does not, the executor has a door of
its own at the store's proxy, and the cut shuts it: connections are made but never answered. Both end in time-outs; only
the first has connections that cannot be made and old ones that go on when the cable is back.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.cluster.faultystore import FaultyStore
from tests.cluster.standalone import HOSTS


@dataclass(frozen=True)
class StoreLink:
    """The addresses of the two hosts, of the store as the second sees it, and how its line to the store is cut."""

    how: str
    near: str
    far: str
    store: str
    enter: tuple[str, ...]
    cut: Callable[[], object]
    mend: Callable[[], object]


@contextmanager
def store_link(proxy: FaultyStore, client: str) -> Iterator[StoreLink]:
    """A line for the second host, in the best way this machine has."""
    if (anchor := _anchor()) is None:
        yield _by_door(proxy, client, "no network namespace may be made here")
        return
    try:
        try:
            link = _by_cable(anchor.pid)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            told = error.stderr.decode() if isinstance(error, subprocess.CalledProcessError) else error
            link = _by_door(proxy, client, f"a network namespace cannot be wired here: {told}".strip())
        yield link
    finally:
        # Without a process in it the namespace goes, and the cables with it.
        anchor.communicate()


def _by_door(proxy: FaultyStore, client: str, why: str) -> StoreLink:
    return StoreLink(
        how=f"a door of the proxy ({why})",
        near=HOSTS[0],
        far=HOSTS[1],
        store=HOSTS[0],
        enter=(),
        cut=lambda: proxy.shut(client),
        mend=lambda: proxy.unshut(client),
    )


def _anchor() -> subprocess.Popen[bytes] | None:
    """A process that holds a namespace for as long as we live."""
    try:
        process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo in it; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return None
    assert process.stdout is not None
    if process.stdout.readline():
        return process
    process.communicate()
    return None


def _by_cable(inside: int) -> StoreLink:
    enter = ("nsenter", f"--net=/proc/{inside}/ns/net")
    # Addresses that are set aside for tests of networks (RFC 2544); other runs on this machine have others.
    chance = random.SystemRandom()
    third, fourth = chance.randrange(256), 4 * chance.randrange(64)
    name = f"ms{os.getpid():x}"

    def cable(number: int, end: str) -> tuple[str, str]:
        ends = [f"198.{18 + number}.{third}.{fourth + n}" for n in (1, 2)]
        here = f"{name}-{number}"
        _run("ip", "link", "add", here, "type", "veth", "peer", "name", end, "netns", str(inside))
        for who, device, address in (((), here, ends[0]), (enter, end, ends[1])):
            _run(*who, "ip", "address", "add", f"{address}/30", "dev", device)
            _run(*who, "ip", "link", "set", device, "up")
        return ends[0], ends[1]

    _run(*enter, "ip", "link", "set", "lo", "up")
    near, far = cable(0, "cluster")
    store, _ = cable(1, "store")
    return StoreLink(
        how="a cable of a network namespace",
        near=near,
        far=far,
        store=store,
        enter=enter,
        cut=lambda: _run("ip", "link", "set", f"{name}-1", "down"),
        mend=lambda: _run("ip", "link", "set", f"{name}-1", "up"),
    )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
