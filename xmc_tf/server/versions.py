"""The served version of a model. It is loaded, warmed up, and replaced when a new version appears."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.leftovers import TemporaryFolder
from xmc_tf.fusion import decide
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model
from xmc_tf.params import PredictionOptions
from xmc_tf.server.private_copy import State, load_copy, state_of
from xmc_tf.server.questions import BestLabels

_LOG = logging.getLogger(__name__)
_METADATA = ("params.json", "param.json")
_MOST_CHOICES = 32  # sets of labels, each of which takes a few bytes per node of the label tree


class _Found(NamedTuple):
    """A model folder with its version and an identity, which changes when another model replaces it."""

    version: int
    folder: Path
    identity: tuple[int, int, int]


class Version:
    """A loaded model and its version number."""

    def __init__(
        self, number: int, model: Model, beam_size: int | None, threshold: float, threads: int,
        copy: TemporaryFolder | None = None,
    ) -> None:  # fmt: skip
        self.number, self.model, self._copy = number, model, copy
        self._beam_size, self._threshold, self._threads = beam_size, threshold, threads
        self._choices: dict[tuple[str | int, ...], Version] = {}
        self._choosing = threading.Lock()

    def only(self, labels: tuple[str | int, ...]) -> "Version":
        """Return this version, restricted to the given labels (names or numbers). Recent restrictions are cached."""
        with self._choosing:
            found = self._choices.pop(labels, None)
            if found is None:
                model = self.model.only(labels)
                found = Version(self.number, model, self._beam_size, self._threshold, self._threads, self._copy)
            self._choices[labels] = found  # the last one used is last
            if len(self._choices) > _MOST_CHOICES:
                self._choices.pop(next(iter(self._choices)))
        return found

    def predict(self, texts: Sequence[str], k: int) -> list[BestLabels]:
        """Return the k best labels of each text, without those below the threshold."""
        threads = 1 if len(texts) == 1 else self._threads  # starting threads takes longer than one text
        found = self.model.predict(texts, beam_size=self._beam_size, only_topk=k, threads=threads)
        rows = []
        for a, b in zip(found.indptr[:-1], found.indptr[1:], strict=True):
            labels, scores = found.indices[a:b], found.data[a:b]
            keep = scores >= self._threshold
            rows.append(BestLabels(labels[keep], scores[keep]))
        return rows


class ServedModel:
    """The newest version of a model: the model in the folder itself, or the subfolder with the highest number."""

    def __init__(
        self, folder: str | Path, beam_size: int | None = None, threshold: float = float("-inf"),
        threads: int = -1, runtime: str = "auto", min_precision: float | None = None,
    ) -> None:  # fmt: skip
        self.folder, self._min_precision = Path(folder), min_precision
        self._options, self._runtime = (beam_size, threshold, threads), runtime
        self._refreshing = threading.Lock()
        found = self._newest()
        if found is None:
            raise InputError(
                f"{self.folder} is not the folder of a model",
                expected="a folder with params.json, or with numbered models: 1, 2, …",
            )
        self._served = found
        self.current = self._loaded(found)
        self._state: State = ()  # of the newest folder, at the last search
        self._failed: State | None = None  # of the folder that could not be loaded

    def refresh(self, report: Callable[[str], object] = lambda result: None) -> bool:
        """Load a newer version if there is one, and report "loaded" or "failed". Return whether the version changed.

        If loading fails, the old version stays in use. A folder that was just found, or changed meanwhile, may be
        incomplete: it is tried again once it has stayed the same between two checks. Then its failure is reported.
        """
        with self._refreshing:
            found = self._newest()
            if found is None or found == self._served:
                return False
            state = state_of(found.folder)
            is_changing, self._state = state != self._state, state
            if self._failed is not None and (is_changing or state == self._failed):
                return False
            try:
                version = self._loaded(found)
            except (InputError, OSError) as error:
                if is_changing or state_of(found.folder) != state:
                    self._failed = ()  # it is not complete yet
                    return False
                self._failed = state
                _LOG.error("version %s is not served until its folder changes: %s", found.version, error)
                report("failed")
                return False
            self._failed, self._served, self.current = None, found, version
            _LOG.info("serving version %s of %s", version.number, self.folder)
            report("loaded")
            return True

    def _loaded(self, found: _Found) -> Version:
        model, copy = load_copy(found.folder, lambda folder: load(folder, runtime=self._runtime))
        # Without numbers, models that replace each other are counted.
        number = found.version or (self.current.number + 1 if hasattr(self, "current") else 1)
        beam_size, threshold, threads = self._options
        if self._min_precision is not None:
            fusion = None if model.evidence is None else model.evidence.fusion
            threshold = decide(PredictionOptions(min_precision=self._min_precision), fusion).threshold or 0.0
        version = Version(number, model, beam_size, threshold, threads, copy)
        try:
            version.predict([""], 1)  # compiles and traces, which the first request would wait for
        except InputError as error:
            raise InputError(
                f"{found.folder} cannot read texts: {error.problem}",
                expected="a model that was trained on texts, with its own vectorizer",
            ) from None
        return version

    def _newest(self) -> _Found | None:
        """Return the model in the folder itself, or in the subfolder with the highest number, or None."""
        if (identity := _identity(self.folder)) is not None:
            return _Found(0, self.folder, identity)
        numbered = [place for place in self.folder.glob("*") if place.name.isascii() and place.name.isdecimal()]
        for place in sorted(numbered, key=lambda place: int(place.name), reverse=True):
            if (identity := _identity(place)) is not None:
                return _Found(int(place.name), place, identity)
        return None


def _identity(folder: Path) -> tuple[int, int, int] | None:
    """Return the identity of a model folder, which changes when the model is replaced, or None if it has no model."""
    for name in _METADATA:
        try:
            status = (folder / name).stat()
        except OSError:
            continue
        return status.st_ino, status.st_mtime_ns, status.st_size
    return None
