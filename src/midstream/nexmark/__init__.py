"""NEXMark: the auction events and queries by which streaming engines are compared."""
