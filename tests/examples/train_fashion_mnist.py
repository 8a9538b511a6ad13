#!/usr/bin/env python3
"""The main job as a user runs it: what it prints, and what happens when somebody kills its processes.

    train_fashion_mnist.py PROGRAM      rounds: TRIREME_SOAK=1 for the full count; TRIREME_TEST_SEED repeats a run
"""

import os
import random
import re
import signal
import subprocess
import sys
import time

program = sys.argv[1]
soak = "TRIREME_SOAK" in os.environ
slack = max(1.0, float(os.environ.get("TRIREME_TEST_SLACK", "1")))
seed = int(os.environ.get("TRIREME_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
print(f"TRIREME_TEST_SEED={seed}", flush=True)
dice = random.Random(seed)
base = ["--synthetic", "--batch", "32", "--seed", "3"]
failures = []


def check(what, holds, *context):
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    if not holds:
        failures.append(what)
        for c in context:
            print("        | " + str(c).replace("\n", "\n        | "))


def start(*options):
    return subprocess.Popen([program, *base, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True)


def finish(job, guard=120):
    try:
        out, _ = job.communicate(timeout=guard * slack)
        return job.returncode, out
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        out, _ = job.communicate()
        return "hang", out


def tree(session):
    """pid -> name of every process of a session: setsid is inherited by ranks, zygotes and workers."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as f:
                text = f.read()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        if int(rest[3]) == session and rest[0] != "Z":
            found[int(entry)] = (name, int(rest[1]))
    return found


def gone(session):
    until = time.monotonic() + 5 * slack
    while tree(session):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def wait_for(job, predicate, guard=60):
    until = time.monotonic() + guard * slack
    while time.monotonic() < until and job.poll() is None:
        found = [pid for pid, (name, parent) in tree(job.pid).items() if predicate(name, parent)]
        if found:
            return sorted(found)
        time.sleep(0.01)
    return []


def ranks_of(job, guard=60):
    return wait_for(job, lambda name, parent: parent == job.pid, guard)


def workers_of(job):
    return wait_for(job, lambda name, parent: name.startswith("tri-worker"))


shm_before = sorted(os.listdir("/dev/shm"))

# What it prints.
status, out = finish(start("--epochs", "1", "--steps", "60"))
check("a run ends with its test accuracy and status 0", status == 0 and out.rstrip().split("\n")[-1].startswith("test accuracy 0.") or
      out.rstrip().endswith("test accuracy 1.000"), status, out)
check("an epoch is one line with loss, accuracy, speed and waits",
      re.search(r"^epoch 1/1  loss [\d.]+  accuracy [\d.]+  \d+ samples/s  waiting for data [\d.]+%  "
                r"communication not hidden [\d.]+%$", out, re.M) is not None, out)
steps = ["--steps", "60"]
status, out = finish(start(*steps))
weights = re.findall(r"^weights ([0-9a-f]{16})", out, re.M)
check("the weights are the same on all ranks", status == 0 and len(weights) == 1, status, out)
for other in (["--engine", "threads", "--workers", "4"], ["--engine", "caller"], ["--workers", "1"]):
    status, out = finish(start(*steps, *other))
    check(f"{' '.join(other)} gives the same weights", re.findall(r"^weights ([0-9a-f]{16})", out, re.M) == weights, out)

# Mistakes.
for options, expected in ((["--ranks", "0"], "--ranks takes a number from 1"), (["--engine", "rowing"], "--engine E"),
                          (["--wat"], "what is \"--wat\"?"), (["--batch", "many"], "not \"many\"")):
    status, out = finish(start(*options))
    check(f"{' '.join(options)} is refused with status 2 and a sentence", status == 2 and expected in out, status, out)
job = subprocess.run([program, "--data", "/nowhere"], capture_output=True, text=True)
check("without data it says how to get it", job.returncode == 1 and "apt-get install dataset-fashion-mnist" in job.stderr and
      "--synthetic" in job.stderr, job.stderr)

# A loader worker is killed: nothing changes.
for _ in range(20 if soak else 4):
    job = start(*steps)
    victims = workers_of(job)
    time.sleep(dice.random() * 0.3)
    for pid in dice.sample(victims, min(len(victims), dice.choice([1, 1, 2]))):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    status, out = finish(job)
    check("a killed loader worker changes no weight",
          status == 0 and re.findall(r"^weights ([0-9a-f]{16})", out, re.M) == weights, status, out)
    check("and nothing is left", gone(job.pid))

# A rank is killed: everybody ends, and says who it was.
for _ in range(50 if soak else 5):
    job = start("--epochs", "1000")
    ranks = []
    while len(ranks) < 2 and job.poll() is None:
        ranks = ranks_of(job)
    time.sleep(dice.random() * 1.0)
    victim = dice.choice(ranks)
    os.kill(victim, signal.SIGKILL)
    begin = time.monotonic()
    status, out = finish(job)
    took = time.monotonic() - begin
    check("a killed rank ends the job with status 137", status == 137, status, out)
    check("the error names the rank's pid and the signal",
          re.search(rf"rank \d \(pid {victim}\) was killed by signal 9", out) is not None, out)
    check("the survivor says 75", "status 75" in out or "before it" in out, out)
    check(f"within seconds ({took:.1f} s)", took < 5 * slack)
    check("and nothing is left", gone(job.pid))

# The launcher is killed: nothing outlives it.
for how in (signal.SIGKILL, signal.SIGTERM):
    job = start("--epochs", "1000")
    workers_of(job)
    time.sleep(dice.random() * 0.5)
    os.kill(job.pid, how)
    status, out = finish(job)
    check(f"a launcher ended by {how.name} leaves nothing", status == -how and gone(job.pid), status, out)

# Ctrl-C in a terminal reaches the whole group.
job = start("--epochs", "1000")
workers_of(job)
os.killpg(job.pid, signal.SIGINT)
status, out = finish(job)
check("Ctrl-C ends all of it, without a flood of messages", status == -signal.SIGINT and gone(job.pid) and out.count("\n") < 12,
      status, out)

check("/dev/shm is as before", sorted(os.listdir("/dev/shm")) == shm_before)
print(f"{len(failures)} failed" if failures else "all held")
sys.exit(1 if failures else 0)
