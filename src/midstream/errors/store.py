"""Errors of stores: where checkpoints lie."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from midstream.errors.base import MidstreamError


class StoreError(MidstreamError):
    """The store of a checkpoint could not be read or written."""

    @classmethod
    def missing(cls, path: str, url: str) -> StoreError:
        return cls(
            "MISSING_OBJECT",
            f"There is no object {path} in {url}.",
            hint="check that this is the right store; if the object was deleted, restore it from a copy.",
        )

    @classmethod
    def unreadable(cls, path: str, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_NOT_READABLE",
            f"The object {path} in {url} could not be read: {cause}.",
            hint="check the permissions and the health of the file system; nothing was changed.",
        )

    @classmethod
    def not_writable(cls, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_NOT_WRITABLE",
            f"The store {url} cannot be written: {cause}. Nothing was committed.",
            hint="give the user of the driver and executors write access there, or use another location.",
        )

    @classmethod
    def disk_full(cls, url: str, cause: object) -> StoreError:
        return cls(
            "DISK_FULL",
            f"The store {url} has no space left: {cause}. Nothing was committed.",
            hint="free or add space, then start again: the epoch that failed will be run once more.",
        )

    @classmethod
    def no_atomic_create(cls, url: str, cause: object) -> StoreError:
        return cls(
            "NO_ATOMIC_CREATE",
            f"The store {url} cannot create an object only if it is absent: {cause}. Commits rest on that.",
            hint="use a file system with hard links, or an S3 store with conditional writes (If-None-Match).",
        )

    @classmethod
    def unreachable(cls, url: str, endpoint: str, cause: object) -> StoreError:
        return cls(
            "STORE_UNREACHABLE",
            f"No answer from {endpoint} for the store {url}: {cause}.",
            hint="check the option 'endpoint' (or AWS_ENDPOINT_URL), the network and that the server runs.",
        )

    @classmethod
    def access_denied(cls, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_ACCESS_DENIED",
            f"The store {url} refused the request: {cause}. Nothing was committed.",
            hint="check the options 'access_key_id' and 'secret_access_key' (or AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY), and that they may read, write, list and delete there.",
        )

    @classmethod
    def missing_bucket(cls, url: str, bucket: str) -> StoreError:
        return cls(
            "MISSING_BUCKET",
            f"There is no bucket '{bucket}' for the store {url}.",
            hint="create the bucket, or check its name and the option 'endpoint'.",
        )

    @classmethod
    def failed(cls, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_FAILED",
            f"The store {url} failed: {cause}.",
            hint="check the health of the store, then start again: an epoch not committed is run once more.",
        )

    @classmethod
    def forked(cls, url: str) -> StoreError:
        return cls(
            "STORE_USED_AFTER_FORK",
            f"The S3 client used for {url} belongs to the parent process and does not survive a fork.",
            hint="start the process with multiprocessing's 'spawn' or 'forkserver' method.",
        )

    @classmethod
    def unknown_scheme(cls, url: str, scheme: str) -> StoreError:
        return cls(
            "UNKNOWN_STORE",
            f"No store for '{scheme}:' in {url}.",
            hint="use a directory (dir/ or file:///dir) or s3://bucket/prefix.",
        )

    @classmethod
    def bad_url(cls, url: str, reason: str) -> StoreError:
        return cls("BAD_STORE_URL", f"The store URL {url} {reason}.", hint="use file:///dir or s3://bucket/prefix.")

    @classmethod
    def unknown_option(cls, url: str, option: str, known: Iterable[str]) -> StoreError:
        names = sorted(known)
        near = get_close_matches(option, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known options: {', '.join(names)}."
        return cls("UNKNOWN_STORE_OPTION", f"The store {url} has no option '{option}'.", hint=hint)

    @classmethod
    def bad_option(cls, url: str, option: str, expected: str) -> StoreError:
        # The value is left out: options carry secrets.
        return cls(
            "BAD_STORE_OPTION",
            f"The option '{option}' of the store {url} has a value that cannot be used.",
            hint=f"expected {expected}.",
        )

    @classmethod
    def bad_path(cls, path: str) -> StoreError:
        return cls(
            "BAD_OBJECT_PATH",
            f"'{path}' cannot name an object.",
            hint="paths are relative, have single '/', no part '.' or '..', and do not begin with '.tmp'.",
        )

    @classmethod
    def bad_cache(cls, directory: object, reason: object) -> StoreError:
        return cls(
            "CACHE_NOT_USABLE",
            f"The cache directory {directory} cannot be used: {reason}.",
            hint="set MIDSTREAM_CACHE_DIR to a directory of your own.",
        )

    @classmethod
    def bad_cache_size(cls, given: str) -> StoreError:
        return cls(
            "BAD_CACHE_SIZE",
            f"MIDSTREAM_CACHE_BYTES is '{given}', not a number of bytes.",
            hint="give a whole number greater than 0, such as 8589934592 for 8 GiB.",
        )
