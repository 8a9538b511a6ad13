#!/usr/bin/env python3
"""Checks that arrows between the floors point down, by reading the include lines.

    core <- sys <- shm <- threads <- { data | dist } <- observe; wings stand outside

- a header includes its own floor or lower ones; data and dist do not see each other; no floor includes a wing
- a `detail/` folder is opened by its own floor or wing only, and so is the floor's own list (trireme/shm.hpp)
- threads/pool.hpp reaches nothing of shm, not even through others
- project headers are included as <trireme/...>, and light: no <iostream>, <regex>, <locale>

    scripts/check_layers.py [FOLDER]     FOLDER holds trireme/ (default: include)
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
from house import FLOORS, INCLUDE, UMBRELLA, WINGS, includes, is_detail, place_of

# (header, included header) pairs that may break the rules. It is pleasant to keep this empty.
EXCEPTIONS = []

BELOW = {floor: set(FLOORS[:i]) for i, floor in enumerate(FLOORS)}
BELOW["data"] -= {"dist"}
BELOW["dist"] -= {"data"}
BELOW["zlib"] = set(FLOORS)

HEAVY = {"iostream", "regex", "locale"}
# (header, floor that it must not reach)
UNREACHABLE = [("trireme/threads/pool.hpp", "shm")]


def broken_rule(header, quote, target):
    """Why `header` must not include `target`, or ''."""
    if not target.startswith("trireme/"):
        if quote == '"':
            return "project headers are included as <trireme/...>"
        return f"<{target}> costs every user compile time" if target in HEAVY else ""
    if quote == '"':
        return "project headers are included as <trireme/...>"
    here, there = place_of(header), place_of(target)
    if target == UMBRELLA:
        return "the umbrella is for users"
    if here == "":
        return "" if there in FLOORS and target == f"trireme/{there}.hpp" else "the umbrella lists floors, nothing else"
    if there in WINGS and there != here:
        return f"'{there}' is a wing; no floor or other wing may need it"
    if there != here and there not in BELOW[here]:
        return f"'{there}' does not lie below '{here}'"
    if is_detail(target) and there != here:
        return f"the detail of '{there}' is its own"
    if target == f"trireme/{there}.hpp":
        return f"trireme/{there}.hpp is for users: name the header that is needed"
    return ""


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else INCLUDE
    headers = {p.relative_to(root).as_posix(): p for p in sorted((root / "trireme").rglob("*.hpp"))}
    if not headers:
        sys.exit(f"{root}: no headers below trireme/")
    complaints, edges = [], {}
    for header, path in headers.items():
        found = includes(path.read_text())
        edges[header] = [t for _, _, t in found if t in headers]
        for number, quote, target in found:
            if (header, target) in EXCEPTIONS:
                continue
            reason = broken_rule(header, quote, target)
            if not reason and target.startswith("trireme/") and target not in headers:
                reason = "there is no such header"
            if reason:
                complaints.append(f"{path}:{number}: includes {target}: {reason}")
    for start, floor in UNREACHABLE:
        seen, todo = {start}, [start]
        while todo:
            for target in edges.get(todo.pop(), []):
                if place_of(target) == floor:
                    complaints.append(f"{start}: reaches {target}, and must reach nothing of '{floor}'")
                elif target not in seen:
                    seen.add(target)
                    todo.append(target)
    for line in complaints:
        print(line)
    if complaints:
        sys.exit(f"{len(complaints)} arrows point the wrong way")
    print(f"{len(headers)} headers, {sum(map(len, edges.values()))} arrows, all of them point down")


if __name__ == "__main__":
    main()
