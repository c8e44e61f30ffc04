"""Run ``xmc_tf.train`` on a disk that is full as soon as a file exceeds a number of bytes.

``training_on_full_disk.py BYTES [flag …]``
"""

import resource
import sys

from xmc_tf import train
from xmc_tf.common.process import cli

limit, flags = int(sys.argv[1]), sys.argv[2:]
# Python ignores SIGXFSZ, so that writing fails as on a full disk.
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
cli.run(train.main, flags)
