"""Parameters survive a round trip through JSON, whatever their values."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmc_tf import params as all_params
from xmc_tf.params import Params, PredictionOptions, XTransformerParams, XTransformerPredParams, override_levels
from xmc_tf.params.base import shapes
from xmc_tf.params.linear import LinearLevelPredParams

CLASSES = [
    thing
    for thing in vars(all_params).values()
    if isinstance(thing, type) and issubclass(thing, Params) and thing is not Params
]


def values(field: dataclasses.Field, shape) -> st.SearchStrategy:
    """Return a strategy for the values that the field's metadata allow."""
    meta = field.metadata
    if dataclasses.is_dataclass(shape.type):
        one = instances(shape.type)
    elif field.name in ("neg_mining_chain", "negative_sampling"):
        one = st.sampled_from(["tfn", "man", "tfn+man"])
    elif field.name == "train_layers":  # the same for all levels
        one = st.just("half")
    elif field.name == "lora_rank":
        one = st.just(8)
    elif field.name == "language":
        one = st.sampled_from(["auto", "none", "fi", "fi,sv", "en,hbs,zh"])
    elif meta["choices"]:
        one = st.sampled_from(meta["choices"])
    elif shape.type is bool:
        one = st.booleans()
    elif shape.type is str:
        one = st.text(min_size=1, max_size=5)
    elif shape.type is int:
        low = -5 if meta["low"] is None else int(meta["low"])
        one = st.integers(low, 10**6 if meta["high"] is None else int(meta["high"]))
    else:
        one = st.floats(0.25, 0.75)
    if meta.get("also"):
        one |= st.sampled_from(meta["also"])
    if shape.optional:
        one |= st.none()
    return one | st.lists(one, min_size=1, max_size=3) if shape.chain else one


def instances(cls: type[Params]) -> st.SearchStrategy:
    fields = {field.name: values(field, shapes(cls)[field.name]) for field in dataclasses.fields(cls)}
    if "min_sample_rate" in fields:
        fields["max_sample_rate"] = st.just(1.0)
    if "min_precision" in fields:  # excludes the threshold, as probabilities exclude a post-processor
        fields |= {"min_precision": st.none(), "scores": st.sampled_from([None, "ranker"])}
    if "head_precision" in fields:  # bfloat16 needs values of two others
        fields["head_precision"] = st.just("fp32")
    if "prompt_name" in fields:  # excludes a prompt
        fields["prompt_name"] = st.none()
    if "n_heads" in fields:  # values that fit all others
        fields |= {"n_heads": st.just(1), "sliding_step": st.just(1), "route": st.just("features")}
    return st.builds(cls, **fields)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_json_and_back(cls, data):
    params = data.draw(instances(cls))
    assert cls.from_json(json.loads(json.dumps(params.to_json()))) == params
    hash(params)  # frozen all through: chains are tuples


@pytest.mark.parametrize("cls", [XTransformerParams, XTransformerPredParams])
def test_a_file_may_hold_only_what_it_changes(cls):
    assert cls.from_json({}) == cls()


def test_override_levels():
    levels = override_levels(
        LinearLevelPredParams(), 3, PredictionOptions(beam_size=10, only_topk=5, post_processor="sigmoid")
    )
    assert [level.only_topk for level in levels] == [10, 10, 5]
    assert {level.post_processor for level in levels} == {"sigmoid"}
    chain = tuple(LinearLevelPredParams(only_topk=k) for k in (7, 8, 9))
    assert override_levels(chain, 3, PredictionOptions()) == chain
