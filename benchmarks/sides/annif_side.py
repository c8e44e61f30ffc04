"""A project of Annif that stays loaded and is asked in turns: ``annif_side.py PROJECT TEXTS``, in the projects' folder.

Needs Annif's Python, and the repository on its path.
"""

import sys
from typing import Any

import annif
import annif.registry
from annif.corpus import Document

from benchmarks.sides.in_turns import answer, texts_of, times

_ROUND, _BATCHES = 100, 5


def main() -> None:
    project_id, file = sys.argv[1:]
    texts = [text.decode() for text in texts_of(file)]
    with annif.create_flask_app().app_context():
        project = annif.registry.get_project(project_id)

        def suggest(part: list[str]) -> None:
            """Suggest subjects and choose the best ten, as ``annif eval`` and the REST interface do."""
            for suggestions in project.suggest([Document(text=text) for text in part]).filter(limit=10):
                list(suggestions)

        def handle(turn: int, batch: int) -> Any:
            count = _ROUND if batch == 1 else _BATCHES
            return times(suggest, texts, turn * count, count, batch)

        suggest(texts[:1])  # loads the model
        answer(handle)


if __name__ == "__main__":
    main()
