"""The base class of architectures: configuration, weights, layers and pooling of a family of encoders."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from xmc_tf.common.errors import InputError
from xmc_tf.encoder.network.attention import Attention, Tensor
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.weights import Weight, WeightNames, dense, norm, table


def lower_layers(layers: int, train_layers: str) -> int:
    """Return the number of layers below the trained ones, which are "half" or a number of upper layers."""
    trained = -(-layers // 2) if train_layers == "half" else int(train_layers)
    if trained > layers:
        raise InputError(
            "--train-layers exceeds the number of layers of the encoder",
            expected=f"at most {layers}, half or all", received=train_layers,
            fix=f"use --train-layers {layers}, which freezes only the embeddings, or --train-layers all",
        )  # fmt: skip
    return layers - trained


class Architecture:
    """An architecture of encoders. Subclasses state how they differ from BERT's layers, fields and weights.

    To add one: write a subclass in a file of ``encoder/architectures``, and list it in ``registry.py``.
    """

    name: ClassVar[str]  # the model type in config.json
    prefix: ClassVar[str]  # of all names of weights, if the file has a head beside the encoder
    fields: ClassVar[Mapping[str, str]] = {}  # names in config.json that differ from BERT's
    defaults: ClassVar[Mapping[str, Any]]  # values of fields that a file may leave out, by BERT's names
    other_dropouts: ClassVar[tuple[str, ...]] = ()  # more fields that hold the hidden dropout rate
    names: ClassVar[WeightNames] = WeightNames()
    attention: ClassVar[type[Attention]] = Attention
    pooling: ClassVar[str] = "cls"  # the default; "pooler" only if the files have weights for it
    cls_is_last: ClassVar[bool] = False  # the classification token is a document's last
    after_layers: ClassVar[tuple[str, ...]] = ("pooler",)  # names of weights that only follow the last layer

    def field(self, name: str) -> str:
        """Return the name in config.json of a field of BERT."""
        return self.fields.get(name, name)

    @property
    def has_pooler(self) -> bool:
        return bool(self.names.pooler)

    # The configuration

    def config(self, content: Mapping[str, Any], where: str) -> EncoderConfig:
        """Parse the content of a ``config.json``; ``where`` names it in error messages."""
        fields = Fields(self, content, where)
        self.check(fields)
        width, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
        rows, pad_id = fields.whole("max_position_embeddings", 0), fields.whole("pad_token_id", -1)
        embedding_width = fields.value("embedding_size") or width
        if type(embedding_width) is not int or embedding_width < 1:
            raise fields.misfit("embedding_size", "a whole number above 0", embedding_width)
        first = self.first_position(pad_id)
        return EncoderConfig(
            architecture=self, content=content, vocabulary=fields.whole("vocab_size"), width=width,
            layers=fields.whole("num_hidden_layers"), heads=heads, head_width=self.head_width(fields, width, heads),
            inner=fields.whole("intermediate_size"), activation=fields.activation(), embedding_width=embedding_width,
            positions=rows if self.has_positions(content) else 0, first_position=first,
            segments=fields.whole("type_vocab_size", 0), max_length=self.max_length(rows, first),
            epsilon=fields.real("layer_norm_eps"), dropout=fields.real("hidden_dropout_prob"),
            attention_dropout=fields.real("attention_probs_dropout_prob"), pad_id=max(pad_id, 0),
            deviation=fields.real("initializer_range"),
        )  # fmt: skip

    def check(self, fields: Fields) -> None:
        """Raise an InputError for unsupported options that would change the result."""
        fields.require("position_embedding_type", None, "absolute")
        fields.require("is_decoder", None, False)
        fields.require("add_cross_attention", None, False)
        fields.require("rope_scaling", None)

    def head_width(self, fields: Fields, width: int, heads: int) -> int:
        each = fields.content.get("attention_head_size") or width // heads
        if type(each) is not int or each < 1 or each * heads != width:
            raise fields.misfit("num_attention_heads", f"a divisor of {width}", heads)
        return each

    def key_heads(self, config: EncoderConfig) -> int:
        """Return the number of heads of keys and values, each of which a group of heads of queries shares."""
        return config.heads

    def has_positions(self, content: Mapping[str, Any]) -> bool:
        """Return whether there are embeddings of absolute positions."""
        return True

    def first_position(self, pad_id: int) -> int:
        """Return the row of the first token in the embeddings of positions."""
        return 0

    def max_length(self, rows: int, first: int) -> int:
        return rows - first

    def pecos_pooling(self, config: EncoderConfig) -> str | None:
        """Return the pooling of PECOS's embeddings; None if PECOS cannot use the architecture."""
        return None

    # The weights

    def weights(self, config: EncoderConfig) -> list[Weight]:
        """Return all weights of an encoder, in a fixed order."""
        found = list(self.embedding_weights(config))
        for number, file in enumerate(self.layer_names(config)):
            found += self.layer_weights(config, number, file)
        return [*found, *self.shared_weights(config)]

    def names_of(self, config: EncoderConfig) -> WeightNames:
        return self.names

    def own_layers(self, config: EncoderConfig) -> int:
        """Return the number of layers that have weights of their own."""
        return config.layers

    def layer_names(self, config: EncoderConfig) -> list[str]:
        """Return the prefix of each layer's weight names in files, for layers with weights of their own."""
        return [self.names_of(config).layer.format(n=number) for number in range(config.layers)]

    def layer_order(self, config: EncoderConfig) -> list[int]:
        """Return, for each layer, the index of the weights that it uses."""
        return list(range(config.layers))

    def frozen_layers(self, config: EncoderConfig, train_layers: str) -> int | None:
        """Return the number of lower layers to freeze, with the embeddings; None if all weights are trained.

        ``train_layers`` is "all", "half" or the number of upper layers to train.
        """
        if train_layers == "all":
            return None
        if self.layer_order(config) != list(range(config.layers)):
            raise InputError(
                f"--train-layers {train_layers}: the layers of {self.name} share their weights, so none can be frozen",
                expected="all", received=train_layers, fix="use --train-layers all, or another encoder",
            )  # fmt: skip
        return lower_layers(config.layers, train_layers)

    def is_frozen(self, name: str, frozen_layers: int) -> bool:
        """Return whether a weight is frozen: those of lower layers, and those that lower and upper layers share."""
        kind, _, rest = name.partition(".")
        return int(rest.partition(".")[0]) < frozen_layers if kind == "layer" else kind not in self.after_layers

    def embedding_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        names, width = self.names_of(config), config.embedding_width
        yield from self.token_weights(config)
        yield from norm("embedding_norm", names.embedding_norm, width)
        if width != config.width:
            yield from dense("projection", (names.projection,), width, config.width)

    def token_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        """Yield the embeddings of words, positions and segments."""
        names, width = self.names_of(config), config.embedding_width
        yield table("words", names.words, (config.vocabulary, width))
        if config.positions:
            yield table("positions", names.positions, (config.positions, width))
        if config.segments:
            yield table("segments", names.segments, (config.segments, width))

    def layer_weights(self, config: EncoderConfig, number: int, file: str) -> Iterator[Weight]:
        """Yield the weights of a layer; ``file`` begins their names in files."""
        own, names, width = f"layer.{number}.", self.names_of(config), config.width
        yield from self.attention_weights(config, own, file)
        yield from norm(f"{own}out_norm", file + names.out_norm, width)
        yield from self.feed_forward_weights(config, own, file)
        yield from norm(f"{own}outer_norm", file + names.outer_norm, width)

    def attention_weights(self, config: EncoderConfig, own: str, file: str, biased: bool = True) -> Iterator[Weight]:
        names, all_heads = self.names_of(config), config.heads * config.head_width
        files = tuple(file + name for name in names.qkv)
        yield from dense(f"{own}qkv", files, config.width, 3 * all_heads, biased)
        yield from dense(f"{own}out", (file + names.out,), all_heads, config.width, biased)

    def feed_forward_weights(
        self, config: EncoderConfig, own: str, file: str, biased: bool = True, gated: bool = False
    ) -> Iterator[Weight]:
        names = self.names_of(config)
        files = tuple(file + name for name in names.inner)
        yield from dense(f"{own}inner", files, config.width, (1 + gated) * config.inner, biased)
        yield from dense(f"{own}outer", (file + names.outer,), config.inner, config.width, biased)

    def shared_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        """Yield the weights that belong to no single layer: those that all layers share, and those after the last."""
        if self.has_pooler:
            yield from dense("pooler", (self.names.pooler,), config.width, config.width, unused=True)

    # The network

    def embed(self, net: Parts, ids: Tensor) -> Tensor:
        """Return the input of the first layer."""
        x = net.normalize(net.tokens(ids), "embedding_norm")
        return net.projected(net.dropped(x))

    def layer(self, net: Parts, x: Tensor, layer: str, number: int) -> Tensor:
        """Apply a layer that normalizes after each residual sum; ``layer`` begins the names of its weights."""
        attended = net.dropped(net.dense(net.attend(x, layer, number), f"{layer}out"))
        x = net.add_and_normalize(x, attended, f"{layer}out_norm")
        outer = net.dense(self.inner(net, x, layer), f"{layer}outer")
        return net.add_and_normalize(x, net.dropped(outer), f"{layer}outer_norm")

    def inner(self, net: Parts, x: Tensor, layer: str) -> Tensor:
        """Return the hidden layer of a layer's feed-forward network."""
        return net.operations.activate(net.dense(x, f"{layer}inner"))

    def finish(self, net: Parts, x: Tensor) -> Tensor:
        """Return the hidden states, given the output of the last layer."""
        return x
