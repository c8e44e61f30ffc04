"""Files that are not what their names say, and values that no flag should take."""

import gzip
import io
import json
import os
import socket
import sqlite3
import zipfile

import numpy as np
import scipy.sparse as sp


def _bytes(content):
    return lambda path, good: path.write_bytes(content)


def _fifo(path, good):
    os.mkfifo(path)


def _socket(path, good):
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path may have 107 bytes only
    try:
        with socket.socket(socket.AF_UNIX) as bound:  # the file stays
            bound.bind(path.name)
    finally:
        os.chdir(here)


def _link(target):
    return lambda path, good: path.symlink_to(target)


def _half(path, good):
    path.write_bytes(good.read_bytes()[: good.stat().st_size // 2])


def _flipped(path, good):
    content = bytearray(good.read_bytes())
    content[len(content) // 3] ^= 0x55
    path.write_bytes(content)


def _npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return _bytes(buffer.getvalue())


def _npy(head, data=b""):
    head = head.ljust(117) + "\n"
    return _bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data)


def _csr(matrix):
    buffer = io.BytesIO()
    sp.save_npz(buffer, sp.csr_matrix(matrix, dtype=np.float32))
    return _bytes(buffer.getvalue())


def _bomb(path, good):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("data", "indices", "indptr", "shape", "format"):
            archive.writestr(f"{name}.npy", bytes(1 << 16))
            archive.filelist[-1].file_size = (1 << 32) - 2


def _gzip_bomb(path, good):
    """Write 4 MB that become 4 GB."""
    path.write_bytes(gzip.compress(b"text,label\n" + b"word,label 1\n" * 650_000) * 500)


def _endless_view(path, good):
    with sqlite3.connect(path) as database:
        rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        database.execute(f"CREATE VIEW data AS {rows} SELECT 'word' || i AS text, 'label 1' AS label FROM n")
    database.close()


def _stray_byte(path, good):
    content = good.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"\xe9" + content[middle:])


def _csr_arrays(**changes):
    arrays = {"format": b"csr", "shape": (2, 3), "data": np.ones(2, np.float32), "indices": (0, 2), "indptr": (0, 1, 2)}
    return _npz(**(arrays | changes))


def _sparse_hole(path, good):
    with path.open("wb") as file:
        file.truncate(1 << 36)


FILES = {
    "as it is": lambda path, good: path.write_bytes(good.read_bytes()),
    "missing": lambda path, good: None,
    "empty": _bytes(b""),
    "a folder": lambda path, good: path.mkdir(),
    "a pipe": _fifo,
    "a socket": _socket,
    "an endless device": _link("/dev/zero"),
    "an empty device": _link("/dev/null"),
    "a circle of links": lambda path, good: path.symlink_to(path),
    "a link to nothing": _link("/nowhere"),
    "zeros": _bytes(bytes(4096)),
    "noise": _bytes(np.random.default_rng(0).bytes(4096)),
    "a hole of 64 GB": _sparse_hole,
    "half": _half,
    "one byte flipped": _flipped,
    "a stray byte": _stray_byte,
    "text": _bytes("ein Text, 字\n".encode()),
    "control characters": _bytes(b"\x1b[2J\x1b]0;owned\x07\n\x00\x9b\n"),
    "not UTF-8": _bytes(b"\xff\xfe\x80\n"),
    "one long line": _bytes(b"word " * 400_000),
    "deep JSON": _bytes(b"[" * 200_000),
    "deep objects": _bytes(b'{"a":' * 900 + b"1" + b"}" * 900),
    "deep TOML": _bytes(b"a = " + b"[" * 20_000),
    "a number of 5,000 digits": _bytes(b'{"depth": ' + b"9" * 5000 + b', "len": ' + b"9" * 5000 + b"}"),
    "large numbers": _bytes(json.dumps(dict.fromkeys(("depth", "len", "nr_labels", "nr_features"), 2**62)).encode()),
    "wrong types": _bytes(json.dumps({name: ["3"] for name in ("depth", "len", "nr_labels", "bias")}).encode()),
    "NaN": _bytes(b'{"bias": NaN, "depth": Infinity}'),
    "an empty object": _bytes(b"{}"),
    "a list": _bytes(b"[1, 2]"),
    "a byte order mark": _bytes(b"\xef\xbb\xbf{}"),
    "an archive of nothing": _bytes(b"PK\x05\x06" + bytes(18)),
    "an archive that unfolds": _bomb,
    "gzip that unfolds": _gzip_bomb,
    "an endless view": _endless_view,
    "pickled objects": _npz(data=np.array([{"a": 1}], dtype=object), format=b"csr"),
    "2^31 columns": _csr_arrays(shape=(2, 2**31)),
    "2^40 rows": _csr_arrays(format=b"csc", shape=(2**40, 2), indices=(0, 1)),
    "2^28 columns, as coordinates": _npz(
        format=b"coo", shape=(2, 2**28), data=np.ones(2), row=np.arange(2), col=np.arange(2)
    ),
    "2^26 columns": _csr_arrays(shape=(2, 2**26)),
    "indices out of range": _csr_arrays(indices=(0, -7)),
    "pointers that fall": _csr_arrays(indptr=(0, 9, 2)),
    "infinite values": _csr_arrays(data=np.array([np.inf, 1])),
    "a shape of text": _csr_arrays(shape=np.array(["a", "b"])),
    "no rows": _csr(np.zeros((0, 4))),
    "no columns": _csr(np.zeros((4, 0))),
    "other rows": _csr(np.eye(7)),
    "negative values": _csr(-np.ones((90, 12))),
    "a head of 2^31 rows": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648, 4), }"),
    "2^40 rows of nothing": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 0), }"),
    "an array of objects": _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\x80\x04N."),
}

NUMBERS = [
    "", "x", "0", "-1", "-2", "1.5", "nan", "inf", "-inf", "1e400", "2147483647", "2147483648", "4294967296",
    "9223372036854775808", "-9223372036854775809", "9" * 4000, "9" * 5000, "0x10", "\u0663", " 3", "1,2", "\udcff",
    "\x1b[2J",
]  # fmt: skip

# Names of files: bytes that are not UTF-8, control characters, no name at all, too long a name, something like a flag.
NAMES = [
    "caf\udce9.npz", "a\x1b[31mb\n.npz", "", "n" * 300 + ".npz", "--", "-x", "/dev/fd/0", "a/../b.npz",
    "/proc/self/mem",
]  # fmt: skip
