"""Fine-tune a tiny matcher: ``matcher_training.py FOLDER TASK …``.

``levels``: one level by each route, with accumulation, by a token budget, with a tiny BERT; all levels and predictions.
``begin``: one level up to a checkpoint in the middle of an epoch, on which it is stopped.
``go on``: takes that up, to the end.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
from transformers import BertConfig

from tests.matcher.tiny import DIM, LABELS, TREE, WORDS, TinyEncoder, documents, encode
from xmc_tf.collective.meters.traffic import bytes_sent
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder, frozen_states
from xmc_tf.matcher import fine_tune
from xmc_tf.matcher.bootstrap import bootstrap
from xmc_tf.matcher.candidates import CandidateSampler, LevelData, parents_matched
from xmc_tf.matcher.fine_tune import fine_tune_level
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.label_search import load_label_search
from xmc_tf.matcher.matcher import Matcher
from xmc_tf.matcher.tasks import MatcherData, MatcherSettings, Validation, levels_of
from xmc_tf.params import MatcherParams, MatcherPredParams

FOLDER, TASKS = Path(sys.argv[1]), sys.argv[2:]
N, GLOBAL_BATCH = 61, 12  # the last batch of an epoch has one document, so some of several ranks have none

strategy = CollectiveStrategy(seed=3)
world = strategy.communicator
texts, Y = documents(N)
held_out, Y_held_out = documents(25, seed=9)
PARAMS = MatcherParams(
    negative_sampling="tfn+man",
    loss_function="weighted-squared-hinge",
    bootstrap_method="linear",
    learning_rate=0.003,
    head_learning_rate=0.01,
    adam_epsilon=1e-5,
    weight_decay=0.01,
    max_grad_norm=0.5,
    batch_size=GLOBAL_BATCH // world.size,
    max_steps=20,
    warmup_steps=3,
    logging_steps=7,
    save_steps=8,
    max_active_matching_labels=5,
    hidden_dropout_prob=0.0,
)


def changed(**values):
    return dataclasses.replace(PARAMS, **values)


def open_store(name, documents):
    if world.rank == 0 and not (FOLDER / name).exists():
        with TokenStore.create(FOLDER / name) as writer:
            writer.write(documents)
    world.barrier()
    return TokenStore.open(FOLDER / name)


store = open_store("tokens", texts)
tasks = levels_of(TREE, Y, max_match_clusters=LABELS, weights=True)


def one_level(folder, params, encoder=None, store=store):
    """Train the second level; return the rest of it."""
    encoder, task = encoder or TinyEncoder(), tasks[1]
    head = LabelHead.for_level(strategy, task.level, task.nr_nodes, encoder.dim, task.splits, params)
    matched = parents_matched(task, "tfn", tasks[0].targets)
    bootstrap(head, "no-bootstrap", task=task, seed=3)
    sampler = CandidateSampler(task, matched, params.max_active_matching_labels, 3)
    data = LevelData(store, sampler, pad_id=0)
    result = fine_tune_level(strategy, encoder, head, data, params, folder=folder, seed=5)
    assert strategy.check_replicas(encoder.variables) == len(encoder.variables)
    return {
        "losses": result.losses,
        "head": world.allgather_array(head.local()).tolist(),
        "vectors": encode(encoder, store, np.arange(8)).tolist(),  # of tokens, or of the output of frozen layers
        "route": head.scorer.choice.route if head.scorer.choice else params.route,
    }


def levels():
    kinds = {
        "rows": changed(route="rows"),
        "features": changed(route="features"),
        "accumulated": changed(gradient_accumulation_steps=2, loss_function="cross-entropy", max_steps=8),
        "budget": changed(token_budget=48 // world.size, max_steps=8, normalize_vectors=True, logit_scale=3.0),
    }
    found = {kind: one_level(FOLDER / f"{kind} {world.size}", params) for kind, params in kinds.items()}
    found["sent"] = bytes_sent()
    config = BertConfig(
        vocab_size=WORDS, hidden_size=DIM, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    bert = Encoder.from_config(config, pooling="mean", seed=1)
    found["bert"] = one_level(FOLDER / f"bert {world.size}", changed(max_steps=6), bert)
    upper = Encoder.from_config(config, pooling="mean", seed=1)
    upper.freeze("1")
    states = store.with_states(frozen_states(upper, store, np.arange(len(store))))
    found["upper"] = one_level(FOLDER / f"upper {world.size}", changed(max_steps=6), upper, states)
    found["all levels"] = all_levels()
    return found


def all_levels():
    encoder, validation = TinyEncoder(), Validation(open_store("held out", held_out), Y_held_out)
    matcher = Matcher.train(
        strategy,
        encoder,
        MatcherData(store, Y, TREE, pad_id=0, validation=validation),
        MatcherSettings(
            changed(max_steps=9, save_steps=4), MatcherPredParams(only_topk=3, post_processor="sigmoid"), seed=5
        ),
        folder=FOLDER / f"matcher {world.size}",
        logdir=FOLDER / f"logs {world.size}",
    )
    mine = slice(N * world.rank // world.size, N * (world.rank + 1) // world.size)
    vectors = encode(encoder, store, np.arange(N))[mine]
    predicted = matcher.to_labels(matcher.predict(vectors, only_topk=4, beam_size=3, post_processor="l3-hinge"))
    matcher.save(FOLDER / "head")
    loaded = load_label_search(FOLDER / "head")
    again = loaded.to_labels(loaded.predict(vectors, only_topk=4, beam_size=3, post_processor="l3-hinge"))
    assert np.allclose(again.toarray(), predicted.toarray(), atol=1e-6)
    return {
        "losses": [result.losses for result in matcher.results],
        "validations": [result.validations for result in matcher.results],
        "predicted": np.concatenate(world.allgather(predicted.toarray())).tolist(),
    }


class StoppedError(Exception):
    """The exception that stops a run after its first checkpoint."""


def begin():
    real = fine_tune.save_training

    def save(*arguments):
        real(*arguments)
        raise StoppedError

    fine_tune.save_training = save
    try:
        one_level(FOLDER / "stopped", changed(batch_size=12 // world.size))
    except StoppedError:
        return {"begin": True}
    finally:
        fine_tune.save_training = real


def go_on():
    return {"go on": one_level(FOLDER / "stopped", PARAMS)}


found = {}
for task in TASKS:
    found |= {"levels": levels, "begin": begin, "go on": go_on}[task]()
print(json.dumps(found))
