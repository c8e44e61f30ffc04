"""All parameters, as frozen classes that validate their values and read and write PECOS's JSON."""

from xmc_tf.params.base import Params, per_level, with_effect
from xmc_tf.params.choices import ENSEMBLES, POST_PROCESSORS
from xmc_tf.params.config_files import with_config
from xmc_tf.params.effort import (
    EFFORT_TIMES,
    EFFORTS,
    add_trees,
    encoder_params_of_effort,
    params_of_effort,
    several_trees,
)
from xmc_tf.params.files import linear_skeleton, load_block, load_blocks, skeleton, skeleton_of, xtransformer_skeleton
from xmc_tf.params.flags import (
    WITHOUT_EFFECT,
    add_flags,
    add_model_place,
    add_without_effect,
    from_arguments,
    model_place,
    truth,
    warn_without_effect,
)
from xmc_tf.params.linear import (
    HierarchicalKMeansParams,
    LinearChainParams,
    LinearChainPredParams,
    LinearLevelParams,
    LinearLevelPredParams,
    RankerParams,
    RankerPredParams,
)
from xmc_tf.params.matcher import MatcherParams, MatcherPredParams
from xmc_tf.params.models import XRLinearParams, XTransformerParams, XTransformerPredParams
from xmc_tf.params.prediction import (
    DECISIONS,
    SEARCH,
    PredictionOptions,
    add_prediction_options,
    options_of_flags,
    override_levels,
)
from xmc_tf.params.sequences import SequenceParams, load_sequence_params
from xmc_tf.params.tfidf import TfidfParams, tfidf_of_pecos
