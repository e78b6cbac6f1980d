"""The process that merges segments: jobs come in on standard input, results go out on standard output."""

from __future__ import annotations

import os
import pickle
import sys

from midstream.state.compaction import run_compaction
from midstream.state.precedence import Courtesy

NICENESS = 5
"""Below the stream's own processes, yet not starved when they fill every core: deltas must not pile up for ever."""


def main() -> None:
    os.nice(NICENESS)
    # Nothing but results may reach the real standard output.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            store, job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return  # the driver is gone
        try:
            outcome: object = run_compaction(store, job, Courtesy(store))
        except Exception as error:
            outcome = error
        pickle.dump(outcome, results)
        results.flush()


if __name__ == "__main__":
    main()
