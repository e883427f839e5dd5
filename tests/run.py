#!/usr/bin/env python3
"""Runs the test suites and prints one closing line over all of them.

    tests/run.py [--build DIR] [SUITE ...]      suites: lint unit fuzz integration e2e (default: all)

unit          the C tests beside the code (TAP)            lint   static checks
fuzz          every fuzz corpus replayed, a few seconds each
integration   real coved, agent, crun, netns (pytest)      e2e    the official SDKs, unmodified
With COVE_TEST_NO_SKIP=1 (CI) a skipped test counts as failed unless its reason starts with "cannot:".
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parent.parent
NO_SKIP = bool(os.environ.get("COVE_TEST_NO_SKIP"))


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def fail(self, name, text=""):
        self.failed += 1
        self.failures.append(name)
        print(f"  FAILED {name}\n{text}".rstrip(), flush=True)


def run(cmd, **kw):
    return subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          cwd=ROOT, **kw)


def suite_lint(t, build):
    r = run(["scripts/lint", build])
    if r.returncode == 0:
        t.passed += 1
    else:
        t.fail("lint", r.stdout[-6000:])


def unit_programs(build):
    for base in ("src", "tests"):
        for p in sorted((ROOT / build / base).rglob("test-*")):
            if p.is_file() and os.access(p, os.X_OK) and "." not in p.name:
                yield p


def count_tap(t, prog, r):
    lines = r.stdout.splitlines()
    seen = 0
    for i, line in enumerate(lines):
        m = re.match(r"(not )?ok (\d+) - (\S+)( # SKIP)?", line)
        if not m:
            continue
        seen += 1
        if m.group(1):
            t.fail(f"{prog.name}:{m.group(3)}", "\n".join(lines[max(0, i - 25):i]))
        elif m.group(4):
            t.skipped += 1
            print("  skipped", prog.name, m.group(3), lines[i - 1] if i else "")
        else:
            t.passed += 1
    if seen == 0 or r.returncode != 0 and not any(f.startswith(prog.name + ":") for f in t.failures):
        t.fail(prog.name, r.stdout[-3000:])


def command_of(prog):
    """The few programs that need a server get one of their own."""
    return ["tests/with-postgres", str(prog)] if prog.name.endswith("-pg") else [str(prog)]


def suite_unit(t, build):
    programs = list(unit_programs(build))
    if not programs:
        t.fail("unit", "no test programs in " + build)
    for prog in programs:
        try:
            count_tap(t, prog, run(command_of(prog), timeout=300))
        except subprocess.TimeoutExpired:
            t.fail(prog.name, "no end within 300 s")


def pytest_suite(t, build, folder, python=sys.executable):
    if not sorted((ROOT / folder).glob("test_*.py")):
        return
    xml = ROOT / build / f"{folder.replace('/', '-')}.xml"
    xml.unlink(missing_ok=True)
    env = dict(os.environ, COVE_BUILD=str(ROOT / build), PYTHONDONTWRITEBYTECODE="1")
    rc = subprocess.run([python, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--durations=8",
                         f"--junitxml={xml}", str(ROOT / folder)], cwd=ROOT, env=env).returncode
    if not xml.exists():
        t.fail(folder, f"pytest exited {rc} without a report")
        return
    seen = 0
    for case in ET.parse(xml).getroot().iter("testcase"):
        seen += 1
        name = f"{case.get('classname')}.{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            t.fail(name)
        elif skip is not None:
            why = skip.get("message") or ""
            if NO_SKIP and not why.startswith("cannot:"):
                t.fail(name, "skipped: " + why)
            else:
                t.skipped += 1
                print("  skipped", name, why)
        else:
            t.passed += 1
    if seen == 0 or rc not in (0, 1):
        t.fail(folder, f"pytest exited {rc}")


def suite_integration(t, build):
    pytest_suite(t, build, "tests/integration")


def suite_e2e(t, build):
    r = run(["tests/e2e/setup"])
    if r.returncode != 0:
        t.fail("e2e setup", r.stdout[-3000:])
        return
    pytest_suite(t, build, "tests/e2e", python=str(ROOT / "tests/.cache/venv/bin/python"))


def suite_fuzz(t, build):
    env = dict(os.environ, CC="clang", CXX="clang++")
    if not (ROOT / "build-fuzz/build.ninja").exists():
        r = run(["meson", "setup", "build-fuzz", "-Dfuzz=true", "-Db_lundef=false"], env=env)
        if r.returncode != 0:
            t.fail("fuzz setup", r.stdout[-3000:])
            return
    r = run(["ninja", "-C", "build-fuzz", "--quiet", "fuzzers"])
    if r.returncode != 0:
        t.fail("fuzz build", r.stdout[-3000:])
        return
    r = run(["tests/fuzz/run", "build-fuzz", os.environ.get("COVE_FUZZ_SECONDS", "2")])
    seen = 0
    for line in r.stdout.splitlines():
        if line.startswith("ok "):
            t.passed += 1
            seen += 1
        elif line.startswith("not ok "):
            t.fail(line[7:], r.stdout[-3000:])
            seen += 1
    if seen == 0:
        t.fail("fuzz", "no target ran\n" + r.stdout[-3000:])


SUITES = {"lint": suite_lint, "unit": suite_unit, "fuzz": suite_fuzz, "integration": suite_integration,
          "e2e": suite_e2e}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default="build")
    ap.add_argument("suites", nargs="*", metavar="SUITE")
    a = ap.parse_args()
    for s in a.suites:
        if s not in SUITES:
            ap.error(f"unknown suite {s} (have: {' '.join(SUITES)})")
    # a job in the background (or under nohup) is born with signals ignored, and would pass that on to what it tests
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    total = Totals()
    start = time.monotonic()
    for name in a.suites or SUITES:
        print(f"== {name} ==", flush=True)
        before, begin = (total.passed, total.failed, total.skipped), time.monotonic()
        SUITES[name](total, a.build)
        print(f"   {name}: {total.passed - before[0]} passed, {total.failed - before[1]} failed, "
              f"{total.skipped - before[2]} skipped in {time.monotonic() - begin:.0f} s", flush=True)
    for f in total.failures:
        print("failed:", f)
    print(f"all suites took {time.monotonic() - start:.0f} s")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
