import math
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.serialization import pack, unpack

Value = TypeVar("Value")
Operation = Literal["sum", "max", "min"]

# The maximum length of a message: MPI and Horovod count in 32 bits. Tests lower it.
CHUNK_BYTES = 1 << 30


class Communicator(ABC):
    """The interface for communication between ranks; backends implement four collectives for up to CHUNK_BYTES bytes.

    All methods except ``abort`` are collective: all ranks must call them, in the same order.
    """

    uses_mpi4py: ClassVar[bool] = False

    # local_rank: the number of this process among the ranks on its host, from 0
    def __init__(self, rank: int, size: int, local_rank: int) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.host = socket.gethostname()

    @abstractmethod
    def _alltoall(self, piece: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Send ``counts[r]`` bytes to each rank r, and return the received bytes in rank order."""

    @abstractmethod
    def _allgather(self, piece: np.ndarray) -> np.ndarray:
        """Return the bytes of all ranks in rank order."""

    @abstractmethod
    def _broadcast(self, piece: np.ndarray, root: int) -> np.ndarray:
        """Return the bytes of rank ``root``. The other ranks pass an array of the same length."""

    @abstractmethod
    def _allreduce(self, piece: np.ndarray, op: Operation) -> np.ndarray:
        """Return the sum, maximum or minimum over all ranks of a flat int32, int64, float32 or float64 array."""

    @abstractmethod
    def abort(self, code: int = 1) -> None:
        """End all ranks immediately, without their cooperation."""

    # Objects.

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""
        self._allreduce(np.zeros(1, np.int32), "sum")

    def broadcast(self, value: Value, root: int = 0) -> Value:
        """Return rank ``root``'s value on every rank. The values of the other ranks are ignored."""
        if self.size == 1:
            return value
        data = _dump(value) if self.rank == root else np.zeros(0, np.uint8)
        length = self._broadcast(np.array([len(data)]).view(np.uint8), root).view(np.int64)[0]
        return unpack(self._broadcast_bytes(data if self.rank == root else np.zeros(length, np.uint8), root).data)

    def gather(self, value: Value) -> list[Value]:
        """On rank 0, return the values of all ranks in rank order. On the other ranks, return an empty list."""
        if self.size == 1:
            return [value]
        data = _dump(value)
        received, counts = self.alltoall_array(data, [len(data), *[0] * (self.size - 1)])
        return _load_each(received, counts) if self.rank == 0 else []

    def allgather(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in rank order, on every rank."""
        if self.size == 1:
            return [value]
        data = _dump(value)
        counts = self._of_all_ranks(len(data))
        return _load_each(self._allgather_bytes(data, counts), counts)

    def alltoall(self, values: Sequence[Value]) -> list[Value]:
        """Send ``values[r]`` to each rank r, and return the received values in rank order."""
        if len(values) != self.size:
            raise InputError("alltoall: wrong number of values", expected=f"{self.size}", received=str(len(values)))
        if self.size == 1:
            return list(values)
        parts = [_dump(value) for value in values]
        return _load_each(*self.alltoall_array(np.concatenate(parts), [len(part) for part in parts]))

    # Arrays.

    def broadcast_array(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """Return rank ``root``'s array on every rank. The other ranks may pass None."""
        source = None if array is None or self.rank != root else _plain(array)
        about = self.broadcast(None if source is None else (source.dtype, source.shape), root)
        dtype, shape = cast(tuple[np.dtype, tuple[int, ...]], about)
        data = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8) if source is None else _bytes(source)
        return self._broadcast_bytes(data, root).view(dtype).reshape(shape)

    def allreduce_array(self, array: np.ndarray, op: Operation = "sum") -> np.ndarray:
        """Return the elementwise sum, maximum or minimum of the arrays of all ranks, which must have the same shape."""
        array = _plain(array)
        flat = array.reshape(-1).astype(_reduced_as(array.dtype), copy=False)
        step = max(1, CHUNK_BYTES // flat.dtype.itemsize)
        pieces = [self._allreduce(flat[at : at + step], op) for at in range(0, len(flat), step)]
        return _joined(pieces, flat.dtype).astype(array.dtype, copy=False).reshape(array.shape)

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks, in rank order, on every rank. Only their number may differ between ranks."""
        array = _plain(array, rows=True)
        counts, width = self._of_all_ranks(len(array)), _row_bytes(array)
        return _rows(self._allgather_bytes(_bytes(array), counts * width), array, int(counts.sum()))

    def alltoall_array(
        self, array: np.ndarray, send_counts: np.ndarray | Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Send ``send_counts[r]`` rows to each rank r. Return the received rows, and how many each rank sent."""
        array = _plain(array, rows=True)
        counts = np.asarray(send_counts, dtype=np.int64)
        if counts.shape != (self.size,) or (counts < 0).any() or counts.sum() != len(array):
            expected = f"{self.size} numbers, one per rank, that add up to the {len(array)} rows"
            raise InputError("alltoall_array: invalid send_counts", expected=expected, received=str(counts.tolist()))
        width = _row_bytes(array)
        # The length of the longest message is sent with the counts, so that all ranks agree on the number of rounds.
        share = max(1, CHUNK_BYTES // self.size)
        rounds = -(-int(counts.max()) * width // share)
        header = np.stack([counts, np.full_like(counts, rounds)], axis=1)
        answer = self._alltoall(_bytes(header), np.full(self.size, 16)).view(np.int64).reshape(self.size, 2)
        received = self._alltoall_bytes(_bytes(array), counts * width, answer[:, 0] * width, share, answer[:, 1].max())
        arrived = answer[:, 0].copy()
        return _rows(received, array, int(arrived.sum())), arrived

    # Pieces.

    def _alltoall_bytes(
        self, data: np.ndarray, sent: np.ndarray, received: np.ndarray, share: int, rounds: int
    ) -> np.ndarray:
        """Exchange bytes in rounds in which each rank sends at most ``share`` bytes to each other rank."""
        if rounds <= 1:
            return self._alltoall(data, sent) if rounds else np.zeros(0, np.uint8)
        outgoing, incoming = _offsets(sent), _offsets(received)
        result = np.empty(int(received.sum()), np.uint8)
        for begun in range(0, int(rounds) * share, share):
            now, coming = np.clip(sent - begun, 0, share), np.clip(received - begun, 0, share)
            pieces = [data[at + begun : at + begun + count] for at, count in zip(outgoing, now, strict=True)]
            _spread(self._alltoall(np.concatenate(pieces), now), result, incoming + begun, coming)
        return result

    def _allgather_bytes(self, data: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the bytes of all ranks, gathered in rounds of at most ``CHUNK_BYTES`` bytes in total."""
        share = max(1, CHUNK_BYTES // self.size)
        if counts.max() <= share:
            return self._allgather(data)
        starts, result = _offsets(counts), np.empty(int(counts.sum()), np.uint8)
        for begun in range(0, int(counts.max()), share):
            coming = np.clip(counts - begun, 0, share)
            _spread(self._allgather(data[begun : begun + share]), result, starts + begun, coming)
        return result

    def _of_all_ranks(self, count: int) -> np.ndarray:
        """Return the count of each rank."""
        return self._allgather(np.array([count], np.int64).view(np.uint8)).view(np.int64)

    def _broadcast_bytes(self, data: np.ndarray, root: int) -> np.ndarray:
        pieces = range(0, len(data), CHUNK_BYTES)
        return _joined([self._broadcast(data[at : at + CHUNK_BYTES], root) for at in pieces], np.dtype(np.uint8))


def _dump(value: object) -> np.ndarray:
    return np.frombuffer(pack(value), np.uint8)


def _load_each(data: np.ndarray, counts: np.ndarray) -> list[Any]:
    """Decode concatenated messages. A count of 0 means that there is no message."""
    parts = np.split(data, np.cumsum(counts)[:-1])
    return [unpack(part.data) for part in parts if len(part)]


def _plain(array: np.ndarray, rows: bool = False) -> np.ndarray:
    """Return the array in C order. Refuse arrays of Python objects and, if ``rows``, arrays without dimensions."""
    given = np.asarray(array)
    if given.dtype.hasobject or (rows and given.ndim == 0):
        expected = "an array of numbers with at least one dimension" if rows else "numbers"
        received = f"{given.dtype} of shape {given.shape}"
        raise InputError("this value cannot be sent as an array", expected=expected, received=received)
    return given if given.flags.c_contiguous else np.ascontiguousarray(given)


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _row_bytes(array: np.ndarray) -> int:
    return math.prod(array.shape[1:]) * array.dtype.itemsize


def _rows(data: np.ndarray, like: np.ndarray, count: int) -> np.ndarray:
    """Return the bytes as rows with the type and row shape of ``like``."""
    return data.view(like.dtype).reshape(count, *like.shape[1:])


def _joined(pieces: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, np.zeros(0, dtype)])


def _spread(arrived: np.ndarray, result: np.ndarray, places: np.ndarray, counts: np.ndarray) -> None:
    for start, at, count in zip(_offsets(counts), places, counts, strict=True):
        result[at : at + count] = arrived[start : start + count]


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.cumsum(counts) - counts


def _reduced_as(dtype: np.dtype) -> np.dtype:
    """Return the type in which to reduce: the array's own if all backends support it, otherwise a wider type."""
    if dtype in (np.int32, np.int64, np.float32, np.float64):
        return dtype
    if dtype.kind in "iub" and dtype.itemsize < 8:
        return np.dtype(np.int64)
    if dtype.itemsize == 2 and dtype.kind in "fV":  # float16, and bfloat16, which numpy shows as kind V
        return np.dtype(np.float32)
    expected = "whole numbers or floats of up to 64 bits"
    raise InputError("allreduce_array: the type is not supported", expected=expected, received=str(dtype))
