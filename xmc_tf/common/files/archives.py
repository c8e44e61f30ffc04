import struct
import zipfile
import zlib
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.crc import crc_of_range

MAGIC = b"PK\x03\x04"  # at the beginning of an archive, and of each of its members
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
HEAD_BYTES = _LOCAL_HEADER.size  # of the header of a member, without its name
_PIECE = 1 << 20
# Errors of zipfile and the modules below it: RuntimeError for a password, its subclass NotImplementedError for an
# unknown compression.
_UNREADABLE: tuple[type[Exception], ...] = (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, zlib.error)
_UNREADABLE += (RuntimeError, ValueError, EOFError, OSError)
_FIX = "copy the model again from where it is intact, or train it again"


def archive_problem(path: Path, *, thorough: bool = False) -> InputError | None:
    """Return an error if an archive is damaged. Without ``thorough``, check only uncompressed members."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb", buffering=0) as file:
            for info in archive.infolist():
                if info.compress_type == zipfile.ZIP_STORED:
                    file.seek(max(info.header_offset, 0))
                    start = data_start(info, file.read(HEAD_BYTES))
                    crc, length = crc_of_range(path, start, start + info.file_size)
                    if length < info.file_size:
                        raise EOFError(f"{info.filename} ends {info.file_size - length:,} bytes too early")
                elif thorough:
                    with archive.open(info) as member:  # zipfile compares the checksum at the end
                        while member.read(_PIECE):
                            pass
                    continue
                else:
                    continue
                if crc != info.CRC:
                    problem = f"the content of its member {info.filename} has changed since it was saved"
                    expected, received = f"checksum {info.CRC:08x} (CRC-32)", f"checksum {crc:08x}"
                    return InputError(f"{path} is damaged: {problem}", expected=expected, received=received, fix=_FIX)
    except _UNREADABLE as error:
        if thorough:
            return InputError(f"{path} is damaged", expected="an .npz archive", received=str(error), fix=_FIX)
    return None


def member_checksums(path: Path) -> dict[str, str]:
    """Return the CRC-32 of each member as 8 hex digits. They come from the archive's directory; no member is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename: f"{info.CRC:08x}" for info in archive.infolist()}
    except _UNREADABLE as error:
        raise InputError(f"{path} is damaged", expected="an .npz archive", received=str(error), fix=_FIX) from None


def data_start(info: zipfile.ZipInfo, head: bytes) -> int:
    """Return the offset of a member's data. Its header (``head``) may be longer than the archive's directory says."""
    if info.header_offset < 0 or len(head) < HEAD_BYTES or head[:4] != MAGIC:
        raise zipfile.BadZipFile(f"the header of {info.filename[:100]} is not where the archive's directory says")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(head)
    return info.header_offset + HEAD_BYTES + name_length + extra_length
