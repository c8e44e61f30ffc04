"""Train random Keras programs under ``CollectiveStrategy`` and in plain Keras, and compare them.

    python -m tests.campaigns.keras_programs --programs 300 --seed 0
    python -m tests.campaigns.keras_programs --only 17 --on 2    # a failing program is printed

Each program has equal initial weights and equal global batches in plain Keras, in one process, on two ranks (MPI) and
on three (Horovod over Gloo). An outcome is

- equal: weights, losses, metrics and predictions differ by less than 1e-4;
- announced: different, and a line of the log says so, with the alternative;
- refused: an ``InputError`` with a fix;
- rounding: different, but not more than plain Keras is with the rows of each batch in reverse order;
- different, or crashed (any other error): faults;
- invalid: plain Keras does not run it.
"""

import argparse
import json
import logging
import pickle
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.campaigns import random_programs
from tests.campaigns.random_programs import KINDS, ROWS, STEPS, Program, random_program
from tests.distributed.launch import Run, horovodrun, mpiexec, python
from xmc_tf import CollectiveStrategy, TiedHead
from xmc_tf.common.errors import InputError

TOLERANCE, AT_ONCE = 1e-4, 20  # programs in a launch
AS_MUCH = 5  # times the difference of plain Keras with the rows in reverse order is still rounding
LAUNCHES: dict[str, Callable[..., Run]] = {
    "1": partial(python, imported=True),
    "2": partial(mpiexec, world=2, imported=True),
    "3": partial(horovodrun, world=3),
}
OUTCOMES = ("equal", "announced", "refused", "invalid", "rounding", "different", "crashed")
FAULTS = OUTCOMES[-2:]
# What a line of the log names if all ranks together train otherwise than plain Keras. If it names exact=True alone,
# any number of ranks trains as one process does.
ALTERNATIVES = ("strategy.gather", "global_clipnorm")


class Trial:
    """One training of a program, on this rank or in plain Keras, and what is compared: ``seen``."""

    def __init__(
        self, program: Program, folder: Path, strategy: Any = None, initial: Any = None, backwards: bool = False
    ) -> None:
        self.program, self.folder, self.strategy, self.initial = program, folder, strategy, initial
        self.world: int = 1 if strategy is None else strategy.world_size()
        self.rank: int = 0 if strategy is None else strategy.rank()
        self.seen: list[Any] = []
        self.note = self.seen.append
        draw, number, code = np.random.default_rng(program.seed), sum(program.sizes), "\n".join(program.lines)
        ids = draw.integers(1, ROWS, (number, STEPS)).astype(np.int32)
        ids[np.arange(STEPS) >= draw.integers(1, STEPS + 1, (number, 1))] = 0  # padding
        numbers = draw.normal(size=(number, 2)).astype(np.float32)
        named = {"ids": ids, "numbers": numbers}
        self.inputs: Any = named if "{'ids'" in code else (ids, numbers) if "[ids, numbers]" in code else ids
        score = ((ids % KINDS).mean(1, keepdims=True) + draw.normal(size=(number, 1))).astype(np.float32)
        classes = np.clip(score, 0, 4).astype(np.int32)
        kinds = {
            "number": score,
            "numbers": np.concatenate([score, numbers], axis=1),
            "binary": (score > np.median(score)).astype(np.float32),
            "labels": (draw.random((number, 5)) < 0.4).astype(np.float32),
            "one_hot": np.eye(5, dtype=np.float32)[classes[:, 0]],
            "class": classes,
            "row": (ids[:, :1] + 1) % ROWS,
            "row of each step": (ids + 1) % ROWS,
            "number of each step": (ids[:, :, None] % KINDS).astype(np.float32),
            "class of each step": ids % 5,
        }
        weights = draw.uniform(0.5, 2, (number, STEPS)).astype(np.float32)
        of_target = [weights if one.endswith("each step") else weights[:, 0] for one in program.targets]
        whole = [tuple(kinds[one] for one in program.targets), tuple(of_target)]
        parts = [one[0] if len(one) == 1 else one for one in whole]
        if "{'first'" in code:
            parts = [dict(zip(("first", "second"), one, strict=True)) for one in whole]
        self.whole = (self.inputs, *parts[: 2 if program.weighted else 1])
        if backwards:
            batches = np.split(np.arange(number), np.cumsum(program.sizes)[:-1])
            order = np.concatenate([batch[::-1] for batch in batches])
            self.whole = tf.nest.map_structure(lambda one: one[order], self.whole)

    def run(self) -> list[Any]:
        keras.utils.clear_session()
        keras.utils.set_random_seed(self.program.seed)
        modules = (keras.optimizers, keras.callbacks, keras.layers, random_programs)
        names = {name: value for module in modules for name, value in vars(module).items() if name[:1] != "_"}
        names |= {"keras": keras, "TiedHead": TiedHead, "schedules": keras.optimizers.schedules}
        names |= {"losses": keras.losses, "metrics": keras.metrics}
        helpers = ("batches", "folder", "held_out", "inputs", "loop", "note", "over_ranks", "start", "train")
        names |= {name: getattr(self, name) for name in helpers}
        with ExitStack() as stack:
            if self.strategy is not None:
                stack.enter_context(self.strategy.scope())
                stack.enter_context(self.strategy.embedding_scope())
            exec("\n".join(self.program.lines), names)
        self.note(names["model"].get_weights())
        if self.program.saves:
            names["model"].save(self.folder / "saved.keras")
            if self.strategy is not None:
                self.strategy.communicator.barrier()
            loaded = keras.models.load_model(self.folder / "saved.keras")
            self.seen += [loaded.predict(self.inputs, verbose=0), loaded.get_weights()]
        return self.seen

    def start(self, model: keras.Model) -> None:
        model(tf.nest.map_structure(lambda one: one[:2], self.inputs))  # builds it
        if self.initial is None:
            self.initial = model.get_weights()
        else:
            model.set_weights(self.initial)

    def over_ranks(self, optimizer: Any) -> Any:
        return optimizer if self.strategy is None else self.strategy.optimizer(optimizer)

    def batches(self) -> list[Any]:
        """Return this rank's part of each batch."""
        found, at = [], 0
        for number, size in enumerate(self.program.sizes):
            parts = (size,) if self.world == 1 else self.program.parts[self.world][number]
            rows = slice(at + sum(parts[: self.rank]), at + sum(parts[: self.rank + 1]))
            found.append(tf.nest.map_structure(lambda one, rows=rows: one[rows], self.whole))
            at += size
        return found

    def train(self) -> dict[str, Any]:
        batches, kind = [one for one in self.batches() if len(tf.nest.flatten(one)[0])], self.program.data
        if kind == "arrays":
            whole = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)
            named = dict(zip(("x", "y", "sample_weight"), whole, strict=False))
            return named | {"batch_size": 12 // self.world, "shuffle": False}
        if kind == "sequence":
            methods = {"__len__": lambda self: len(batches), "__getitem__": lambda self, at: batches[at]}
            return {"x": type("Batches", (keras.utils.PyDataset,), methods)(), "shuffle": False}
        if kind == "repeated":
            return {"x": self.held_out().repeat(), "steps_per_epoch": len(batches)}
        # Plain Keras counts a step too many in the losses of outputs if it does not know the number of batches.
        is_known = kind == "counted" or self.world == 1
        return {"x": self.held_out() if is_known else self.held_out().filter(lambda *_: True)}

    def held_out(self) -> tf.data.Dataset:
        batches = [one for one in self.batches() if len(tf.nest.flatten(one)[0])]
        signature = tf.nest.map_structure(lambda one: tf.TensorSpec([None, *one.shape[1:]], one.dtype), batches[0])
        data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
        return data.apply(tf.data.experimental.assert_cardinality(len(batches)))

    def loop(self, model: keras.Model, optimizer: Any, loss: str) -> None:
        @tf.function(reduce_retracing=True)
        def step(x: Any, y: Any) -> None:
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(keras.losses.get(loss)(y, model(x, training=True)))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        for x, y in [*self.batches(), *self.batches()]:
            step(*tf.nest.map_structure(tf.constant, (x, y)))


def differences(seen: Any, expected: Any) -> dict[str, float]:
    """Return the largest difference of each array, relative to its largest number or 1."""
    found, wanted = dict(_flat(seen)), dict(_flat(expected))
    if [(name, one.shape) for name, one in found.items()] != [(name, one.shape) for name, one in wanted.items()]:
        return {f"{sorted(found)} for {sorted(wanted)}": np.inf}
    apart = {}
    for name, values in found.items():
        other = wanted[name]
        each = np.abs(values - other) / max(1.0, np.abs(np.nan_to_num(other)).max(initial=0))
        each = np.where(np.isnan(values) & np.isnan(other), 0.0, np.nan_to_num(each, nan=np.inf))
        apart[name] = float(each.max(initial=0))
    return apart


def difference(seen: Any, expected: Any) -> tuple[float, str]:
    """Return the largest difference, and the name of its array."""
    return max((apart, name) for name, apart in differences(seen, expected).items())


def _flat(seen: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(seen, dict | list | tuple):
        for key, one in seen.items() if isinstance(seen, dict) else enumerate(seen):
            yield from _flat(one, f"{name}.{key}")
    else:
        yield name, np.asarray(seen, np.float64)


def outcome(program: Program, known: dict[str, Any], strategy: CollectiveStrategy, folder: Path) -> str:
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("xmc_tf").addHandler(handler)
    try:
        seen = Trial(program, folder, strategy, known["initial"]).run()
    except Exception as error:  # noqa: BLE001
        # AutoGraph gives the text of an error in a traced function to an error of its own.
        if isinstance(error, InputError) or "InputError:" in str(error):
            return f"refused {error}" if "fix:" in str(error) else f"crashed {error}"
        traceback.print_exc()
        return f"crashed {type(error).__name__}: {error}"
    finally:
        logging.getLogger("xmc_tf").removeHandler(handler)
    every = [line for of_rank in strategy.communicator.allgather(said) for line in of_rank]
    apart, where = difference(seen, known["plain"])
    if apart < TOLERANCE:
        return f"equal {apart:.0e}"
    if lines := [one for one in every if any(name in one for name in ALTERNATIVES)]:
        return f"announced {apart:.0e} {where}: {lines[0]}"
    if lines := [one for one in every if "exact=True" in one]:
        if (apart := difference(seen, known.setdefault("one", seen))[0]) < TOLERANCE:
            return f"announced {lines[0]}"
        where += ", from one process"
    control = Trial(program, Path(tempfile.mkdtemp(dir=folder)), initial=known["initial"], backwards=True).run()
    rounding = differences(control, known["plain"])
    expected = known["one"] if "process" in where else known["plain"]
    if all(one < max(TOLERANCE, AS_MUCH * rounding.get(name, 0)) for name, one in differences(seen, expected).items()):
        return f"rounding {apart:.1e} {where}"
    return f"different {apart:.1e} {where}"


def of_ranks(results: Path, seeds: Sequence[int]) -> None:
    """Run programs on this rank, and in plain Keras first. A single process writes what it finds for several ranks."""
    for seed in seeds:
        program, file = random_program(seed), results / f"{seed}.pickle"
        strategy = CollectiveStrategy(shard_above=150, exact=program.exact)  # shards ROWS rows, but not KINDS
        try:
            trial = Trial(program, Path(tempfile.mkdtemp(dir=results)))
            known = (
                pickle.loads(file.read_bytes()) if file.exists() else {"plain": trial.run(), "initial": trial.initial}
            )
        except Exception as error:  # noqa: BLE001
            print(json.dumps([seed, f"invalid {type(error).__name__}: {error}"]), flush=True)
            continue
        folder = Path(strategy.communicator.broadcast(tempfile.mkdtemp(dir=results)))
        found = strategy.communicator.allgather(outcome(program, known, strategy, folder))
        if strategy.world_size() == 1:
            file.write_bytes(pickle.dumps(known))
        print(json.dumps([seed, max(found, key=lambda one: OUTCOMES.index(one.split()[0]))]), flush=True)


def launched(launch: Callable[..., Run], results: Path, seeds: Sequence[int]) -> dict[int, str]:
    """Return the outcome of each program. A program that ends its processes is followed by a new launch."""
    found: dict[int, str] = {}
    while left := [seed for seed in seeds if seed not in found][:AT_ONCE]:
        arguments = ["module:tests.campaigns.keras_programs", "ranks", str(results), *map(str, left)]
        # A rank that fails alone leaves the others waiting.
        run = launch(*arguments, env={"XMC_TF_STALL_TIMEOUT": "40"}, timeout=600, check=False)
        output = run.ranks[0].output if run.ranks else ""
        for line in re.findall(r"^\[\d+, \".*\"\]$", output, re.MULTILINE):
            seed, what = json.loads(line)
            found[seed] = what
            print(f"{seed}: {what.splitlines()[0][:200]}", flush=True)
        if ended := [seed for seed in left if seed not in found]:
            found[ended[0]] = f"crashed: it ended its processes\n{run.describe()}"
            print(f"{ended[0]}: {found[ended[0]]}", flush=True)
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=300, help="the number of programs")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first")
    parser.add_argument("--only", type=int, nargs="+", help="the seeds of the programs")
    parser.add_argument("--on", nargs="+", choices=LAUNCHES, default=list(LAUNCHES), help="numbers of ranks")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="keras-programs-") as name:
        seeds = options.only or range(options.seed, options.seed + options.programs)
        table = {world: launched(LAUNCHES[world], Path(name), seeds) for world in options.on}
        faults = [seed for seed in seeds if any(found[seed].startswith(FAULTS) for found in table.values())]
    for seed in faults:
        print(f"\n{random_program(seed)}", *(f"# {world}: {found[seed]}" for world, found in table.items()), sep="\n")
    print(f"\n{'ranks':8}{''.join(f'{one:>11}' for one in OUTCOMES)}")
    for world, found in table.items():
        counts = Counter(one.split()[0].strip(":") for one in found.values())
        print(f"{world:8}{''.join(f'{counts[one]:11}' for one in OUTCOMES)}")
    return int(any(one.startswith(FAULTS) for found in table.values() for one in found.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["ranks"]:
        of_ranks(Path(sys.argv[2]), [int(one) for one in sys.argv[3:]])
    else:
        sys.exit(main(sys.argv[1:]))
