#!/usr/bin/env python3
"""Code in README.md and docs/ is copied from files that compile.

A fence that opens with ```cpp example=examples/first.cpp#loop holds what stands between the lines `// [loop]` and
`// [/loop]` of that file, without the common indentation; without #loop, the whole file. In README.md every C++ fence
has to name its source.

    scripts/readme_fences.py           compares; exit status 1 and the command when something differs
    scripts/readme_fences.py --write   copies
"""

import re
import sys
import textwrap

sys.dont_write_bytecode = True
from house import ROOT

FENCE = re.compile(r"^```(?:cpp|c\+\+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"^ example=([^#\s]+)(?:#(\S+))?$")


class stop(Exception):
    pass


def without_marks(text):
    lines = [line for line in text.splitlines() if not re.match(r"^\s*// \[/?[\w-]+\]$", line)]
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def source_of(path, region):
    file = ROOT / path
    if not file.is_file():
        raise stop(f"there is no {path}")
    text = file.read_text()
    if region is None:
        return without_marks(text)
    found = re.findall(rf"^[ \t]*// \[{re.escape(region)}\]\n(.*?)^[ \t]*// \[/{re.escape(region)}\]$", text,
                       re.MULTILINE | re.DOTALL)
    if len(found) != 1:
        raise stop(f"{path} has {len(found)} regions '// [{region}]' ... '// [/{region}]', and should have one")
    return without_marks(found[0])


def renew(page, text):
    """(the page with its fences copied anew, how many there are)."""
    count = 0

    def copy(match):
        nonlocal count
        source = SOURCE.match(match.group(1))
        if source is None:
            if page.name == "README.md":
                raise stop("a C++ fence does not name its source: ```cpp example=examples/first.cpp#region")
            return match.group(0)
        count += 1
        return f"```cpp{match.group(1)}\n{source_of(*source.groups())}```"

    return FENCE.sub(copy, text), count


def main():
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        sys.exit(__doc__)
    stale, fences = [], 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if not page.is_file():
            continue
        text = page.read_text()
        try:
            new, count = renew(page, text)
        except stop as reason:
            sys.exit(f"{page.relative_to(ROOT)}: {reason}")
        fences += count
        if new != text:
            stale.append(page.relative_to(ROOT))
            if write:
                page.write_text(new)
    for page in stale:
        print(f"{'wrote' if write else 'stale:'} {page}")
    if stale and not write:
        sys.exit("  try    scripts/readme_fences.py --write")
    print(f"{fences} fences hold what their files hold")


if __name__ == "__main__":
    main()
