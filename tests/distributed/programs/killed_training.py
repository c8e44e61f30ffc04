"""Run ``xmc_tf.train``, killed at a given time of a given stage, or not at all.

``killed_training.py PLAN [flag …]``, PLAN being JSON: ``report``, the file that says where it was killed, ``times``,
the file that gets a line for each stage that has been gone through; and, to be killed, ``stage``, ``after`` so many
seconds in it, and ``victims``, the ranks. With ``made`` a stage that is over before that is killed when everything is
made and nothing yet called so.

Who kills is a process of its own, so that it strikes in the midst of whatever the rank does, and not between two lines
of Python. Rank 0 tells it when the stage has begun, and does not leave the stage before it has struck: also a stage
that is over in a millisecond is hit inside.
"""

import functools
import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path

from xmc_tf import train
from xmc_tf.common.process import cli
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.matcher import LevelByLevel, Matcher
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.pipeline.stages import Stages

plan, flags = json.loads(sys.argv[1]), sys.argv[2:]
rank = int(os.environ.get("HOROVOD_RANK", "0"))
report, times = Path(plan["report"]), Path(plan["times"])
pid_of = "{}.pid-of-{}".format
state = mmap.mmap(-1, 64)  # the stage of rank 0, for the killer
begun: dict[str, float] = {}


def enter(stage):
    """Mark the beginning of a stage on rank 0."""
    if rank != 0 or stage in begun:
        return
    begun[stage] = time.monotonic()
    if stage == plan.get("stage"):
        state[:] = stage.encode().ljust(64)
        os.write(tell, b"!")


def leave(stage):
    """Mark the end of a stage; if it is to be killed in it, wait for that."""
    if rank != 0:
        return
    took = time.monotonic() - begun.pop(stage)
    if stage == plan.get("stage"):
        await_the_end(stage)
        state[:] = b"after it".ljust(64)
    with times.open("a") as file:
        file.write(json.dumps([stage, took]) + "\n")


def await_the_end(stage):
    """Wait to be killed."""
    state[:] = f"{stage}, at its end".encode().ljust(64)
    end = time.monotonic() + 600
    while not report.exists():
        assert time.monotonic() < end, f"not killed in {stage}"
        time.sleep(0.001)


def made(stage):
    """The stage is complete, but its folder is not renamed yet."""
    if rank == 0 and stage == plan.get("stage") and plan.get("made"):
        await_the_end(stage)


def kill_when_told(ear):
    """Run the killer."""
    if not os.read(ear, 1):
        return
    time.sleep(plan["after"])
    pids = {victim: int(Path(pid_of(report, victim)).read_text()) for victim in plan["victims"]}
    # Rank 0 last, so that its recorded stage is the one in which all ranks are killed.
    for victim in sorted(pids, reverse=True):
        os.kill(pids[victim], signal.SIGKILL)
    where = bytes(state).decode().strip()
    part = report.with_suffix(".part")
    part.write_text(json.dumps({"where": where, "victims": sorted(pids)}))
    part.rename(report)


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


Path(pid_of(report, rank)).write_text(str(os.getpid()))
if rank == 0:
    ear, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()  # so that the killer is not ended with the ranks before it has reported
        os.close(tell)
        os.closerange(0, 3)
        try:
            kill_when_told(ear)
        finally:
            os._exit(0)
    os.close(ear)

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
