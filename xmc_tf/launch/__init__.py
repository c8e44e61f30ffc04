"""``python -m xmc_tf.launch``: run a program on several ranks of this machine or of several hosts.

Options and environment give the ``hosts`` and the ``plan``. A ``node`` process on each host connects to the launcher
(``nodes``), checks its host, and starts the ranks that the engine (``engines``) describes. Its reports make the outcome
(``running``). If hosts are lost, the ``job`` runs again on the others.
"""
