"""Run ``xmc_tf.train`` for a test that kills it in a stage: ``killed_training.py PLAN [flag …]``.

PLAN is JSON: ``times``, the file that gets a line for each stage that has been gone through; and, to be killed,
``stage``, and ``mark``, the file that rank 0 makes when this stage begins. Rank 0 does not leave the stage before there
is the file ``struck``, so that one that is over in a millisecond is hit inside. With ``made`` it waits when everything
is made and nothing yet called so.
"""

import functools
import json
import os
import sys
import time
from pathlib import Path

from xmc_tf import train
from xmc_tf.common.process import cli
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.matcher import LevelByLevel, Matcher
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.pipeline import frozen_layers
from xmc_tf.pipeline.stages import Stages

plan, flags = json.loads(sys.argv[1]), sys.argv[2:]
rank = int(os.environ.get("HOROVOD_RANK", "0"))
begun: dict[str, float] = {}


def enter(stage):
    """Mark the beginning of a stage on rank 0."""
    if rank == 0 and stage not in begun:
        begun[stage] = time.monotonic()
        if stage == plan.get("stage"):
            Path(plan["mark"]).touch()


def leave(stage):
    """Mark the end of a stage; if it is to be killed in it, wait for that."""
    if rank == 0:
        took = time.monotonic() - begun.pop(stage)
        await_the_end(stage)
        with Path(plan["times"]).open("a") as file:
            file.write(json.dumps([stage, took]) + "\n")


def await_the_end(stage):
    """Wait to be killed, if that is to happen in this stage."""
    end = time.monotonic() + 600
    while rank == 0 and stage == plan.get("stage") and not Path(plan["struck"]).exists():
        assert time.monotonic() < end, f"not killed in {stage}"
        time.sleep(0.001)


def made(stage):
    """The stage is complete, but its folder is not renamed yet."""
    if plan.get("made"):
        await_the_end(stage)


def around(owner, name, before=None, after=None):
    """Wrap a method with functions to call before and after it, with its arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments, **options):
        if before:
            before(*arguments, **options)
        result = original(*arguments, **options)
        if after:
            after(*arguments, **options)
        return result

    setattr(owner, name, wrapped)


def watch_aside():
    """Mark tokenizing, a stage without its own folder."""
    original = Stages.log_step

    class Aside:
        def __init__(self, stages, name, said):
            self.name, self.inner = name, original(stages, name, said)

        def __enter__(self):
            enter(self.name)
            return self.inner.__enter__()

        def __exit__(self, *error):
            leave(self.name)
            return self.inner.__exit__(*error)

    Stages.log_step = lambda stages, name, said: Aside(stages, name, said)


def watch_levels(folder_of_levels):
    """Mark each level of fine-tuning, from its head to its result."""
    original = LabelHead.for_level.__func__

    def for_level(cls, strategy, level, *arguments, **options):
        if not (folder_of_levels / f"level_{level}" / "done" / "manifest.json").exists():
            enter(f"level_{level}")
        return original(cls, strategy, level, *arguments, **options)

    LabelHead.for_level = classmethod(for_level)
    around(LevelByLevel, "_save", after=lambda self, folder, *more: leave(folder.parent.name))
    around(Matcher, "save", before=lambda *_: enter("heads"))


frozen_layers.BLOCK = 32  # several blocks
model = Path(flags[flags.index("-m") + 1])
around(Stages, "_begin", before=lambda self, part, key: part.stem != "fine-tuning" and enter(part.stem))
stage_of = {"fine-tuning": "heads"}
around(
    Stages,
    "_complete",
    before=lambda self, part, name, *more: made(stage_of.get(name, name)),
    after=lambda self, part, name, *more: leave(stage_of.get(name, name)),
)
watch_aside()
watch_levels(model.with_name(f"{model.name}.work") / "fine-tuning.part" / "levels")
around(XTransformer, "save", before=lambda *_, **__: enter("model"), after=lambda *_, **__: leave("model"))
around(Stages, "remove", before=lambda *_: enter("removal"), after=lambda *_: leave("removal"))

cli.run(train.main, flags)
