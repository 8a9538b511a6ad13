"""What the other scripts know about the house: floors, wings, the header list and include lines.

Runs with Debian's python3-minimal.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
OURS = INCLUDE / "trireme"
LIST = ROOT / "cmake" / "headers.cmake"

# From the ground up. data and dist stand beside each other.
FLOORS = ["core", "sys", "shm", "threads", "data", "dist", "observe"]
# Outside the walls; each is a target of its own.
WINGS = ["zlib"]

UMBRELLA = "trireme/trireme.hpp"

INCLUDE_LINE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def place_of(header):
    """The floor or wing of trireme/<place>/... or trireme/<place>.hpp; '' for the umbrella."""
    parts = header.split("/")
    name = parts[1] if len(parts) > 2 else parts[1].removesuffix(".hpp")
    return "" if header == UMBRELLA else name


def is_detail(header):
    return "detail" in header.split("/")


def headers_on_disk():
    """Every header below include/trireme, as users include it."""
    return sorted(p.relative_to(INCLUDE).as_posix() for p in OURS.rglob("*.hpp"))


def listed(variable):
    """The headers of set(<variable> ...) in cmake/headers.cmake, in its order."""
    found = re.search(r"set\(" + variable + r"\s*([^)]*)\)", LIST.read_text())
    if found is None:
        sys.exit(f"{LIST}: no set({variable} ...)")
    return found.group(1).split()


def variable_of(wing):
    return f"TRIREME_{wing.upper()}_HEADERS"


def includes(text):
    """(line number, quote or bracket, header) of every include line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE_LINE.match(line)
        if match:
            found.append((number, match.group(1), match.group(2)))
    return found
