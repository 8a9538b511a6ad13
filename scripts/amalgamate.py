#!/usr/bin/env python3
"""Writes the single headers: trireme/trireme.hpp with every floor, and one file per wing that includes it.

    scripts/amalgamate.py             writes single_include/
    scripts/amalgamate.py --out DIR   writes DIR instead
    scripts/amalgamate.py --check     compares single_include/ with what it would write; status 1 when it is stale

The files come from cmake/headers.cmake. Includes of the standard library, the system and Boost are lifted to the top,
ours are replaced by the file, once. The stamp is the version alone, so the same input gives the same bytes. It stops
at whatever it cannot follow: a project header inside an #if, one that is not in the list, a cycle, an include that is
made by a macro.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from house import INCLUDE, INCLUDE_LINE, ROOT, WINGS, listed, variable_of

# Emitted before anything else: its one line for a compiler that is too old must be the first that is read.
FIRST = "trireme/core/version.hpp"

ANY_INCLUDE = re.compile(r"^\s*#\s*include\b")
ONCE = re.compile(r"^\s*#\s*pragma\s+once\b")
OPENS = re.compile(r"^\s*#\s*if")
CLOSES = re.compile(r"^\s*#\s*endif\b")


class stop(Exception):
    pass


class piece:
    """One header: what it includes and its text without these lines."""

    def __init__(self, header):
        self.header, self.ours, self.lifted, self.body = header, [], [], []
        path, depth, once, in_comment = INCLUDE / header, 0, False, False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path}:{number}"
            if in_comment:
                in_comment = "*/" not in line
            elif ONCE.match(line):
                once = True
                continue
            elif ANY_INCLUDE.match(line):
                match = INCLUDE_LINE.match(line)
                if match is None:
                    raise stop(f"{where}: cannot follow an include that a macro makes: {line.strip()}")
                quote, target = match.groups()
                if target.startswith("trireme/") or quote == '"':
                    if quote == '"':
                        raise stop(f'{where}: "{target}": project headers are included as <trireme/...>')
                    if depth:
                        raise stop(f"{where}: <{target}> stands inside an #if")
                    self.ours.append((where, target))
                    continue
                if not depth:
                    self.lifted.append(target)
                    continue
            elif OPENS.match(line):
                depth += 1
            elif CLOSES.match(line):
                depth -= 1
            elif "/*" in line and "*/" not in line.split("/*", 1)[1]:
                in_comment = True
            self.body.append(line)
        if not once:
            raise stop(f"{path}: no #pragma once")
        if depth:
            raise stop(f"{path}: an #if is not closed")
        text = "\n".join(self.body).strip("\n")
        self.text = re.sub(r"\n{3,}", "\n\n", text)


def order(roots, known, done):
    """Pieces in the order of their includes, depth first; each once."""
    result, open_now = [], []

    def visit(header, where):
        if header in open_now:
            raise stop(f"{where}: headers include each other: {' -> '.join(open_now + [header])}")
        if header in done:
            return
        if header not in known:
            raise stop(f"{where}: {header} is not in cmake/headers.cmake (scripts/list_headers.py --write)")
        open_now.append(header)
        new = piece(header)
        for line, target in new.ours:
            visit(target, line)
        open_now.pop()
        done.add(header)
        result.append(new)

    for root in roots:
        visit(root, "cmake/headers.cmake")
    return result


def group(target):
    """0 the standard library, 1 the system, 2 Boost and other libraries."""
    if "/" not in target and not target.endswith(".h"):
        return 0
    if target.startswith(("sys/", "linux/", "arpa/", "net/", "netinet/", "asm/")) or (
            "/" not in target and target not in ("zlib.h",)):
        return 1
    return 2


def lift(pieces, already):
    names = sorted({t for p in pieces for t in p.lifted} - already, key=lambda t: (group(t), t))
    already.update(names)
    lines, last = [], None
    for name in names:
        if last is not None and group(name) != last:
            lines.append("")
        lines.append(f"#include <{name}>")
        last = group(name)
    return lines


def show(pieces):
    lines = []
    for p in pieces:
        if re.sub(r"//[^\n]*", "", p.text).strip():  # a list of headers has nothing left
            lines += ["", f"// ---- {p.header} " + "-" * max(4, 100 - len(p.header)), "", p.text]
    return lines


def version():
    text = (INCLUDE / FIRST).read_text()
    return ".".join(re.search(rf"TRIREME_VERSION_{part} (\d+)", text).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


LICENCE = [
    "//",
    "// Distributed under the Boost Software License, Version 1.0. (https://www.boost.org/LICENSE_1_0.txt)",
    "//",
    "// Made by scripts/amalgamate.py from include/: change the headers there.",
]


def make():
    """name -> text of every single header."""
    files, done, lifted = {}, set(), set()
    floors = listed("TRIREME_HEADERS")
    if piece(FIRST).ours or piece(FIRST).lifted:
        raise stop(f"include/{FIRST} must include nothing: it comes first")
    known = set(floors)
    pieces = order([FIRST] + floors, known, done)
    files["trireme/trireme.hpp"] = (
        ["#pragma once", f"// trireme {version()}, every floor in one header. Needs a C++20 compiler, Linux and Boost headers."]
        + LICENCE + show(pieces[:1]) + [""] + lift(pieces, lifted) + show(pieces[1:]))
    for wing in WINGS:
        headers = listed(variable_of(wing))
        if not headers:
            continue
        pieces = order(headers, known | set(headers), done)
        files[f"trireme/{wing}.hpp"] = (
            ["#pragma once", f"// trireme {version()}, the wing `{wing}` in one header."] + LICENCE
            + ["", '#include "trireme.hpp"', ""] + lift(pieces, lifted) + show(pieces))
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def main():
    arguments = sys.argv[1:]
    out, check = ROOT / "single_include", False
    if arguments[:1] == ["--out"] and len(arguments) == 2:
        out = Path(arguments[1])
    elif arguments == ["--check"]:
        check = True
    elif arguments:
        sys.exit(__doc__)

    try:
        files = make()
    except stop as reason:
        sys.exit(f"amalgamate: {reason}")

    stale = [name for name, text in files.items()
             if not (out / name).exists() or (out / name).read_text() != text]
    extra = sorted(p for p in out.rglob("*.hpp") if p.relative_to(out).as_posix() not in files)
    if check:
        for name in stale + [p.relative_to(out).as_posix() for p in extra]:
            print(f"single_include/{name} is stale")
        if stale or extra:
            sys.exit("  try    scripts/amalgamate.py")
        print("single_include/ is fresh")
        return
    for name in stale:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(files[name])
        print(f"wrote {out / name}: {files[name].count(chr(10))} lines")
    for path in extra:
        path.unlink()
        print(f"removed {path}")


if __name__ == "__main__":
    main()
