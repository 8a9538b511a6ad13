"""What the checks of this folder share: arguments, and running a compiler on a few lines of source."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import house

WARNINGS = ("-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wnon-virtual-dtor "
            "-Woverloaded-virtual -Wundef -Werror").split()


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("--compiler", required=True)
    p.add_argument("--system", action="append", default=[], help="a folder of other people's headers")
    p.add_argument("--wing", action="append", default=[], help="a wing whose dependency is on this machine")
    return p


class compiler:
    def __init__(self, arguments):
        self.command = [arguments.compiler, "-std=c++20"]
        self.system = [flag for folder in arguments.system for flag in ("-isystem", folder)]
        self.folder = tempfile.TemporaryDirectory()
        self.is_clang = "clang" in Path(arguments.compiler).name

    def run(self, source, *flags, ours=house.INCLUDE):
        """(exit status, everything it printed) for the text `source` or the file at that path."""
        if not isinstance(source, Path):
            path = Path(self.folder.name) / "check.cpp"
            path.write_text(source)
            source = path
        done = subprocess.run([*self.command, "-I", str(ours), *self.system, *flags, str(source)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def must(self, what, source, *flags, **more):
        status, text = self.run(source, *flags, **more)
        if status != 0:
            print("\n".join(text.splitlines()[:60]))
            sys.exit(f"FAILED: {what}")
        print(f"ok: {what}")
        return text


def all_headers(wings):
    """Every header of the floors and of these wings."""
    found = house.listed("TRIREME_HEADERS")
    for wing in wings:
        found += house.listed(house.variable_of(wing))
    return found


def foreign_headers(headers):
    """What they include that is not ours, outside of any #if."""
    found = set()
    for header in headers:
        found |= {t for _, _, t in house.includes((house.INCLUDE / header).read_text())
                  if not t.startswith("trireme/")}
    return sorted(found)


def include_lines(headers):
    return "".join(f"#include <{h}>\n" for h in headers)
