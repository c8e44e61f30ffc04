import sys
from pathlib import Path
from typing import TextIO


class Output:
    """The launcher's lines, and the ranks' on the screen and in files of ``log_dir``, to which a later run appends."""

    def __init__(self, log_dir: Path | None = None, quiet: bool = False) -> None:
        self._log_dir, self._quiet = log_dir, quiet
        self._files: dict[int, TextIO] = {}
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)

    def show(self, rank: int, stream: str, text: str) -> None:
        """Print a rank's line, prefixed with the rank, on the stream it came from, and write it to the rank's file."""
        print(f"[{rank}] {text}", file=sys.stdout if stream == "out" else sys.stderr, flush=True)
        if self._log_dir is not None:
            if rank not in self._files:
                self._files[rank] = (self._log_dir / f"rank.{rank}.log").open("a", encoding="utf-8")
            print(text, file=self._files[rank], flush=True)

    def note(self, text: str) -> None:
        """Print a line of the launcher, unless it is to be quiet."""
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def error(self, text: str) -> None:
        """Print an error of the launcher."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
