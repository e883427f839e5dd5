"""The official server (opensandbox-server, from its registry, unmodified) on an engine of dockerkit: what clients see there.

Used to check the tests themselves (tests/e2e with COVE_E2E_SERVER=peer) and by the benchmark. Not installed unless asked for.
"""
import contextlib
import http.client
import os
import signal
import subprocess
import time

import covekit
import dockerkit

VERSION = "opensandbox-server==1.1.1"
VENV = covekit.ROOT / "tests/.cache/peer"


def install():
    if not (VENV / "bin/opensandbox-server").exists():
        subprocess.run(["python3", "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(VENV / "bin/pip"), "-q", "install", "--disable-pip-version-check", VERSION], check=True)


class PeerServer(dockerkit.DockerDaemon):
    driver = "peer"

    def __init__(self, docker, sections=None, env=None, state=None, prefix=()):
        # its agent has no token, so that plain clients find their way in
        base = {"runtime": {"execd_image": docker.image("execd")}, "server": {"socket": None}, "native": {"state_dir": None, "run_dir": None}}
        for name, keys in (sections or {}).items():
            base.setdefault(name, {}).update(keys)
        super().__init__(docker, base, env, state, prefix=prefix)
        self.sections.pop("native")

    def start(self, timeout=60):
        install()
        self.write_config()
        env = dict(os.environ, **self.env)
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen([*self.prefix, str(VENV / "bin/opensandbox-server"), "--config", str(self.config)], stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log, env=env, cwd=self.dir)
        deadline = time.monotonic() + timeout * covekit.SLOW
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health").status == 200:
                    return self
            if self.proc.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("opensandbox-server did not start:\n" + self.log.read_text()[-3000:])
            time.sleep(0.1)

    def stop(self, sig=signal.SIGTERM, timeout=30):
        return super().stop(sig, timeout)
