import os
import sys

from xmc_tf.common.errors import InputError

_parent_had_tensorflow = False


def check_not_forked(what: str) -> None:
    """Raise an error in a fork of a process that has used TensorFlow, where TensorFlow would hang."""
    if _parent_had_tensorflow:
        raise InputError(
            f"{what}: TensorFlow does not work in this process, which was forked after TensorFlow had been used",
            expected="a process that loads the model itself",
            received=f"process {os.getpid()}, a fork",
            fix="start processes with multiprocessing.get_context('spawn'), or load the model in the child only "
            "(gunicorn without --preload)",
        )


def _note_fork() -> None:
    """Record, in the child, whether the parent had started TensorFlow's threads. Importing it does not start them."""
    global _parent_had_tensorflow
    module = sys.modules.get("tensorflow.python.eager.context")
    context = module.context_safe() if module is not None else None
    _parent_had_tensorflow |= context is not None and bool(getattr(context, "_initialized", True))


os.register_at_fork(after_in_child=_note_fork)
