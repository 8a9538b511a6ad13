"""scripts/amalgamate.py stops, with a sentence, at what it cannot follow; and gives the same bytes twice."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
VICTIM = "include/trireme/core/hash.hpp"

# text in the victim, what replaces it, what is said ('' when the result must be made)
MUTANTS = [
    ("", "", ""),
    ("#include <concepts>", "#if 1\n#include <trireme/core/bytes.hpp>\n#endif", "stands inside an #if"),
    ("#include <concepts>", "#include <trireme/core/gone.hpp>", "is not in cmake/headers.cmake"),
    ("#include <concepts>", '#include "bytes.hpp"', "project headers are included as"),
    ("#include <concepts>", "#define TRIREME_X <concepts>\n#include TRIREME_X", "a macro makes"),
    ("#include <concepts>", "#include <trireme/core/hash.hpp>", "include each other"),
    ("#include <concepts>", "#if 1", "an #if is not closed"),
    ("#pragma once", "", "no #pragma once"),
]


def make(old, new, folder):
    for part in ("include", "cmake", "scripts"):
        shutil.copytree(ROOT / part, folder / part)
    path = folder / VICTIM
    text = path.read_text()
    if old not in text:
        sys.exit(f"FAILED: {VICTIM} has no {old!r}")
    path.write_text(text.replace(old, new, 1))
    done = subprocess.run([sys.executable, str(folder / "scripts" / "amalgamate.py")], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


for old, new, sentence in MUTANTS:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        status, text = make(old, new, folder)
        if sentence and (status == 0 or sentence not in text):
            sys.exit(f"FAILED: {new!r} passes or is not told as {sentence!r}\n{text}")
        if not sentence:
            result = folder / "single_include" / "trireme" / "trireme.hpp"
            if status != 0:
                sys.exit(f"FAILED: {text}")
            if str(folder) in result.read_text():
                sys.exit("FAILED: the result names the folder it was made in")
print(f"ok: {len(MUTANTS)} cases")
