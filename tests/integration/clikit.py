"""Calling the cove program, plain and in a terminal."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time

import covekit

COVE = str(covekit.BIN / "cove")


def environment(daemon=None, **extra):
    env = {k: v for k, v in os.environ.items() if k not in ("COVE_HOST", "OPEN_SANDBOX_API_KEY")}
    env["COVE_LIBEXEC"] = str(covekit.LIBEXEC)
    if daemon:
        env["COVE_HOST"] = f"unix:{daemon.socket}"
    env.update(extra)
    return env


def cove(*args, daemon=None, stdin=b"", timeout=60, env=None, cwd=None):
    return subprocess.run([COVE, *map(str, args)], input=stdin, capture_output=True, timeout=timeout,
                          env=environment(daemon, **(env or {})), cwd=cwd)


def wait_for(condition, timeout=15):
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.02)


class Terminal:
    def __init__(self, daemon, *args, size=(30, 100)):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(COVE, [COVE, *args], environment(daemon, TERM="xterm"))
        self.resize(*size)
        self.text = b""

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.fd, data)

    def expect(self, pattern, timeout=20):
        deadline = time.monotonic() + timeout
        while not (m := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern} did not come: {self.text[-2000:]}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    assert re.search(pattern, self.text), f"ended without {pattern}: {self.text[-2000:]}"
        self.text = self.text[m.end():]
        return m

    def wait(self, timeout=20):
        def drain():
            try:
                while chunk := os.read(self.fd, 65536):
                    self.text += chunk
            except OSError:
                pass
        t = threading.Thread(target=drain)
        t.start()
        deadline = time.monotonic() + timeout
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < deadline, "cove did not end"
            time.sleep(0.02)
        t.join(5)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)
