"""The code blocks of a page, run in order in one folder, as a reader would."""

import argparse
import contextlib
import functools
import importlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.distributed.launch import BIN, ENVIRONMENT, REPOSITORY
from tools.docs.blocks import Block, blocks, commands
from tools.docs.examples import RUN
from xmc_tf.__main__ import MODULES
from xmc_tf.params import model_place
from xmc_tf.server.connections import bound_socket, in_background
from xmc_tf.server.page.answering import Answering
from xmc_tf.server.page.routes import page_application

_SHELL = re.compile(r"[|&;<>$`*(]|^(?!xmc-tf [a-z]|python -m xmc_tf\.)")
_CLUSTER = re.compile(r"\b(horovodrun|mpiexec|xmc-tf launch|xmc_tf\.launch)\b")


class Reader:
    """Somebody who runs the blocks of a page.

    Commands of xmc_tf run in this process, which has loaded TensorFlow already; other command lines run in bash.

    Args:
        folder: where all blocks run; the current folder.
        servers: addresses on the page, and what returns the address to use instead. It is called for the first block
            with the address, when earlier blocks have written what the server serves.
    """

    def __init__(self, folder: Path, servers: Mapping[str, Callable[[], str]] | None = None) -> None:
        self.folder = folder
        self.servers = {address: functools.cache(start) for address, start in (servers or {}).items()}
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> str:
        """Run a block and return what it prints."""
        code = block.code
        for address, start in self.servers.items():
            if address in code:
                code = code.replace(address, start())
        block = replace(block, code=code)
        if block.language == "python":
            return self._python(block)
        lines = commands(block)
        if any(_SHELL.search(line) for line in lines) or _CLUSTER.search(code):
            return self._bash(block)
        return "".join([self._command(line) for line in lines])

    def _python(self, block: Block) -> str:
        # Blank lines in front give the page's line numbers to tracebacks.
        program = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(program, self.names)
        return out.getvalue()

    def _bash(self, block: Block) -> str:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(REPOSITORY)}
        environment["PATH"] = f"{BIN}:{environment['PATH']}"
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=480,
        )  # fmt: skip
        assert ran.returncode == 0, f"{block} ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def _command(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] == "xmc-tf":
            words = words[1:]
            name = command_name(words)
            arguments = words[len(name.split()) :]
            module = MODULES[name]
        else:
            module, arguments = words[2], words[3:]
        if module == MODULES["try"]:
            return asked_on_the_page(arguments)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            module_of(module).main(arguments)
        return out.getvalue()


def command_name(words: list[str]) -> str:
    """Return the name of the command that the words after ``xmc-tf`` begin with."""
    return " ".join(words[:2]) if " ".join(words[:2]) in MODULES else words[0]


def asked_on_the_page(arguments: list[str]) -> str:
    """Start the playground as its command does, open its page, and stop it."""
    given = parser_of(MODULES["try"]).parse_args(arguments)
    with (
        in_background(page_application(Answering(model_place(given))), bound_socket("127.0.0.1", 0)) as url,
        urllib.request.urlopen(url, timeout=120) as page,
    ):
        assert b"<html" in page.read()
    return f"http://127.0.0.1:{given.port}/   (press Ctrl-C to stop)\n"


def module_of(module: str) -> ModuleType:
    """Return the module that has a command's ``main``."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    return importlib.import_module(module if spec.submodule_search_locations is None else f"{module}.__main__")


def parser_of(module: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    return module_of(module).parser()


def run_page(page: Path, reader: Reader) -> Iterator[tuple[Block, str]]:
    """Run all blocks of a page; give each block that shows an output, and what the block before it printed."""
    printed = None
    for block in blocks(page):
        if block.language in RUN:
            printed = reader.run(block)
        else:
            if block.follows and block.language == "text" and printed is not None:
                yield block, printed
            printed = None
