"""An extension of griffe, which reads the docstrings: ``Example:`` is a section of examples, like ``Examples:``."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rename the section in every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section in one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n", 1)
