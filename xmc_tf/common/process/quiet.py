import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def muted_stderr() -> Iterator[None]:
    """Hold back standard error, including that of compiled code such as TensorFlow. Show it only if the block fails."""
    if os.environ.get("XMC_TF_CHATTER"):
        yield
        return
    sys.stderr.flush()
    try:
        terminal = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            held_back.seek(0)
            os.write(terminal, held_back.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
