"""The examples of both READMEs in Python and in the shell do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import stage

ROOT = Path(__file__).parent.parent.parent.parent


def example(page, language):
    """The block of a language in the part that shows all of them."""
    text = (ROOT / page).read_text()
    part = text[text.index("## In four languages" if page == "README.md" else "## 四种语言") :]
    return re.search(rf"```{language}\n(.*?)```", part, re.S).group(1)


@pytest.fixture
def environment(tmp_path):
    """Locks in a folder of the test, and a program that writes an order down."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "tidelock").symlink_to(stage.binary())
    writer = programs / "write_order"
    writer.write_text('#!/bin/sh\necho "$1"\n')
    writer.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    return {**os.environ, "TIDELOCK_DIR": str(tmp_path / "locks"), "PATH": path, "TIDELOCK_URL": "file:"}


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_example_in_python_runs(page, environment):
    program = "write_order = print\n" + example(page, "python")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_example_in_the_shell_runs(page, environment):
    command = example(page, "sh")
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
