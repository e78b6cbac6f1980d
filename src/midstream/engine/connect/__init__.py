"""A session of Spark Connect: what the engine does there in other ways than with a driver in its own process.

There is no JVM to ask, so instances are not placed, plans are not looked into and accumulators do not exist; and
`foreachBatch` calls a function in a process of the server. What is done instead is behind the same names as in
`engine/internals.py`, which chooses.
"""
