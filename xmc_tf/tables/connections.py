"""Connections to SQLite databases: opened with a time limit, and closed at the exit."""

import atexit
import contextlib
import errno
import os
import sqlite3
import weakref
from pathlib import Path

from xmc_tf.common.errors import InputError

OTHER_PLACE = "put the data set into a folder that can be written to: --data-set FILE (xmc-tf prepare: -o FILE)"
PATIENCE_S = 30.0  # for another command's transaction


def write_error(path: Path, error: sqlite3.DatabaseError) -> Exception:
    """Return the error to raise when a write has failed."""
    # Errors that SQLite itself does not report, such as a wrong number of values, have no name.
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return OSError(
            errno.ENOSPC, f"the disk is full or failing ({error}); complete rows are kept: free some space and rerun",
            str(path),
        )  # fmt: skip
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CONSTRAINT")):
        return InputError(
            f"{path} is in use: another command is writing to it ({error})",
            expected="only one command writing to a data set at a time",
            fix="wait until the other command has ended, or give another database",
        )
    return InputError(
        f"{path} cannot be written: {error}",
        expected="an undamaged database on a disk that can be written to",
        fix=OTHER_PLACE if _is_closed(error) else "if it is damaged, remove it and prepare the table again",
    )


class _Connection(sqlite3.Connection):
    """A connection that allows weak references and is closed when the last strong reference is gone."""

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.ProgrammingError):  # it was never opened
            self.close()


_OPEN: "weakref.WeakSet[sqlite3.Connection]" = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """Close all databases, so that SQLite removes its auxiliary files."""
    for connection in list(_OPEN):
        connection.close()


def require_folder(path: Path) -> None:
    """Raise an error if the folder of a database does not exist."""
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} does not exist", expected="a folder for the database", fix="create it first")


def connected(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection to a database, opened in SQLite's mode "ro", "rw" or "rwc"."""
    require_folder(path)
    # A connection that may only read cannot remove the files beside the database (-wal, -shm) when it is the last.
    opened = "rw" if mode == "ro" and os.access(path, os.W_OK) else mode
    try:
        connection = _opened(path, opened, read_only=mode == "ro")
        _OPEN.add(connection)
        connection.execute(f"PRAGMA query_only = {int(mode == 'ro')}")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.DatabaseError) and isinstance(full := write_error(path, error), OSError):
            raise full from None
        raise InputError(
            f"{path} cannot be opened: {error}",
            expected="a database written by xmc-tf prepare, or a new file",
            fix=OTHER_PLACE if _is_closed(error) else "give another file",
        ) from None
    return connection


def foreign_database(path: Path) -> sqlite3.Connection:
    """Return a connection for reading a database of another program; errors are those of SQLite."""
    return _opened(path, "ro", read_only=True)


def _opened(path: Path, mode: str, *, read_only: bool) -> sqlite3.Connection:
    """Open a database. One with a log (WAL) needs files beside it even to be read: in a read-only folder, it is read as
    it is, unless its log holds rows."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, check_same_thread=False, timeout=PATIENCE_S,
        factory=_Connection,
    )  # fmt: skip
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        if not read_only or "immutable" in mode or not _is_closed(error):
            raise
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise InputError(
                f"{path} cannot be read: its log {log.name} holds rows, and their folder is read-only",
                expected="a database without a log, or a folder that can be written to",
                fix=f"copy it together with {log.name} to another folder",
            ) from None
        return _opened(path, "ro&immutable=1", read_only=True)
    return connection


def _is_closed(error: sqlite3.Error) -> bool:
    """Return whether a file cannot be written or created."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN"))
