"""The sizes of the data, the encoder and the machines."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.encoder.architectures.registry import parse_config
from xmc_tf.encoder.network.architecture import lower_layers


@dataclass(frozen=True)
class DataSizes:
    labels: int
    documents: int
    labels_per_document: float = 5.0
    entries: float = 40.0  # mean number of TF-IDF features of a document
    features: int = 1_000_000  # different TF-IDF features
    tokens: int = 128  # mean number that the encoder reads


@dataclass(frozen=True)
class EncoderSize:
    layers: int
    width: int  # of embeddings
    feed_forward: int  # width of the inner layer
    heads: int
    vocabulary: int
    positions: int = 512
    frozen: int | None = None  # number of lower layers that are not trained, with the embeddings; None: all are trained

    @property
    def lower(self) -> "EncoderSize":
        """The frozen layers."""
        return replace(self, layers=self.frozen or 0, frozen=None)

    @property
    def upper(self) -> "EncoderSize":
        """The layers above the frozen ones."""
        return replace(self, layers=self.layers - (self.frozen or 0), frozen=None)

    @property
    def trained_weights(self) -> int:
        """The number of weights that are trained."""
        return self.weights if self.frozen is None else self.upper.layer_weights

    @property
    def layer_weights(self) -> int:
        """The number of weights in all layers: attention, feed-forward and normalization."""
        return self.layers * (4 * self.width**2 + 2 * self.width * self.feed_forward + 9 * self.width)

    @property
    def weights(self) -> int:
        """The total number of weights, including embeddings of tokens and positions."""
        return self.layer_weights + (self.vocabulary + self.positions) * self.width

    def forward_flops(self, tokens: int) -> float:
        """Return the number of floating-point operations to encode one document."""
        return 2.0 * self.layer_weights * tokens + 4.0 * self.layers * tokens**2 * self.width

    def activation_bytes(self, tokens: int, half: bool) -> float:
        """Return the memory of one document's activations, in bytes. They are kept until the gradients are computed."""
        # In half precision, a layer keeps 34 bytes per token and width, and 5 per attention weight (Korthikanti et al.
        # 2022, https://arxiv.org/abs/2205.05198).
        kept = self.layers * tokens * (34.0 * self.width + 5.0 * self.heads * tokens)
        return kept if half else 2 * kept


ENCODERS = {
    "all-minilm-l6-v2": EncoderSize(6, 384, 1536, 12, 30522),
    "distilbert-base": EncoderSize(6, 768, 3072, 12, 30522),
    "bert-base": EncoderSize(12, 768, 3072, 12, 30522),
    "bert-base-multilingual": EncoderSize(12, 768, 3072, 12, 119547),
    "bert-large": EncoderSize(24, 1024, 4096, 16, 30522),
    "roberta-base": EncoderSize(12, 768, 3072, 12, 50265, 514),
    "roberta-large": EncoderSize(24, 1024, 4096, 16, 50265, 514),
    "xlm-roberta-base": EncoderSize(12, 768, 3072, 12, 250002, 514),
    "xlm-roberta-large": EncoderSize(24, 1024, 4096, 16, 250002, 514),
    "mpnet-base": EncoderSize(12, 768, 3072, 12, 30527, 514),
    "deberta-v3-base": EncoderSize(12, 768, 3072, 12, 128100),
}


def encoder_size(name: str, train_layers: str = "all") -> EncoderSize:
    """Return the size of an encoder, given by a name in ``ENCODERS`` or a folder with a ``config.json``."""
    if (config := Path(name) / "config.json").is_file():
        return _from_config(config, train_layers)
    known = re.sub(r"-(un)?cased$", "", name.lower().rpartition("/")[2])
    if known not in ENCODERS:
        raise InputError(
            f"--encoder {name} is unknown", expected=f"a folder with a config.json, or {', '.join(ENCODERS)}",
            fix="name a known encoder of similar size",
        )  # fmt: skip
    size = ENCODERS[known]
    return size if train_layers == "all" else replace(size, frozen=lower_layers(size.layers, train_layers))


def _from_config(path: Path, train_layers: str) -> EncoderSize:
    config = parse_config(parse_json(path.read_bytes(), of=str(path)), str(path))
    positions = config.positions or min(config.max_length, 512)
    frozen = config.architecture.frozen_layers(config, train_layers)
    return EncoderSize(config.layers, config.width, config.inner, config.heads, config.vocabulary, positions, frozen)


@dataclass(frozen=True)
class Device:
    """The sustained speed and the memory of one device."""

    single: float  # floating-point operations per second, in TF32 if possible
    half: float
    memory: float  # bytes; 0: the host's memory


# Encoder training commonly reaches a third of a GPU's peak. The figure of a CPU core was measured by fine-tuning
# all-MiniLM-L6-v2 on two cores with AVX-512.
_OF_PEAK = 0.33
DEVICES = {
    "cpu-core": Device(4e10, 4e10, 0),
    "t4": Device(8.1e12 * _OF_PEAK, 65e12 * _OF_PEAK, 16e9),
    "v100": Device(15.7e12 * _OF_PEAK, 125e12 * _OF_PEAK, 32e9),
    "l4": Device(60e12 * _OF_PEAK, 121e12 * _OF_PEAK, 24e9),
    "a10": Device(62.5e12 * _OF_PEAK, 125e12 * _OF_PEAK, 24e9),
    "a100": Device(156e12 * _OF_PEAK, 312e12 * _OF_PEAK, 80e9),
    "h100": Device(495e12 * _OF_PEAK, 989e12 * _OF_PEAK, 80e9),
    "h200": Device(495e12 * _OF_PEAK, 989e12 * _OF_PEAK, 141e9),
}


_WITHIN_A_HOST = 2e10  # bytes per second between ranks, over PCI Express


@dataclass(frozen=True)
class Machines:
    hosts: int
    ranks_per_host: int
    cores_per_rank: int = 4  # for the rankers
    network: float = 1.25e9  # bytes per second of a host, in each direction
    memory: float = 256e9  # bytes of each host

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    def ring_seconds(self, sent: float) -> float:
        """Return the duration of an all-reduce in which each rank sends ``sent`` bytes to the next rank."""
        # Neighbours in the ring share a host, so only one rank per host uses the network.
        return sent / (self.network if self.hosts > 1 else _WITHIN_A_HOST)

    def pairwise_seconds(self, sent: float) -> float:
        """Return the duration of an all-to-all in which each rank sends ``sent`` bytes, evenly to all other ranks."""
        leaving = (self.ranks - self.ranks_per_host) / max(self.ranks - 1, 1)
        # All ranks of a host send at the same time.
        per_rank = self.network / self.ranks_per_host if self.hosts > 1 else _WITHIN_A_HOST
        return sent * leaving / per_rank + sent * (1 - leaving) / _WITHIN_A_HOST


def parse_hosts(text: str) -> tuple[int, int]:
    """Parse ``4x8`` (hosts x ranks per host) or ``8`` (ranks on one host); return hosts and ranks per host."""
    match = re.fullmatch(r"(?:(\d{1,5})\s*[x×X*]\s*)?(\d{1,5})", text.strip())
    hosts, ranks = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    if hosts < 1 or ranks < 1:
        raise InputError(
            "--hosts is not valid", expected="hosts x ranks per host, such as 4x8, or the number of ranks on one host",
            received=json.dumps(text),
        )  # fmt: skip
    return hosts, ranks
