"""Programs, a server and stores on which scenarios are played: see ../../scenarios.json."""

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

HERE = Path(__file__).parent
#: Nothing that a test waits for takes longer, unless it never comes.
LIMIT = 60.0


def binary():
    from tidelock._server import binary as found

    return os.environ.get("TIDELOCK_BINARY") or found()


class Process:
    """A child process whose lines are read."""

    def __init__(self, command, environment=None, **more):
        environment = {**os.environ, **(environment or {})}
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, **more
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def say(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def hear(self):
        line = self.lines.get(timeout=LIMIT)
        assert line is not None, f"{self.child.args} ended with {self.child.wait()}"
        return json.loads(line)

    def signal(self, number):
        self.child.send_signal(number)
        if number == signal.SIGSTOP:
            # A thread of it may run on for a while.
            os.waitpid(self.child.pid, os.WUNTRACED)

    def kill(self):
        self.child.kill()
        self.child.wait()

    def end(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.stdin.close()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


class Redis(Process):
    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        folder.mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        super().__init__(command)
        while "Ready to accept connections" not in (line := self.lines.get(timeout=LIMIT) or "!"):
            assert line != "!", "redis-server did not start"
        self.url = f"redis://127.0.0.1:{self.port}"

    def end(self):
        self.kill()


class Server(Process):
    """A server that programs share."""

    def __init__(self, path, url):
        self.path, self.url = path, url
        super().__init__(
            [binary(), "serve", "--listen", f"unix:{path}", "--until-stdin-closes"], {"TIDELOCK_URL": url}
        )
        assert self.hear()["event"] == "listening"


class Stage:
    """One scenario, with its own names on servers that scenarios share."""

    def __init__(self, folder, stores, command):
        self.folder, self.stores, self.command = folder, stores, command
        self.servers = {}
        self.programs = {}
        self.prefix = uuid.uuid4().hex[:12] + "/"
        self.tokens = {}
        self.counter = folder / "counter"
        self.counter.write_text("0")

    def socket(self, store):
        return str(self.folder / f"{store}.sock")

    def start_server(self, store="one"):
        self.servers[store] = Server(self.socket(store), self.stores[store].url)

    def program(self, who, store):
        if who not in self.programs:
            if store not in self.servers:
                self.start_server(store)
            environment = {"TIDELOCK_SOCKET": self.socket(store)}
            self.programs[who] = Process(self.command, environment)
        return self.programs[who]

    def play(self, scenario):
        for name in scenario.get("each", ["n"]):
            for step in scenario["steps"]:
                self.step(scenario, name, *step)

    def step(self, scenario, name, who, what, arguments, expected=None):
        shown = f"{scenario['name']} ({name}): {who} {what} {arguments}"
        if who in ("server", "store"):
            return self.fault(who, what)
        store = scenario.get("stores", {}).get(who, "one")
        program = self.program(who, store)
        if what in ("stop", "continue", "kill"):
            return self.signal(program, what)
        if what != "answer":
            step = dict(arguments, do=what.lstrip("~"), file=str(self.counter))
            if "each" in scenario and "as" in step:
                # All of them are held at the same time.
                step["as"] += name
            if "name" in step and not step.get("exact"):
                step["name"] = self.prefix + (name if step["name"] == "n" else step["name"])
            if "names" in step:
                step["names"] = [self.prefix + each for each in step["names"]]
            program.asked = step
            program.say(json.dumps(step))
        if what.startswith("~"):
            return None
        answer = program.hear()
        assert answer["result"] == expected, f"{shown}: {answer}"
        self.check_token((store, program.asked.get("name")), program.asked, answer, shown)

    def check_token(self, key, step, answer, shown):
        if "token" in answer and "name" in step and step.get("share", "exclusive") == "exclusive":
            assert int(answer["token"]) > self.tokens.get(key, 0), f"{shown}: the token is not larger than the last one"
            self.tokens[key] = int(answer["token"])

    def fault(self, who, what):
        if who == "store":
            return self.signal(self.stores["one"], what)
        if what == "start":
            return self.start_server()
        if what == "restart":
            self.servers["one"].end()
            return self.start_server()
        return self.signal(self.servers["one"], what)

    @staticmethod
    def signal(process, what):
        if what == "kill":
            process.kill()
        else:
            process.signal(signal.SIGSTOP if what == "stop" else signal.SIGCONT)

    def end(self):
        for process in [*self.programs.values(), *self.servers.values()]:
            process.end()


def program(client):
    """The command of a program under test."""
    if client == "node":
        return [shutil.which("node"), str(HERE.parent.parent / "node/test/program.js")]
    return [sys.executable, str(HERE / "program.py"), client]
