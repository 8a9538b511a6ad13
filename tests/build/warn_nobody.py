"""No warning in a build that takes our headers by -I and has the warnings of each_part.cpp's paragraph on."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
from toolbox import ROOT, WARNINGS, all_headers, compiler, include_lines, parser

EACH_PART = Path(__file__).resolve().parent / "each_part.cpp"


def main():
    arguments = parser().parse_args()
    cxx = compiler(arguments)
    everything = include_lines(all_headers(arguments.wing))
    source = everything + EACH_PART.read_text()
    for flags in (["-O0"], ["-O2"], ["-O0", "-fsanitize=address,undefined"]):
        cxx.must(f"no warning with {' '.join(flags)}", source, *WARNINGS, *flags, "-c", "-o", "/dev/null")
    # The single header is used the same way.
    single = '#include "trireme/trireme.hpp"\n' + "".join(f'#include "trireme/{w}.hpp"\n' for w in arguments.wing)
    cxx.must("no warning from the single header", single, *WARNINGS, "-O0", "-c", "-o", "/dev/null",
             ours=ROOT / "single_include")

    status, _ = cxx.run(everything + "int user(long x) { return x; }\n", *WARNINGS, "-fsyntax-only")
    if status == 0:
        sys.exit("FAILED: the check is blind: a planted conversion was not seen")
    print("ok: a planted warning is seen")


if __name__ == "__main__":
    main()
