"""The command `midstream`: pipelines run, looked at and changed from a terminal."""

from midstream.cli.program import app, main

__all__ = ["app", "main"]
