"""An exported model in a session as servers set it: ``served_side.py FOLDER TEXTS CONFIG``, asked for times."""

import sys
from pathlib import Path

import in_turns  # beside this file
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operations of tokenizers
from google.protobuf import text_format

folder, texts, config = sys.argv[1:]
in_turns.stay_on_one_core()
session = tf.compat.v1.Session(
    graph=tf.Graph(), config=text_format.Parse(Path(config).read_text(), tf.compat.v1.ConfigProto())
)
with session.graph.as_default():
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def["serving_default"]
answer = session.make_callable(
    [loaded.outputs[name].name for name in ("labels", "scores", "names")], [loaded.inputs["text"].name]
)
lines = in_turns.texts_of(texts)
in_turns.answer(lambda **request: in_turns.times(lambda part: answer(np.array(part, object)), lines, **request))
