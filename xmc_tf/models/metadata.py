import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from xmc_tf.common.errors import InputError
from xmc_tf.data.windows import WindowOptions
from xmc_tf.params.choices import LONG_TEXTS

if TYPE_CHECKING:
    from xmc_tf.tables.columns import TrainedColumns

COLUMNS = "columns"  # of the training table
EXAMPLES = "examples"  # documents to try the model with
_EXAMPLES, _EXAMPLE_LENGTH = 3, 500
ADDED = "nr_added_labels"  # labels that rankers and trees do not know


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model, as stored in ``params.json``: parameters, shapes, seed and versions.

    It is immutable; :meth:`replace` returns a changed copy. Unknown keys and the order of the keys are preserved.
    """

    content: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", MappingProxyType(copy.deepcopy(dict(self.content))))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.content),)

    def __repr__(self) -> str:
        return f"ModelMetadata({self.model}, {', '.join(self.content)})"

    def to_json(self) -> dict[str, Any]:
        """Return the metadata as a dictionary for ``json.dump``."""
        return copy.deepcopy(dict(self.content))

    def replace(self, **changes: Any) -> Self:
        return type(self)({**self.content, **changes})

    @property
    def model(self) -> str:
        """The kind of the model: "XTransformer" or "XLinear"; empty for rankers without metadata."""
        return str(self.content.get("model", ""))

    @property
    def nr_labels(self) -> int:
        """Number of labels, including those that were added after training."""
        return int(self._number("nr_labels")) + int(self.content.get(ADDED, 0))

    @property
    def nr_features(self) -> int:
        """Number of features that the rankers read, including the embedding; without rankers, the embedding size."""
        return int(self._number("nr_features")) if "nr_features" in self.content else self.embedding_dim

    @property
    def seed(self) -> int:
        return int(self._number("seed"))

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the packages that the model was trained with."""
        return dict(self._value("versions"))

    @property
    def embedding_dim(self) -> int:
        return int(self._number("embedding_dim"))

    @property
    def embedding_weight(self) -> float:
        """Length to which the embedding is scaled in the features of the rankers."""
        return float(self._number("embedding_weight"))

    @property
    def truncate_length(self) -> int:
        """Maximum number of tokens that the encoder reads at once."""
        return int(self._number("truncate_length"))

    @property
    def reading(self) -> WindowOptions:
        """The options for reading documents. PECOS's models have none, and truncate documents."""
        if "long_texts" not in self.content:
            return WindowOptions(self.truncate_length)
        long_texts = self._value("long_texts")
        if long_texts not in LONG_TEXTS:
            raise InputError(
                f"params.json: long_texts is {long_texts!r}"[:100], expected=", ".join(LONG_TEXTS),
                fix="copy the model again",
            )  # fmt: skip
        return WindowOptions.of(self.truncate_length, long_texts, int(self._number("max_windows")))

    @property
    def beam_size(self) -> int:
        """Number of nodes that the label head keeps at each level."""
        return int(self._number("beam_size"))

    @property
    def only_topk(self) -> int:
        """Default number of labels to predict per document."""
        return int(self._number("only_topk"))

    @property
    def ensemble_method(self) -> str:
        """Default method of combining scores: the label head's, the rankers', or both."""
        return str(self._value("ensemble_method"))

    @property
    def pooling(self) -> str:
        """The pooling of the encoder; "auto" uses the setting in the encoder's own file."""
        return str(self.content.get("pooling", "auto"))

    @property
    def train_params(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self._value("train_params")))

    @property
    def pred_params(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self._value("pred_params")))

    @property
    def columns(self) -> "TrainedColumns | None":
        """The columns of the training table; None if the model was not trained on a table."""
        if COLUMNS not in self.content:
            return None
        from xmc_tf.tables.columns import TrainedColumns  # a query needs no table

        return TrainedColumns.from_json(self.content[COLUMNS])

    def with_columns(self, columns: "TrainedColumns | None") -> Self:
        return self if columns is None else self.replace(**{COLUMNS: columns.to_json()})

    @property
    def examples(self) -> list[str]:
        """The beginnings of some test documents for trying the model; empty if it was not trained on a table."""
        found = self.content.get(EXAMPLES, [])
        return [str(text) for text in found] if isinstance(found, list) else []

    def with_examples(self, texts: Sequence[str]) -> Self:
        """Return a copy with the beginnings of the first few documents as examples."""
        return self.replace(**{EXAMPLES: [text[:_EXAMPLE_LENGTH] for text in texts[:_EXAMPLES]]})

    def _value(self, key: str) -> Any:
        if key not in self.content:
            raise InputError(f"params.json: {key} is missing", fix="copy the model again")
        return self.content[key]

    def _number(self, key: str) -> float:
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"params.json: {key} is {value!r}"[:100], expected="a number", fix="copy the model again")
        return value
