"""User functions with state: tables in, tables out, against Spark's call for each key.

Every row has a key of its own in its epoch, so rows a second are also keys a second. The peer's cost is per
key, so its rate does not depend on the size of the epoch; ours does, and is given, and judged, for both sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.bench import tws
from midstream.bench.contender import Contender
from midstream.bench.environment import Environment
from midstream.bench.keycount import select_peers
from midstream.bench.ours import Midstream, by_function
from midstream.bench.report import Measurement, Report, at_least
from midstream.bench.trial import Trial, run_trial
from midstream.bench.window import Window
from midstream.bench.workload import rotating_keys

TARGET_PEER = "spark-tws-pandas"
WINDOW = Window(warmup_epochs=2, warmup_seconds=10, epochs=3, seconds=20)


@dataclass(frozen=True)
class StatefulOptions:
    """`rows_per_epoch` for all, `large_epoch` for midstream once more; `judged` with the target."""

    rows_per_epoch: int = 20_000
    large_epoch: int = 1_000_000
    window: Window = WINDOW
    peers: tuple[str, ...] = (TARGET_PEER,)
    judged: bool = True


QUICK = StatefulOptions(rows_per_epoch=200, large_epoch=2_000, window=Window(1, 0, 2, 0), judged=False)


def stateful(options: StatefulOptions, environment: Environment) -> Report:
    peers = select_peers(options.peers, tws.PEERS)
    if peers:
        tws.require_packages()
    same, large = Midstream(by_function), Midstream(by_function, name="midstream-large")
    trials: list[tuple[Contender, int]] = [(same, options.rows_per_epoch), (large, options.large_epoch)]
    trials += [(peer, options.rows_per_epoch) for peer in peers]
    measured: dict[str, Measurement] = {}
    for contender, rows in trials:
        trial = Trial(rotating_keys(rows, rows), options.window)
        with environment.session(contender.name, contender.conf) as (spark, directory):
            machine = environment.machine(spark)
            measured[contender.name] = run_trial(spark, contender, trial, directory, environment.progress)
    ours = {name: measured.pop(name) for name in (same.name, large.name)}
    ratios = {
        f"rows/s {name} vs {peer_name}": mine.rows_per_second / peer.rows_per_second
        for name, mine in ours.items()
        for peer_name, peer in measured.items()
    }
    judged = [f"rows/s {contender.name} vs {TARGET_PEER}" for contender in (same, large)]
    return Report(
        bench="stateful",
        machine=machine,
        ours=ours,
        peers=measured,
        ratios=ratios,
        targets=tuple(at_least(name, ratios[name], 500) for name in judged if options.judged and name in ratios),
    )
