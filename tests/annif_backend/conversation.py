"""Runs in Annif's environment: asks a trained project through Annif's REST interface, and prints the answers as JSON.

python conversation.py PROJECT TEXT…
"""

import json
import sys

import annif

PROJECT, *TEXTS = sys.argv[1:]

client = annif.create_app().test_client()
answers = {
    "project": client.get(f"/v1/projects/{PROJECT}").json(),
    "suggestions": [
        client.post(f"/v1/projects/{PROJECT}/suggest", data={"text": text, "limit": 3}).json() for text in TEXTS
    ],
    "batch": client.post(
        f"/v1/projects/{PROJECT}/suggest-batch", json={"documents": [{"text": text} for text in TEXTS]}
    ).json(),
    "loaded": sorted(name for name in sys.modules if name in ("tensorflow", "transformers", "sklearn")),
}
print(json.dumps(answers))
