"""``xmc-tf COMMAND`` and ``python -m xmc_tf COMMAND``: the list, the help, the choice of a command, its end."""

import configparser
import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_layers import COMMAND_LINES
from xmc_tf.__main__ import COMMANDS, MODULES, main
from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli, invocation, launcher
from xmc_tf.store.publishing import folder_lock

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "import sys\nfrom xmc_tf.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n"  # as pip's


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Commands run in this process, without its signal handlers, and as if ``xmc-tf`` had been called."""
    monkeypatch.setattr(launcher, "prepare", lambda: None)
    monkeypatch.setattr(cli, "run", lambda command, argv: command(argv))
    monkeypatch.setattr(sys, "argv", ["/usr/bin/xmc-tf"])
    monkeypatch.setattr(invocation._Invocation, "command", None)
    monkeypatch.setattr(invocation._Invocation, "calls", {})


@pytest.fixture
def chosen(monkeypatch):
    """The modules whose commands were run, which do nothing."""
    modules = []
    monkeypatch.setattr(cli, "run", lambda command, argv: modules.append(command.__module__))
    return modules


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The console script, as an installation writes it."""
    path = tmp_path_factory.mktemp("bin") / "xmc-tf"
    path.write_text(SCRIPT)
    return path


def run(*command):
    """Run a command of this Python in a process of its own: exit status, output, errors."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    return done.returncode, done.stdout, done.stderr


def test_every_command_line_is_listed():
    ours = {module.removeprefix("xmc_tf.") for module in MODULES.values()} - {"tree.show", "server"}
    assert ours == {line.removesuffix(".__main__") for line in COMMAND_LINES} - {"__main__"}


@pytest.mark.parametrize("flags", [[], ["-h"], ["--help"], ["help"]])
def test_the_list_names_all_commands_and_two_examples(flags, capsys):
    main(flags)
    out = capsys.readouterr().out
    assert out.startswith("usage: xmc-tf COMMAND")
    listed = re.findall(r"^  (\w+)  ", out.partition("Examples:")[0], re.MULTILINE)
    assert set(listed) == {command.split()[0] for command in MODULES} - {"linear"}
    assert len(listed) == len(set(listed)) <= 22
    for group in COMMANDS.values():
        for command, (_, about) in group.items():
            assert " " in command or re.search(rf"^  {command} +{re.escape(about)}$", out, re.MULTILINE)
    assert "  xmc-tf train -t X.trn.txt" in out
    assert "  xmc-tf predict -m model" in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(("program", "called"), [("/bin/xmc-tf", "xmc-tf"), ("__main__.py", "python -m xmc_tf")])
def test_the_version_and_the_name_of_the_program(program, called, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [program])
    main(["--version"])
    assert re.fullmatch(r"xmc_tf \d+\.\d+\.\d+(rc\d+)?\n", capsys.readouterr().out)
    main([])
    assert capsys.readouterr().out.startswith(f"usage: {called} COMMAND")


@pytest.mark.parametrize("command", MODULES)
def test_help_shows_how_the_command_was_called(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert out.startswith(f"usage: xmc-tf {command} ")
    assert "python -m xmc_tf." not in out


def test_help_of_train_leads_to_the_rest(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    short = capsys.readouterr().out
    assert "xmc-tf train --help-all" in short
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help-all"])
    full = capsys.readouterr().out
    assert full.count("\n  -") == int(re.search(r"all (\d+) options", short)[1]) - 1  # TABLE is none of them
    assert "--rel-mode" in full
    assert "--imbalanced-ratio" not in full


def test_help_of_a_module_shows_the_module(capsys):
    with pytest.raises(SystemExit, match="0"):
        import_module("xmc_tf.predict").main(["--help"])
    out = capsys.readouterr().out
    assert out.startswith("usage: python -m xmc_tf.predict ")
    assert "horovodrun -np 4 python -m xmc_tf.predict" in out
    assert "xmc-tf" not in out


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        (["predct"], "xmc-tf predict"),
        (["linear", "tran"], "xmc-tf linear train"),
        (["playground"], "xmc-tf try"),
        (["tree.show"], "xmc-tf show"),
        (["linear.train", "-t", "X"], "xmc-tf linear train"),
        (["qqq"], "xmc-tf --help lists all commands"),
        (["--frobnicate"], "xmc-tf --help lists all commands"),
        (["\x1b[31m"], "xmc-tf --help lists all commands"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(typed, suggested, capsys):
    with pytest.raises(SystemExit) as ended:
        main(typed)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: xmc-tf has no command ")
    assert f"\n  fix: {suggested}\n" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("train d.csv -m m --frobnicate 2", "--frobnicate 2\n"),  # nothing is near
        ("train d.csv -m m --num-train-epoches 2", "(did you mean --num-train-epochs?)"),
        ("train d.csv -m m --label_colum x", "(did you mean --label-column?)"),
        ("train d.csv -m m --repotr x", "(did you mean --report?)"),
        # Flags of parallel-BERT.
        ("train d.csv -m m --epoch 3", "--epoch 3 (in xmc_tf: --num-train-epochs)"),
        ("train d.csv -m m -e 3", "-e 3 (in xmc_tf: --num-train-epochs)"),
        ("train d.csv -m m -l topic", "-l topic (in xmc_tf: --label-column)"),
        ("train d.csv -m m --label topic", "(in xmc_tf: --label-column)"),
        ("train d.csv -m m --text body", "(in xmc_tf: --text-column)"),
        ("train d.csv -m m --logfile f", "(in xmc_tf: 2> FILE)"),
        ("train d.csv -m m --here_gpus 2", "(in xmc_tf: xmc-tf launch --np)"),
        ("train d.csv -m m -t body", "name the column of the texts with --text-column"),
        ("train d.csv -m m -f log", "2> FILE (-f is --label-feat-path)"),
        ("launch --here_gpus 2 train.py", "(in xmc_tf: --np)"),
        ("launch --other_gpus 2 train.py", "(in xmc_tf: --hosts FILE or --nodes)"),
        ("launch --no_python ./train.sh", "(in xmc_tf: leave it out, any program is run)"),
        ("launch --node_rank 1 train.py", "(did you mean --node-rank?)"),
        ("launch --master_addr one train.py", "(did you mean --master-addr?)"),
    ],
)
def test_flags_that_do_not_exist_lead_to_near_ones_and_to_those_of_other_projects(typed, said, capsys):
    with pytest.raises((SystemExit, InputError)) as ended:
        main(typed.split())
    assert said in f"{ended.value}{capsys.readouterr().err}"


def test_flags_reach_the_command_and_errors_name_it(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--no-such-flag"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: xmc-tf evaluate ")
    assert "\nxmc-tf evaluate: error: " in err


def test_a_lock_names_the_command(tmp_path, chosen):
    main(["linear", "train"])
    with folder_lock(tmp_path / "model"):
        assert json.loads((tmp_path / ".model.xmc_tf.lock").read_text())["command"] == "xmc-tf linear train"


def test_the_installed_script_calls_it():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    name, target = settings["options.entry_points"]["console_scripts"].strip().split(" = ")
    assert name == "xmc-tf"
    module, function = target.split(":")
    assert getattr(import_module(module), function) is main


def test_a_process_ends_with_the_command_s_status_and_message(script, tmp_path):
    flags = ["evaluate", "-y", tmp_path / "Y.npz", "-p", tmp_path / "P.npz"]
    plain = run("-m", "xmc_tf.evaluate", *flags[1:])
    assert plain[0] == 2
    assert "Y.npz" in plain[2]
    assert run("-m", "xmc_tf", *flags) == plain
    assert run(script, *flags) == plain


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_script_as_it_ends_the_module(number, status, script, tmp_path):
    process = subprocess.Popen(
        [sys.executable, str(script), "try", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with process:
        assert process.stdout.readline().startswith("http://")  # it serves
        process.send_signal(number)
        assert process.wait(timeout=60) == status
        err = process.stderr.read()
    assert "interrupted by" in err
    assert "Traceback" not in err


def test_a_reader_that_leaves_early_is_no_error(script):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, str(script)], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
