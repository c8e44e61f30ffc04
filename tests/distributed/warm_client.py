"""The client of a process that ``warm.py`` runs: passes its environment, output and signals, and exits like it.

``python -IS warm_client.py SOCKET -m module [argument …]``
"""

import json
import os
import signal
import socket
import sys

client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
asked = {"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
socket.send_fds(client, [json.dumps(asked).encode()], [1, 2])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: client.sendall(bytes([number])))
code = int(client.recv(64) or b"1")
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
