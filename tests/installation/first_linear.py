"""What a new user of linear models does: train on texts, and print the first prediction.

Run by the Python of the environment under test, in an empty folder. The last line that it prints is JSON: a digest of
each file of the model that does not name versions.
"""

import hashlib
import json
import random
import zipfile
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

from xmc_tf.linear import train
from xmc_tf.models.xr_linear import XRLinear

TOPICS = ("library", "kitchen", "harbour", "forest", "theatre", "station", "garden", "museum")


draw = random.Random(0)
topics = [draw.randrange(len(TOPICS)) for _ in range(400)]
# The Pythons disagree whether the last characters are letters, which came with Unicode 14 and 15.
texts = [" ".join([*(f"Wörd{draw.randrange(40)}" for _ in range(8)), TOPICS[topic]]) for topic in topics]
texts[::9] = [text + "\U00010570 \U0001e4d0" for text in texts[::9]]
Path("X.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
save_npz("Y.npz", csr_matrix((np.ones(400, np.float32), topics, np.arange(401)), shape=(400, len(TOPICS))))
Path("labels.txt").write_text(
    "".join(f"{topic}\t{topic.upper()}\U00010597 \U0001e4d0\n" for topic in TOPICS), encoding="utf-8"
)

NAMES = ["--labels", "labels.txt", "--label-names", "true"]
train.main(["-t", "X.txt", "-y", "Y.npz", "-m", "model", *NAMES, "--max-leaf-size", "4"])
best = XRLinear.load("model").best(["the museum of the city"], k=1)[0][0]
print(best)
assert best[0] == "museum", best


def digest(path: Path) -> str:
    """Return a hash of a file; of an archive, that of its members, because early Pythons 3.11 write other headers."""
    if path.suffix != ".npz":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    with zipfile.ZipFile(path) as archive:
        members = [(name, hashlib.sha256(archive.read(name)).hexdigest()) for name in archive.namelist()]
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()


print(
    json.dumps(
        {
            str(path.relative_to("model")): digest(path)
            for path in sorted(Path("model").rglob("*"))
            if path.is_file() and path.name != "params.json"
        }
    )
)
