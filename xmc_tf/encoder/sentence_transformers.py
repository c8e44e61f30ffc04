"""Reading of what sentence-transformers writes beside an encoder: modules after the last layer, prompts, lengths.

What would change embeddings and is not known is refused by name, because leaving it out gives other embeddings.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.encoder.network.modules import LAYER, Layer, Modules
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.encoder.weight_files import SAFETENSORS, TORCH, arrays_of
from xmc_tf.store.models import MODULES_FILE, PROMPTS_FILE

_PACKAGE, _MODULES = "sentence_transformers.", "modules.json"
# Names of poolings in files, in the order in which older files join them, and our names.
_POOLINGS = {
    "cls": "cls", "max": "max", "mean": "mean", "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean", "lasttoken": "last",
}  # fmt: skip
_OLDER = {
    "cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean", "lasttoken": "lasttoken",
}  # fmt: skip
# The last parts of the dotted names of PyTorch's activations.
_ACTIVATIONS = {"Identity": None, "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu"}
# Values of further fields with which embeddings are computed as here; fields of other names are refused.
_OUTPUT = {"module_input_name": ("sentence_embedding",), "module_output_name": ("sentence_embedding", None)}
_TRANSFORMER: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction",), "module_output_name": ("token_embeddings",),
    "query_length": (None,), "document_length": (None,), "query_expansion": (None,), "processing_kwargs": (None, {}),
}  # fmt: skip
_WITHOUT_EFFECT = ("max_seq_length", "do_lower_case", "unpad_inputs", "modality_config", "backend")
_ARGUMENTS = ("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs")
_HARMLESS = {
    "add_pooling_layer", "attn_implementation", "dtype", "low_cpu_mem_usage", "model_max_length", "padding_side",
    "torch_dtype", "trust_remote_code", "use_memory_efficient_attention", "unpad_inputs",
}  # fmt: skip
_OF_DOCUMENTS = ("document", "passage", "corpus")
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def check_folder(
    name_or_folder: str | Path, pooling: str = "auto", prompt: str | None = None, prompt_name: str | None = None
) -> None:
    """Refuse a folder with unsupported modules or prompts before any work begins; do nothing for a name on the hub."""
    if Path(name_or_folder).expanduser().is_dir():
        source = EncoderSource(name_or_folder, "encoder")
        if source.read(MODULES_FILE) is None:
            read_modules(source, pooling)
        read_prompt(EncoderSource(name_or_folder, "tokenizer"), prompt, prompt_name)


def read_modules(source: EncoderSource, pooling: str = "auto") -> tuple[Modules, dict[str, np.ndarray]]:
    """Return the modules in a folder of sentence-transformers, and their weights; "auto" if it names no pooling.

    Another ``pooling`` than "auto" replaces the folder's, which then is not read.
    """
    content = source.read(_MODULES)
    if content is None:
        return Modules(pooling), {}
    listed = parse_json(content, of=f"{source.name}: {_MODULES}", top=list, foreign=True)
    modules, layers, values = Modules(pooling), list[Layer](), dict[str, np.ndarray]()
    for number, one in enumerate(listed):
        kind, path = _kind_and_path(source, one)
        fields = _fields(source, f"{path}/config.json" if path else "")
        if kind == "Transformer" and number == 0:
            if path:
                raise _unknown(source, f"{_MODULES}: the encoder is in the folder {path}", f"load {path} by itself")
            _check_transformer(source)
        elif kind == "Pooling" and number == 1:
            modules = _pooling(source, f"{path}/config.json", fields, pooling)
        elif kind == "Dense" and number > 1:
            found = _dense(source, path, fields, f"{LAYER}{len(layers)}")
            layers.append(found[0])
            values |= found[1]
        elif kind == "Normalize" and number > 1:
            _check(source, f"{path}/config.json", fields, _OUTPUT)
            layers.append(Layer())
        elif kind != "Dropout" or number < 2:  # it has no effect after the training
            raise _unknown(source, f"{_MODULES}: module {number}, {kind}, is not supported there")
    while layers and not layers[-1].outputs:
        layers.pop()  # embeddings are scaled where they are used, by the options of the training
    return Modules(modules.pooling, tuple(layers), modules.pools_prompt), values


def _kind_and_path(source: EncoderSource, module: Any) -> tuple[str, str]:
    kind, path = (module.get("type"), module.get("path", "")) if isinstance(module, dict) else (None, "")
    if not isinstance(kind, str) or not kind.startswith(_PACKAGE):
        raise _unknown(source, f"{_MODULES}: the module {str(kind)[:80]} is code that xmc_tf does not have")
    if not isinstance(path, str) or Path(path).name != path or path == "..":
        raise _unknown(source, f"{_MODULES}: {str(path)[:80]!r} is not the name of a folder beside it")
    return kind.rpartition(".")[2], path


def _fields(source: EncoderSource, file: str) -> dict[str, Any]:
    content = source.read(file) if file else None
    return {} if content is None else dict(parse_json(content, of=f"{source.name}: {file}", foreign=True))


def _pooling(source: EncoderSource, file: str, fields: dict[str, Any], pooling: str) -> Modules:
    if not fields:
        raise _unknown(source, f"{file} is missing", "copy the whole folder again")
    found = fields.get("pooling_mode")
    if found is None:
        found = [name for key, name in _OLDER.items() if fields.get(f"pooling_mode_{key}")] or ["mean"]
    modes = [found] if isinstance(found, str) else found
    known: dict[str, tuple[Any, ...]] = {f"pooling_mode_{key}": (True, False) for key in _OLDER}
    known |= {"pooling_mode": (found,), "include_prompt": (True, False)}
    sizes = ("word_embedding_dimension", "embedding_dimension")
    if pooling != "auto":
        return Modules(pooling, pools_prompt=fields.get("include_prompt", True))
    _check(source, file, {name: value for name, value in fields.items() if name not in sizes}, known)
    if not isinstance(modes, list) or not modes or not all(isinstance(one, str) and one in _POOLINGS for one in modes):
        raise _unknown(source, f"{file}: pooling_mode {modes!r:.80} is not supported", "choose another with --pooling")
    return Modules("+".join(_POOLINGS[one] for one in modes), pools_prompt=fields.get("include_prompt", True))


def _dense(source: EncoderSource, path: str, fields: dict[str, Any], name: str) -> tuple[Layer, dict[str, np.ndarray]]:
    """Return a Dense module, and its weights under our names."""
    file, rest = f"{path}/config.json", dict(fields)
    inputs, outputs = rest.pop("in_features", None), rest.pop("out_features", None)
    activation, biased = str(rest.pop("activation_function", "Tanh")), rest.pop("bias", True) is True
    _check(source, file, rest, _OUTPUT | {"use_residual": (False,)})
    for size in (inputs, outputs):
        if type(size) is not int or not 0 < size < 1 << 20:
            raise _unknown(source, f"{file}: in_features or out_features is {size!r}", "copy the whole folder again")
    kind = activation.rpartition(".")[2]
    if kind not in _ACTIVATIONS or not activation.startswith(("torch.", "Tanh")):
        raise _unknown(source, f"{file}: the activation_function {activation[:80]} is not supported")
    shapes = {"weight": (outputs, inputs)} | ({"bias": (outputs,)} if biased else {})
    paths = [found for one in (SAFETENSORS, TORCH) if (found := source.path_of(f"{path}/{one}"))][:1]
    try:
        arrays = {key: read() for one in paths for key, read in arrays_of(one)}
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  safetensors raises its own errors
        raise source.not_found(error) from None
    values = {}
    for part, shape in shapes.items():
        array = arrays.get(f"linear.{part}", np.zeros(0))
        if array.shape != shape:
            expected = f"{path}/{SAFETENSORS} or {path}/{TORCH} has no linear.{part} of the shape {shape}"
            raise _unknown(source, expected, "copy the whole folder again")
        values[f"{name}.{'kernel' if part == 'weight' else part}"] = np.asarray(array.T, np.float32)
    return Layer(inputs, outputs, _ACTIVATIONS[kind], biased), values


def _check_transformer(source: EncoderSource) -> None:
    """Refuse settings of the Transformer module that would change hidden states."""
    name, fields = _transformer_fields(source)
    for arguments in _ARGUMENTS:
        given = fields.pop(arguments, None)
        if unknown := sorted(set(given if isinstance(given, dict) else ()) - _HARMLESS):
            raise _unknown(source, f"{name}: {arguments} with {', '.join(unknown)[:80]} are not supported")
    _check(source, name, {key: value for key, value in fields.items() if key not in _WITHOUT_EFFECT}, _TRANSFORMER)


def _transformer_fields(source: EncoderSource) -> tuple[str, dict[str, Any]]:
    """Return the file of the Transformer module's settings, and its content."""
    if source.read(_MODULES) is None:  # names on the hub: no requests for files that are not there
        return "", {}
    kinds = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    files = (f"sentence_{kind}_config.json" for kind in kinds)
    return next(((file, fields) for file in files if (fields := _fields(source, file))), ("", {}))


def maximum_length(source: EncoderSource, lowers: bool) -> int | None:
    """Return the number of tokens that the folder limits texts to. ``lowers``: the tokenizer converts to lower case."""
    name, fields = _transformer_fields(source)
    if fields.get("do_lower_case") and not lowers:
        fix = "put the normalizer Lowercase first in tokenizer.json"
        raise _unknown(source, f"{name}: do_lower_case is not done by the tokenizer", fix)
    longest = fields.get("max_seq_length") or _fields(source, "tokenizer_config.json").get("model_max_length")
    return longest if isinstance(longest, int) else None


def read_prompt(source: EncoderSource, prompt: str | None = None, prompt_name: str | None = None) -> str:
    """Return the text to put before each document: the prompt that is given or named, else the folder's for documents.

    Without one for documents, it is the folder's default, or none.
    """
    fields = _fields(source, PROMPTS_FILE)
    if fields.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise _unknown(source, f"{PROMPTS_FILE}: a {str(fields['model_type'])[:40]} gives no embedding of a document")
    if fields.get("similarity_fn_name") not in (None, *_SIMILARITIES):
        raise _unknown(source, f"{PROMPTS_FILE}: similarity_fn_name {str(fields['similarity_fn_name'])[:40]}")
    found, default = fields.get("prompts") or {}, fields.get("default_prompt_name") or ""
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in (default, *found.values())):
        raise _unknown(source, f"{PROMPTS_FILE}: prompts or default_prompt_name are not texts")
    prompts: dict[str, str] = found
    if prompt is not None:
        return prompt
    if prompt_name is not None:
        if prompt_name not in prompts:
            raise InputError(
                f"{source.name} has no prompt of the name {prompt_name!r}",
                expected=", ".join(sorted(prompts)) or "none, because the folder has no prompts",
                received=f"--prompt-name {prompt_name}", fix="use one of these names, or --prompt TEXT",
            )  # fmt: skip
        return prompts[prompt_name]
    return next((text for name in (*_OF_DOCUMENTS, default) if (text := prompts.get(name))), "")


def write_prompt(folder: Path, prompt: str) -> None:
    """Write the prompt of a saved encoder, which ``read_prompt`` and sentence-transformers read."""
    content = {"prompts": {"document": prompt}, "default_prompt_name": "document"}
    (folder / PROMPTS_FILE).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def _check(source: EncoderSource, file: str, fields: dict[str, Any], known: dict[str, tuple[Any, ...]]) -> None:
    for name, value in fields.items():
        if value not in known.get(name, ()):
            raise _unknown(source, f"{file}: {name} {value!r:.60} is not supported")


def _unknown(source: EncoderSource, problem: str, fix: str = "choose another encoder") -> InputError:
    return InputError(
        f"{source.name}: {problem}, and without it the embeddings would be others",
        expected="modules Transformer, Pooling, Dense and Normalize of sentence-transformers", fix=fix,
    )  # fmt: skip
