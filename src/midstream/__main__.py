"""`python -m midstream`."""

from midstream.cli import main

main()
