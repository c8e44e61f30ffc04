"""``python -m xmc_tf.launch``: run a program on several ranks of this machine or of several hosts.

The options and the environment name the hosts with their numbers of ranks (``choosing``, ``hosts/``), which with the
program are the plan (``plan``). A node process on each host (``node``), which the launcher starts here or over ssh, or
the user by hand, connects to the launcher (``nodes``). It checks its host (``checks``, ``looking``), starts the ranks
that the engine describes (``engines``), and reports their output and their end, from which the run (``running``) makes
the outcome (``outcome``). If hosts are lost, the job (``job``) runs again on the others.
"""
