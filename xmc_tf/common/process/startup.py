from xmc_tf.common.process import launcher, signals


def prepare() -> None:
    """Prepare the process before slow imports.

    From then on, signals end it without a traceback, and a rank ends when its launcher ends.
    """
    signals.end_at_once()
    if launcher.is_rank():
        from xmc_tf.common.process import run_records

        run_records.record_launcher()
        launcher.end_with_launcher()
