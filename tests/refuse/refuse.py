"""One wrong use: compiles without it, and with it fails with our sentences.

The file says what is expected in lines `// expect: regular expression`, and has its wrong line between
`#ifndef TRIREME_REFUSE_OK` and `#endif`.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "build"))
from toolbox import compiler, parser


def main():
    p = parser()
    p.add_argument("file", type=Path)
    arguments = p.parse_args()
    cxx = compiler(arguments)
    expected = re.findall(r"^// expect: (.+)$", arguments.file.read_text(), re.MULTILINE)
    if not expected:
        sys.exit(f"FAILED: {arguments.file} has no '// expect: ...' line")

    cxx.must("compiles without the wrong line", arguments.file, "-fsyntax-only", "-DTRIREME_REFUSE_OK")
    status, text = cxx.run(arguments.file, "-fsyntax-only")
    if status == 0:
        sys.exit("FAILED: the wrong use compiles")
    told = re.sub(r"\s+", " ", text)
    for sentence in expected:
        if not re.search(sentence, told):
            print("\n".join(text.splitlines()[:40]))
            sys.exit(f"FAILED: the compiler does not say: {sentence}")
    first = next((line for line in text.splitlines() if "error" in line), "")
    print(f"ok: refused with our words: {first}")


if __name__ == "__main__":
    main()
