#!/usr/bin/env python3
"""Keeps the lists of headers: cmake/headers.cmake, one header per floor (trireme/core.hpp) and the umbrella.

    scripts/list_headers.py           compares them with the folders; exit status 1 and the command when they differ
    scripts/list_headers.py --write   writes them anew
"""

import sys

sys.dont_write_bytecode = True
from house import FLOORS, INCLUDE, LIST, OURS, ROOT, UMBRELLA, WINGS, headers_on_disk, is_detail, place_of, variable_of

IDEAS = {
    "core": "errors, deadlines, observers, strong types, hashes: what everything else is made of",
    "sys": "the operating system: descriptors, futexes, child processes, clocks, CPUs",
    "shm": "memory that processes share: backings and the ring of batches",
    "threads": "fork-join teams of threads, where they run and how many there should be",
    "data": "datasets, orders, engines and the loader",
    "dist": "ranks, transports and data-parallel training",
    "observe": "reads what the other floors report",
    "zlib": "byte sources that read gzip; links trireme::zlib",
}


def wanted():
    """path -> text of every generated file."""
    disk = headers_on_disk()
    places = FLOORS + WINGS
    for header in disk:
        if header != UMBRELLA and place_of(header) not in places:
            sys.exit(f"include/{header}: '{place_of(header)}' is neither a floor nor a wing (scripts/house.py)")

    files = {}
    inside = {p: [h for h in disk if place_of(h) == p and h != f"trireme/{p}.hpp"] for p in places}
    for place in places:
        public = [h for h in inside[place] if not is_detail(h)]
        if public:
            kind = "floor" if place in FLOORS else "wing"
            files[OURS / f"{place}.hpp"] = (
                "#pragma once\n"
                f"// The {kind} `{place}`: {IDEAS[place]}.\n"
                "// This list is kept by scripts/list_headers.py.\n\n"
                + "".join(f"#include <{h}>\n" for h in public))
            inside[place].append(f"trireme/{place}.hpp")
    floors = [f for f in FLOORS if OURS / f"{f}.hpp" in files]
    files[OURS / "trireme.hpp"] = (
        "#pragma once\n"
        "// The umbrella: every floor, no wing. This list is kept by scripts/list_headers.py.\n\n"
        + "".join(f"#include <trireme/{f}.hpp>\n" for f in sorted(floors)))

    text = ("# The headers, as users include them: relative to include/. `scripts/list_headers.py --write` writes this\n"
            "# list, a test compares it with the folder.\n\n"
            "set(TRIREME_HEADERS\n")
    for floor in FLOORS:
        text += "".join(f"  {h}\n" for h in sorted(inside[floor]))
    text += f"  {UMBRELLA})\n"
    for wing in WINGS:
        text += f"\nset({variable_of(wing)}" + "".join(f"\n  {h}" for h in sorted(inside[wing])) + ")\n"
    files[LIST] = text
    return files


def main():
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        sys.exit(__doc__)
    stale = 0
    for path, text in wanted().items():
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        name = path.relative_to(ROOT)
        if write:
            path.write_text(text)
            print(f"wrote {name}")
        else:
            print(f"{name} does not match the headers in include/trireme")
    if stale and not write:
        sys.exit("  try    scripts/list_headers.py --write")
    if not stale:
        print(f"{len(headers_on_disk())} headers, every list is right")


if __name__ == "__main__":
    main()
