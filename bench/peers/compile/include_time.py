"""Times a translation unit that includes one header.

usage: include_time.py PEER HEADER_TEXT [COMPILER FLAG...]     PEERS_REPS: rounds after the first (default 5)
"""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from bench import emit, quantile

CXX = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++20", "-O2", "-w"]


def main():
    peer, text, more = sys.argv[1], sys.argv[2], sys.argv[3:]
    with tempfile.TemporaryDirectory() as d:
        unit = d + "/unit.cpp"
        with open(unit, "w") as f:
            f.write(text + "\nint main() { return 0; }\n")
        rows = []
        for r in range(int(os.environ.get("PEERS_REPS", "5")) + 1):
            t0 = time.perf_counter()
            p = subprocess.Popen([CXX, *FLAGS, *more, "-c", unit, "-o", d + "/unit.o"], stderr=subprocess.PIPE)
            words = p.stderr.read().decode(errors="replace")
            _, status, usage = os.wait4(p.pid, 0)
            wall = time.perf_counter() - t0
            p.returncode = status
            if status != 0:
                first = next((l for l in words.splitlines() if "error" in l), words.strip())
                print("left out: %s does not compile here (%s)" % (peer, first), file=sys.stderr)
                return
            if r > 0:
                rows.append((wall, usage.ru_utime, usage.ru_maxrss / 1024))
        lines = subprocess.run([CXX, *FLAGS, *more, "-E", "-P", unit], stdout=subprocess.PIPE, check=True).stdout
        emit("compile", peer, "include", [r[0] for r in rows], "s", cpu_s=quantile([r[1] for r in rows], 0.5),
             peak_mib=round(quantile([r[2] for r in rows], 0.5)), lines=lines.count(b"\n"))


main()
