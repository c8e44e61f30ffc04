from xmc_tf.common.process import launcher, signals


def prepare() -> None:
    """Make signals end the process without a traceback, and a rank end with its launcher, before the slow imports."""
    signals.end_at_once()
    if launcher.is_rank():
        from xmc_tf.common.process import run_records

        run_records.record_launcher()
        launcher.end_with_launcher()
