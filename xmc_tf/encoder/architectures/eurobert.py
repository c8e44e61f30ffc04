from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Attention, Tensor
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.rotary import OneRotation, check_rotation
from xmc_tf.encoder.network.weights import Weight, WeightNames, dense, norm, table


class EuroBert(Architecture):
    """EuroBERT (Boizard et al. 2025, https://arxiv.org/abs/2503.05500): the layers of Llama, and all tokens are seen.

    Heads share keys and values in groups, layers normalize their inputs by size, and feed-forward networks have gates.
    """

    name = "eurobert"
    prefix = "model."
    fields: ClassVar = {
        "layer_norm_eps": "rms_norm_eps", "hidden_dropout_prob": "hidden_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    }  # fmt: skip
    defaults = BERT_DEFAULTS | {
        "vocab_size": 128256, "hidden_act": "silu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 8192, "type_vocab_size": 0, "layer_norm_eps": 1e-5, "pad_token_id": 128001,
    }  # fmt: skip
    names = WeightNames(
        layer="layers.{n}.", words="embed_tokens", qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        out="self_attn.o_proj", out_norm="input_layernorm", inner=("mlp.gate_proj", "mlp.up_proj"),
        outer="mlp.down_proj", outer_norm="post_attention_layernorm", pooler="",
    )  # fmt: skip
    attention: ClassVar[type[Attention]] = OneRotation
    pooling = "mean"
    after_layers = ("final_norm",)

    def check(self, fields: Fields) -> None:
        super().check(fields)
        self.check_rotations(fields)
        heads, keys = fields.whole("num_attention_heads"), fields.content.get("num_key_value_heads")
        if keys is not None and (type(keys) is not int or keys < 1 or heads % keys):
            raise fields.misfit("num_key_value_heads", f"a divisor of {heads}", keys)

    def check_rotations(self, fields: Fields) -> None:
        check_rotation(fields, "rope_theta")

    def head_width(self, fields: Fields, width: int, heads: int) -> int:
        each = fields.value("head_dim") or width // heads
        if type(each) is not int or each < 2 or each % 2:
            raise fields.misfit("head_dim", "an even number", each)
        return each

    def key_heads(self, config: EncoderConfig) -> int:
        return config.option("num_key_value_heads", config.heads)

    def has_positions(self, content: Mapping[str, Any]) -> bool:
        return False

    def embedding_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield table("words", self.names.words, (config.vocabulary, config.width))

    def layer_weights(self, config: EncoderConfig, number: int, file: str) -> Iterator[Weight]:
        own = f"layer.{number}."
        yield from self.attention_weights(config, own, file, config.option("attention_bias", False))
        yield from self.size_norm(f"{own}out_norm", file + self.names.out_norm, config.width)
        yield from self.feed_forward_weights(config, own, file, config.option("mlp_bias", False), gated=True)
        yield from self.size_norm(f"{own}outer_norm", file + self.names.outer_norm, config.width)

    def attention_weights(self, config: EncoderConfig, own: str, file: str, biased: bool = True) -> Iterator[Weight]:
        heads, keys = config.heads * config.head_width, self.key_heads(config) * config.head_width
        files, sizes = tuple(file + name for name in self.names.qkv), (heads, keys, keys)
        yield from dense(f"{own}qkv", files, config.width, sum(sizes), biased, sizes=sizes)
        yield from dense(f"{own}out", (file + self.names.out,), heads, config.width, biased)

    def shared_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield from self.size_norm("final_norm", "norm", config.width)

    def size_norm(self, name: str, file: str, width: int) -> Iterator[Weight]:
        """Yield the weight of a normalization by size."""
        yield from norm(name, file, width, shift=False)

    def embed(self, net: Parts, ids: Tensor) -> Tensor:
        return net.dropped(net.tokens(ids))

    def layer(self, net: Parts, x: Tensor, layer: str, number: int) -> Tensor:
        """Apply a layer that normalizes its inputs."""
        attended = net.attend(net.normalize_size(x, f"{layer}out_norm"), layer, number)
        x += self.branch(net, net.dense(attended, f"{layer}out"), f"{layer}attended_norm")
        inner = self.inner(net, net.normalize_size(x, f"{layer}outer_norm"), layer)
        return x + self.branch(net, net.dense(inner, f"{layer}outer"), f"{layer}fed_norm")

    def inner(self, net: Parts, x: Tensor, layer: str) -> Tensor:
        return net.gated(x, f"{layer}inner")

    def branch(self, net: Parts, y: Tensor, norm: str) -> Tensor:
        """Return what a part of a layer adds to its input; ``norm`` names a normalization, if there is one."""
        return net.ops.cast(net.dropped(y), net.ops.float32)

    def finish(self, net: Parts, x: Tensor) -> Tensor:
        return net.normalize_size(x, "final_norm")
