"""``python -m xmc_tf.launch``: run a program on several ranks, on this machine or on several hosts.

The options and the environment determine the ``hosts`` and the ``plan``. On each host, a ``node`` process connects to
the launcher (``nodes``), checks its host, and starts the ranks as the engine (``engines``) requires. The nodes report
the progress of the ranks (``running``). With --min-np, the ``job`` restarts on the remaining hosts if some are lost.
"""
