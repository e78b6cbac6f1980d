"""Folders in the system's temporary directory that processes of one user on one machine share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def path_of(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"


def own_folder(name: str) -> Path:
    """The folder of that name and this user, made when it is not there. Raises OSError when it cannot be used."""
    folder = path_of(name)
    folder.mkdir(mode=0o700, exist_ok=True)
    owner = folder.lstat().st_uid
    if owner != os.getuid() or folder.is_symlink():
        # The name can be guessed, so another user could have put a folder of theirs there.
        raise PermissionError(f"it belongs to the user with id {owner}")
    return folder
