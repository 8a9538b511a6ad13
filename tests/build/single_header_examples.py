"""The examples, unchanged, compile against the single header: every header they name is the single one."""

import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from toolbox import ROOT, all_headers, compiler, house, parser


def main():
    p = parser()
    p.add_argument("--have", action="append", default=[], help="the start of include paths that this machine has")
    arguments = p.parse_args()
    cxx = compiler(arguments)
    single = ROOT / "single_include" / "trireme"

    with tempfile.TemporaryDirectory() as name:
        forward = Path(name)
        for header in all_headers(arguments.wing):
            place = house.place_of(header)
            target = single / (f"{place}.hpp" if place in house.WINGS else "trireme.hpp")
            path = forward / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'#pragma once\n#include "{target}"\n')

        cxx.must("the single header alone", f'#include "{single}/trireme.hpp"\n', "-fsyntax-only", ours=forward)
        for wing in arguments.wing:
            cxx.must(f"the single header of {wing}", f'#include "{single}/{wing}.hpp"\n', "-fsyntax-only", ours=forward)
        done = 0
        for example in sorted((ROOT / "examples").glob("*.cpp")):
            texts = [example] + sorted((ROOT / "examples").glob("*.hpp"))
            needs = [t for path in texts for _, _, t in house.includes(path.read_text())]
            lacking = [t for t in needs if t.startswith("Eigen/") and "Eigen/" not in arguments.have
                       or any(t.startswith(f"trireme/{w}") and w not in arguments.wing for w in house.WINGS)]
            if lacking:
                print(f"skipped: {example.name} needs <{lacking[0]}>")
                continue
            cxx.must(f"examples/{example.name}", example, "-fsyntax-only", ours=forward)
            done += 1
        print(f"ok: {done} examples")


if __name__ == "__main__":
    main()
