from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Attention, Tensor
from xmc_tf.encoder.network.config import NO_LIMIT, EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.weights import Weight, WeightNames


class XlnetAttention(Attention):
    """Attention that also scores distances, and whether two tokens belong to the same segment."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config, mask = self.config, self.layout.mask
        distances = self.ops.cast(self.distances(), self.ops.float32)
        if (limit := config.option("clamp_len", -1)) > 0:
            distances = self.ops.clip_by_value(distances, -float(limit), float(limit))
        frequencies = 1 / 10000 ** (np.arange(0, config.width, 2, dtype=np.float32) / config.width)
        angles = distances[:, None] * self.ops.constant(frequencies, self.ops.float32)[None, :]
        table = self.ops.concat([self.ops.sin(angles), self.ops.cos(angles)], axis=1)
        self._table = self.operations.drop(table, config.dropout)
        # The classification token is the last and has its own segment, as has padding.
        place = self.ops.range(self.layout.width)[None, :]
        last = place == self.ops.reduce_sum(mask, axis=1, keepdims=True) - 1
        segment = self.ops.where(mask == 0, 3, self.ops.where(last, 2, 0))
        self._other = self.ops.cast(segment[:, None, :, None] != segment[:, None, None, :], self.dtype)

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        of_distances = self.split_heads(self.dense(self._table, f"{layer}r"))[0]
        contents = self.ops.matmul(query + self._bias(f"{layer}r_w_bias"), key, transpose_b=True)
        distances = self.by_distance(of_distances, query + self._bias(f"{layer}r_r_bias"))
        embedded = self.ops.cast(self.ops.transpose(self.weights[f"{layer}seg_embed"], [1, 2, 0]), self.dtype)[None]
        segments = self.ops.matmul(query + self._bias(f"{layer}r_s_bias"), embedded)
        same, other = self.ops.split(segments, 2, axis=3)
        scores = contents + distances + same + (other - same) * self._other
        return scores * self.ops.cast(self.scale, self.dtype)

    def _bias(self, name: str) -> Tensor:
        return self.ops.cast(self.weights[name], self.dtype)[None, :, None, :]


class XlNet(Architecture):
    """XLNet (Yang et al. 2019, https://arxiv.org/abs/1906.08237), which reads documents of any length."""

    name = "xlnet"
    prefix = "transformer."
    fields: ClassVar = {
        "hidden_size": "d_model", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "intermediate_size": "d_inner", "hidden_act": "ff_activation", "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "dropout",
    }  # fmt: skip
    defaults = BERT_DEFAULTS | {
        "vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "max_position_embeddings": 0, "type_vocab_size": 0, "pad_token_id": 5,
    }  # fmt: skip
    names = WeightNames(
        layer="layer.{n}.", words="word_embedding", out_norm="rel_attn.layer_norm", inner=("ff.layer_1",),
        outer="ff.layer_2", outer_norm="ff.layer_norm", pooler="",
    )  # fmt: skip
    attention = XlnetAttention
    pooling = "last"
    cls_is_last = True

    def check(self, fields: Fields) -> None:
        super().check(fields)
        fields.require("attn_type", None, "bi")
        fields.require("bi_data", None, False)

    def head_width(self, fields: Fields, width: int, heads: int) -> int:
        each = fields.content.get("d_head") or width // heads
        if type(each) is not int or each < 1:
            raise fields.misfit("num_attention_heads", f"a divisor of {width}", heads)
        return each

    def has_positions(self, content: Mapping[str, Any]) -> bool:
        return False

    def max_length(self, rows: int, first: int) -> int:
        return NO_LIMIT

    def pecos_pooling(self, config: EncoderConfig) -> str | None:
        """Return the pooling that the summary options describe."""
        summary = config.option("summary_type", "last"), config.content.get("summary_activation", "tanh") or None
        if summary not in (("last", None), ("last", "tanh")) or config.option("summary_use_proj", True):
            raise InputError(
                "these summary options of XLNet are not supported",
                expected='"summary_type": "last", "summary_activation": "tanh" or null, "summary_use_proj": false',
                received=", ".join(
                    str(config.content.get(f"summary_{name}"))[:20] for name in ("type", "activation", "use_proj")
                ),
            )
        return "last_tanh" if summary[1] else "last"

    def embedding_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield from self.token_weights(config)

    def attention_weights(self, config: EncoderConfig, own: str, file: str, biased: bool = True) -> Iterator[Weight]:
        """Yield weights that files store by head, in the shape [width, heads, head_width]."""
        width, heads, each = config.width, config.heads, config.head_width

        def flat(one: np.ndarray) -> np.ndarray:
            return np.reshape(one, (width, heads * each))

        def by_head(one: np.ndarray) -> np.ndarray:
            return np.reshape(one, (width, heads, each))

        files = tuple(f"{file}rel_attn.{name}" for name in "qkv")
        yield Weight(f"{own}qkv.kernel", (width, 3 * heads * each), files, flat, by_head)
        yield Weight(
            f"{own}out.kernel", (heads * each, width), (f"{file}rel_attn.o",),
            lambda one: flat(one).T, lambda one: by_head(np.ascontiguousarray(one.T)),
        )  # fmt: skip
        yield Weight(f"{own}r.kernel", (width, heads * each), (f"{file}rel_attn.r",), flat, by_head)
        for name in ("r_w_bias", "r_r_bias", "r_s_bias"):
            yield Weight(f"{own}{name}", (heads, each), (f"{file}rel_attn.{name}",))
        yield Weight(f"{own}seg_embed", (2, heads, each), (f"{file}rel_attn.seg_embed",))

    def shared_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield Weight("mask", (1, 1, config.width), ("mask_emb",), unused=True)

    def embed(self, net: Parts, ids: Tensor) -> Tensor:
        return net.dropped(net.tokens(ids))

    def inner(self, net: Parts, x: Tensor, layer: str) -> Tensor:
        return net.dropped(super().inner(net, x, layer))

    def finish(self, net: Parts, x: Tensor) -> Tensor:
        return net.dropped(x)
