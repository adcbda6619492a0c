"""Programs that are kept between runs: where, for whom, how many, and that they are found again."""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tiny_run
from filtrax.cli import app, programs
from filtrax.lab import config

VARIABLES = (programs.FOLDER, programs.SWITCH, *programs.SETTINGS)


@pytest.fixture(autouse=True)
def unset(monkeypatch, tmp_path):
    """The variables of a user who has set none of them, but has a cache folder of their own."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored, whatever the code sets
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("atexit.register", lambda *arguments: None)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "filtrax" / "programs"


def mode(folder):
    return folder.stat().st_mode & 0o777


def begin(*command, **variables):
    """A process of a user like above; `variables` are set, too."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *command], env=os.environ | variables, **options)


def end(process):
    """What a process has written to its error stream; it has not failed."""
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return errors


def run(*command, **variables):
    return end(begin(*command, **variables))


def test_programs_are_kept_in_a_private_folder(folder):
    # Rejects a folder that others may read, and one that later processes would not be told of.
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    programs.keep()
    assert mode(folder) == 0o700
    assert os.environ[programs.FOLDER] == str(folder)
    folder.rmdir()
    del os.environ[programs.FOLDER]
    programs.keep()
    assert mode(folder) == 0o700


def test_what_the_user_has_set_stays(monkeypatch, tmp_path):
    # Rejects a folder of our own beside the user's, and limits that replace the user's.
    least = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    monkeypatch.setenv(programs.FOLDER, str(tmp_path / "own"))
    monkeypatch.setenv(least, "7")
    programs.keep()
    assert os.environ[programs.FOLDER] == str(tmp_path / "own")
    assert os.environ[least] == "7"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("base", ["", "relative"])
def test_a_cache_folder_is_absolute(base, monkeypatch, tmp_path):
    # Rejects programs that lie wherever a command was started.
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert programs.default_folder() == tmp_path / ".cache" / "filtrax" / "programs"


def raising(error):
    def function(*arguments, **options):
        raise error

    return function


def link(folder, patch):
    (folder.parent / "elsewhere").mkdir(parents=True)
    folder.symlink_to("elsewhere")


def dangling_link(folder, patch):
    folder.parent.mkdir()
    folder.symlink_to("nowhere")


def file(folder, patch):
    folder.parent.mkdir()
    folder.touch()


def file_above(folder, patch):
    folder.parent.touch()


def of_somebody_else(folder, patch):
    folder.mkdir(parents=True)
    patch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)


def read_only(folder, patch):
    patch.setattr(Path, "mkdir", raising(OSError("Read-only file system")))


def not_writable(folder, patch):
    patch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)


def no_home(folder, patch):
    patch.delenv("XDG_CACHE_HOME")
    patch.setattr(Path, "expanduser", raising(RuntimeError("Could not determine home directory.")))


PLACES = [
    link,
    dangling_link,
    file,
    file_above,
    of_somebody_else,
    read_only,
    not_writable,
    no_home,
]


@pytest.mark.parametrize("place", PLACES)
def test_without_a_private_folder_nothing_is_kept(place, folder, monkeypatch, capfd):
    # Rejects programs that others could have written, and a command that fails or complains.
    place(folder, monkeypatch)
    programs.keep()
    assert programs.FOLDER not in os.environ
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_no_cache_may_stand_anywhere(position):
    # Rejects an option that only the root knows, and one that is parsed but has no effect.
    arguments = ["train", "--print-config"]
    arguments.insert(position, "--no-cache")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert os.environ[programs.SWITCH] == "false"
    assert "--no-cache" in CliRunner().invoke(app, ["--help"]).stdout


PROGRAM = "import jax; jax.jit(lambda x: 2 * x)(1.0)"
KEPT = f"from filtrax.cli import programs; programs.keep(); {PROGRAM}"


def test_the_library_keeps_nothing(folder):
    # Rejects a cache that `import filtrax` switches on, and a command line that imports JAX first.
    check = "import sys, filtrax.cli; assert 'jax' not in sys.modules"
    assert run("-c", f"{check}; import filtrax; filtrax.run; {PROGRAM}") == ""
    assert not folder.exists()


def test_a_damaged_program_is_replaced_in_silence(folder):
    # Rejects a warning at every run, and a program that is never kept again once it is damaged.
    run("-c", KEPT)
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    assert kept
    for path, content in kept.items():
        path.write_bytes(content[: len(content) // 2])
    assert run("-c", KEPT) == ""
    assert {path.name for path in folder.iterdir()} == {path.name for path in kept}
    for path, content in kept.items():
        assert len(path.read_bytes()) > len(content) // 2


def test_processes_may_keep_the_same_programs_at_once(folder):
    # Rejects a lock that one process waits for in vain, and complaints about what others write.
    processes = [begin("-c", KEPT) for _ in range(3)]
    assert [end(process) for process in processes] == ["", "", ""]
    assert run("-c", KEPT) == ""
    assert list(folder.iterdir())


def test_other_warnings_are_shown(folder):
    # Rejects a filter that hides all that JAX has to say, and one that deletes other programs.
    shown = []
    folder.mkdir(parents=True)
    names = ("jit_f-00-cache", "jit_f-11-cache", "jit_ff-00-cache", "jit_g-00-cache")
    for name in names:
        (folder / name).touch()
    show = programs.mending(folder, lambda message, *others: shown.append(str(message)))
    fault = "Error reading persistent compilation cache entry for 'jit_f': error: incomplete"
    for text in ("Overflow", fault):
        show(UserWarning(text), UserWarning, "compiler.py", 1)
    assert shown == ["Overflow"]
    assert {path.name for path in folder.iterdir()} == set(names[2:])


def test_programs_that_were_used_longest_ago_go_first(tmp_path):
    # Rejects a bound on each program, one on their number, and the newest ones that go.
    now = time.time()
    for age, name in enumerate(("d", "c", "b", "a")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (now - age, now - 100))
    (tmp_path / "folder").mkdir()
    programs.trim(tmp_path, 25)
    assert {path.name for path in tmp_path.iterdir()} == {"d", "c", "folder"}


def test_only_what_has_grown_is_trimmed(tmp_path):
    # Rejects a command that reads the whole folder though it has compiled nothing.
    (tmp_path / "a").write_bytes(bytes(10))
    then = tmp_path.stat().st_mtime_ns
    programs.trim_if_changed(tmp_path, then, 0)
    assert (tmp_path / "a").exists()
    programs.trim_if_changed(tmp_path, then - 1, 0)
    assert not (tmp_path / "a").exists()
    programs.trim_if_changed(tmp_path / "gone", then)


def test_a_second_run_compiles_nothing(folder, tmp_path):
    # Rejects programs that differ from run to run, as those that call Python do, and settings by
    # which small ones are not kept.
    config.write(tmp_path / "tiny.toml", tiny_run.EXPERIMENT)
    train = ("-m", "filtrax", "train", str(tmp_path / "tiny.toml"), "--out")
    loud = {"JAX_EXPLAIN_CACHE_MISSES": "1", "JAX_LOG_COMPILES": "1"}
    missed, found = "PERSISTENT COMPILATION CACHE MISS", "Persistent compilation cache hit"
    first = run(*train, str(tmp_path / "first"), **loud)
    assert f"{missed} for 'jit_train_steps'" in first
    kept = {path.name for path in folder.iterdir()}
    second = run(*train, str(tmp_path / "second"), **loud)
    assert f"{found} for 'jit_train_steps'" in second
    assert missed not in second
    assert {path.name for path in folder.iterdir()} == kept
    assert tiny_run.content(tmp_path / "second") == tiny_run.content(tmp_path / "first")
