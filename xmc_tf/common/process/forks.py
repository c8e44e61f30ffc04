"""Processes made by ``fork``: TensorFlow does not work in them once the parent has used it.

TensorFlow's threads stay behind in the parent, and the child would wait for them without end. What needs TensorFlow
asks here first. Rankers that are given features do not need it, and work in any child.
"""

import os
import sys

from xmc_tf.common.errors import InputError

_parent_had_tensorflow = False


def check_not_forked(what: str) -> None:
    """Raise an error where TensorFlow would wait forever.

    Args:
        what: what needs TensorFlow, for the message ("features of texts").

    Raises:
        InputError: this process is a fork of one that had used TensorFlow.
    """
    if _parent_had_tensorflow:
        raise InputError(
            f"{what}: TensorFlow does not work in this process, which was forked after TensorFlow had been used",
            expected="a process that loads the model itself",
            received=f"process {os.getpid()}, a fork",
            fix="start processes with multiprocessing.get_context('spawn'), or load the model in the child only "
            "(gunicorn without --preload)",
        )


def _note_fork() -> None:
    """In the child: remember whether the parent had started TensorFlow's threads; importing it starts none."""
    global _parent_had_tensorflow
    module = sys.modules.get("tensorflow.python.eager.context")
    context = module.context_safe() if module is not None else None
    _parent_had_tensorflow |= context is not None and bool(getattr(context, "_initialized", True))


os.register_at_fork(after_in_child=_note_fork)
