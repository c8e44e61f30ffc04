"""Scalars for TensorBoard, written with the tensorboard package, without TensorFlow."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from xmc_tf.common.errors import InputError


class EventFile:
    """A file of scalars that TensorBoard shows as one run.

    Example:
        >>> file = EventFile("logs/rank-0")
        >>> file.write({"busy seconds": 12.5}, step=60)
        >>> file.close()

    Args:
        folder: the folder; created if missing.

    Raises:
        InputError: the tensorboard package is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            # tensorboard's EventFileWriter would load TensorFlow if that is installed.
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise InputError(
                "the log files for TensorBoard cannot be written",
                expected="the package tensorboard",
                received=f"{type(error).__name__}: {error}",
                fix="pip install tensorboard, or omit --logdir",
            ) from None
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("wb")
        self._records = RecordWriter(self._file)
        self._records.write(self._event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write the values of some scalars at a step, and flush them to the file."""
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
