"""Identify a table by its content: a hash of all that is read, whatever its names, sizes and times of change."""

import hashlib
from pathlib import Path

import msgpack

from xmc_tf.common.progress import Progress
from xmc_tf.store.files import content_hash
from xmc_tf.tables.reading.records import TableReader, TableRow
from xmc_tf.tables.store import TableStore

_SHOWN = 1 << 10  # rows between two updates of the progress
_CONTENTS = {
    "texts": (
        "SELECT id, text, name FROM documents ORDER BY id",
        "SELECT document, numbers, amounts FROM features ORDER BY document",
    ),
    "labels": ("SELECT document, labels.name FROM document_labels JOIN labels ON labels.id = label ORDER BY 1, 2",),
}


def content_of(source: TableReader) -> str:
    """Return a hash of a table: of its files or, if it has none, of its rows."""
    # The empty line shows to which of two folders a document belongs.
    found = ["\n".join(_of_files(part)) if part.files else _of_rows(part) for part in source.parts]
    return hashlib.blake2b("\n\n".join(found).encode(), digest_size=16).hexdigest()


def store_contents(store: TableStore) -> dict[str, str]:
    """Return hashes of the texts and of the labels in a data set, by which changes can be named."""
    found = {}
    for name, queries in _CONTENTS.items():
        digest = hashlib.blake2b(digest_size=16)
        for query in queries:
            for row in store.connection.execute(query):
                digest.update(msgpack.packb(row, unicode_errors="surrogatepass"))
        found[name] = digest.hexdigest()
    return found


def _of_files(source: TableReader) -> list[str]:
    total = sum(path.stat().st_size for path in source.files)
    with Progress(f"checking {Path(source.name).name}", total, "bytes") as progress:
        # The endings show which files of a folder belong together.
        return [f"{path.suffix} {content_hash(path, progress.add)}" for path in source.files]


def _of_rows(source: TableReader) -> str:
    digest = hashlib.blake2b(digest_size=16)
    # A cell of any other type counts as its type and its text.
    packer = msgpack.Packer(default=lambda cell: [type(cell).__name__, str(cell)], unicode_errors="surrogatepass")
    with Progress(f"checking {Path(source.name).name}", source.size, source.unit) as progress:
        for number, row in enumerate(source.records(), 1):
            digest.update(packer.pack(row.cells if isinstance(row, TableRow) else list(row)))
            if number % _SHOWN == 0:
                progress.add(_SHOWN)
    return digest.hexdigest()
