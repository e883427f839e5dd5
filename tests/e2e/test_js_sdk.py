"""Runs js/sdk.test.mjs under node and reports each of its tests."""
import os
import pathlib
import re
import subprocess

from covekit import API_KEY, ROOT

HERE = pathlib.Path(__file__).parent


def test_js_sdk(daemon):
    env = dict(os.environ, COVE_DOMAIN=f"127.0.0.1:{daemon.port}", COVE_KEY=API_KEY, COVE_DRIVER=daemon.driver, COVE_IMAGE=daemon.image, COVE_ROOTFS=daemon.small, COVE_SERVERS=str(HERE / "servers.py"),
               COVE_JS_MODULES=str(ROOT / "tests/.cache/js"))
    r = subprocess.run(["node", "--test-reporter=tap", "--test", str(HERE / "js/sdk.test.mjs")], env=env, capture_output=True, text=True, timeout=300)
    passed = re.findall(r"^ *ok \d+ - (.+)$", r.stdout, re.M)
    failed = re.findall(r"^ *not ok \d+ - (.+)$", r.stdout, re.M)
    assert not failed and r.returncode == 0, r.stdout[-6000:] + r.stderr[-2000:]
    assert len(passed) >= (22 if daemon.driver != "native" else 18), passed
