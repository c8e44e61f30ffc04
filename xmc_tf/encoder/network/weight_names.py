"""The weights of an encoder: their names and shapes in this package, and their names in each architecture's files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from xmc_tf.encoder.network.config import EncoderConfig

# From a file's array to ours, and back. Files have matrices as PyTorch multiplies them: [outputs, inputs].
Turn = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Weight:
    """A weight of the network. Files store it as one array, or as several to join along the last axis."""

    name: str  # such as "layer.3.out.kernel"
    shape: tuple[int, ...]
    files: tuple[str, ...]  # names of the arrays, without the architecture's prefix
    to_own: Turn = np.asarray
    to_file: Turn = np.asarray
    unused: bool = False  # by embeddings, so that files may lack it


@dataclass(frozen=True)
class Names:
    prefix: str  # of all names, if the file has a head beside the encoder
    layer: str = "encoder.layer.{n}."
    words: str = "embeddings.word_embeddings"
    positions: str = "embeddings.position_embeddings"
    segments: str = "embeddings.token_type_embeddings"
    embedding_norm: str = "embeddings.LayerNorm"
    projection: str = "embeddings_project"
    qkv: tuple[str, ...] = ("attention.self.query", "attention.self.key", "attention.self.value")
    out: str = "attention.output.dense"
    out_norm: str = "attention.output.LayerNorm"
    inner: str = "intermediate.dense"
    outer: str = "output.dense"
    outer_norm: str = "output.LayerNorm"
    pooler: str = "pooler.dense"


NAMES = {
    "bert": Names("bert."),
    "roberta": Names("roberta."),
    "xlm-roberta": Names("roberta."),
    "electra": Names("electra.", pooler=""),
    "distilbert": Names(
        "distilbert.", layer="transformer.layer.{n}.",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"), out="attention.out_lin",
        out_norm="sa_layer_norm", inner="ffn.lin1", outer="ffn.lin2", outer_norm="output_layer_norm", pooler="",
    ),
    "mpnet": Names(
        "mpnet.", qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"), out="attention.attn.o",
        out_norm="attention.LayerNorm",
    ),
    "albert": Names(
        "albert.", layer="encoder.albert_layer_groups.{n}.", projection="encoder.embedding_hidden_mapping_in",
        qkv=("attention.query", "attention.key", "attention.value"), out="attention.dense",
        out_norm="attention.LayerNorm", inner="ffn", outer="ffn_output", outer_norm="full_layer_layer_norm",
        pooler="pooler",
    ),
    "deberta-v2": Names(
        "deberta.", projection="embeddings.embed_proj",
        qkv=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"), pooler="",
    ),
    "xlnet": Names(
        "transformer.", layer="layer.{n}.", words="word_embedding", embedding_norm="",
        qkv=("rel_attn.q", "rel_attn.k", "rel_attn.v"), out="rel_attn.o", out_norm="rel_attn.layer_norm",
        inner="ff.layer_1", outer="ff.layer_2", outer_norm="ff.layer_norm", pooler="",
    ),
    "modernbert": Names(
        "model.", layer="layers.{n}.", words="embeddings.tok_embeddings", embedding_norm="embeddings.norm",
        qkv=("attn.Wqkv",), out="attn.Wo", out_norm="attn_norm", inner="mlp.Wi", outer="mlp.Wo",
        outer_norm="mlp_norm", pooler="",
    ),
}  # fmt: skip


def weights_of(config: EncoderConfig) -> list[Weight]:
    """Return all weights of an encoder, in a fixed order."""
    names = NAMES[config.architecture]
    found = list(_embeddings(config, names))
    for number, file in enumerate(layer_names(config)):
        found += _layer(config, names, number, file)
    return [*found, *_shared(config, names)]


def layer_names(config: EncoderConfig) -> list[str]:
    """Return the prefix of each layer's weight names in the files, for layers with weights of their own."""
    names = NAMES[config.architecture]
    if config.architecture != "albert":
        return [names.layer.format(n=number) for number in range(config.layers)]
    groups, inner = range(config.option("num_hidden_groups", 1)), range(config.option("inner_group_num", 1))
    return [f"{names.layer.format(n=group)}albert_layers.{number}." for group in groups for number in inner]


def layer_order(config: EncoderConfig) -> list[int]:
    """Return, for each layer, the index of the weights that it uses; ALBERT's layers share weights."""
    if config.architecture != "albert":
        return list(range(config.layers))
    groups, inner = config.option("num_hidden_groups", 1), config.option("inner_group_num", 1)
    order: list[int] = []
    for number in range(config.layers):
        group = int(number / (config.layers / groups))
        order += range(group * inner, (group + 1) * inner)
    return order


def _embeddings(config: EncoderConfig, names: Names) -> Iterator[Weight]:
    width = config.embedding_width
    # DeBERTa normalizes after the projection.
    normalized = config.width if config.architecture == "deberta-v2" else width
    yield _table("words", names.words, (config.vocabulary, width))
    if config.positions:
        yield _table("positions", names.positions, (config.positions, width))
    if config.segments:
        yield _table("segments", names.segments, (config.segments, width))
    if names.embedding_norm:
        yield from _norm("embedding_norm", names.embedding_norm, normalized, _has_shift(config))
    if width != config.width:
        biased = config.architecture != "deberta-v2"
        yield from _dense("projection", (names.projection,), width, config.width, biased)


def _layer(config: EncoderConfig, names: Names, number: int, file: str) -> Iterator[Weight]:
    own, kind, width = f"layer.{number}.", config.architecture, config.width
    all_heads = config.heads * config.head_width
    if kind == "xlnet":
        yield from _xlnet_attention(config, own, file)
    else:
        biased = kind != "modernbert" or config.option("attention_bias", False)
        files = tuple(file + name for name in names.qkv)
        yield from _dense(f"{own}qkv", files, width, 3 * all_heads, biased)
        yield from _dense(f"{own}out", (file + names.out,), all_heads, width, biased)
    relative = kind == "deberta-v2" and config.option("relative_attention", False)
    if relative and not config.option("share_att_key", False):
        for part, name in (("c2p", "pos_key_proj"), ("p2c", "pos_query_proj")):
            if part in config.option("pos_att_type", ()):
                # Only the first version of DeBERTa has no bias for the keys of positions.
                yield from _dense(f"{own}{name}", (f"{file}attention.self.{name}",), width, all_heads)
    if not (kind == "modernbert" and number == 0):  # its first layer does not normalize again
        yield from _norm(f"{own}out_norm", file + names.out_norm, width, _has_shift(config))
    biased = kind != "modernbert" or config.option("mlp_bias", False)
    gated = 2 if kind == "modernbert" else 1
    yield from _dense(f"{own}inner", (file + names.inner,), width, gated * config.inner, biased)
    yield from _dense(f"{own}outer", (file + names.outer,), config.inner, width, biased)
    yield from _norm(f"{own}outer_norm", file + names.outer_norm, width, _has_shift(config))


def _shared(config: EncoderConfig, names: Names) -> Iterator[Weight]:
    """Yield the weights that belong to no single layer: those that all layers share, and those after the last layer."""
    kind, width = config.architecture, config.width
    if kind == "mpnet":
        buckets = config.option("relative_attention_num_buckets", 32)
        yield _table("relative_bias", "encoder.relative_attention_bias", (buckets, config.heads))
    if kind == "deberta-v2":
        if config.option("relative_attention", False):
            yield _table("relative", "encoder.rel_embeddings", (2 * deberta_span(config), width))
        if "layer_norm" in deberta_norms(config):
            yield from _norm("relative_norm", "encoder.LayerNorm", width)
        if size := config.option("conv_kernel_size", 0):
            shape = size, width, width // config.option("conv_groups", 1)
            yield Weight("convolution.kernel", shape, ("encoder.conv.conv.weight",), np.transpose, np.transpose)
            yield Weight("convolution.bias", (width,), ("encoder.conv.conv.bias",))
            yield from _norm("convolution_norm", "encoder.conv.LayerNorm", width)
    if kind == "modernbert":
        yield from _norm("final_norm", "final_norm", width, _has_shift(config))
    if kind == "xlnet":
        yield Weight("mask", (1, 1, width), ("mask_emb",), unused=True)
    if names.pooler:
        yield from _dense("pooler", (names.pooler,), width, width)


def deberta_span(config: EncoderConfig) -> int:
    """Return half the number of rows in DeBERTa's table of relative positions."""
    buckets = config.option("position_buckets", -1)
    return buckets if buckets > 0 else deberta_farthest(config)


def deberta_farthest(config: EncoderConfig) -> int:
    """Return DeBERTa's maximum relative distance between tokens."""
    farthest = config.option("max_relative_positions", -1)
    return farthest if farthest > 0 else config.max_length


def deberta_norms(config: EncoderConfig) -> list[str]:
    """Return the names of the normalizations of DeBERTa's relative-position embeddings."""
    return [one.strip() for one in str(config.option("norm_rel_ebd", "none")).lower().split("|")]


def _xlnet_attention(config: EncoderConfig, own: str, file: str) -> Iterator[Weight]:
    """Yield XLNet's attention weights, which files store by head in the shape [width, heads, head_width]."""
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


def _has_shift(config: EncoderConfig) -> bool:
    return config.architecture != "modernbert" or config.option("norm_bias", False)


def _table(name: str, file: str, shape: tuple[int, int]) -> Weight:
    return Weight(name, shape, (f"{file}.weight",))


def _norm(name: str, file: str, width: int, shift: bool = True) -> Iterator[Weight]:
    yield Weight(f"{name}.scale", (width,), (f"{file}.weight",))
    if shift:
        yield Weight(f"{name}.shift", (width,), (f"{file}.bias",))


def _dense(name: str, files: tuple[str, ...], inputs: int, outputs: int, biased: bool = True) -> Iterator[Weight]:
    kernels, biases = (tuple(f"{one}.{part}" for one in files) for part in ("weight", "bias"))
    unused = name == "pooler"
    yield Weight(f"{name}.kernel", (inputs, outputs), kernels, np.transpose, np.transpose, unused)
    if biased:
        yield Weight(f"{name}.bias", (outputs,), biases, unused=unused)
