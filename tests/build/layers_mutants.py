"""scripts/check_layers.py sees the wrong arrows, and only them: small trees with one fault each."""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent

GOOD = {
    "trireme/core/error.hpp": "#include <string>\n",
    "trireme/sys/fd.hpp": "#include <trireme/core/error.hpp>\n",
    "trireme/shm/ring.hpp": "#include <trireme/shm/detail/ring.hpp>\n#include <trireme/sys/fd.hpp>\n",
    "trireme/shm/detail/ring.hpp": "",
    "trireme/threads/pool.hpp": "#include <trireme/threads/team.hpp>\n",
    "trireme/threads/team.hpp": "#include <trireme/sys/fd.hpp>\n",
    "trireme/data/loader.hpp": "#include <trireme/shm/ring.hpp>\n",
    "trireme/dist/ddp.hpp": "#include <trireme/shm/ring.hpp>\n",
    "trireme/zlib/gzip.hpp": "#include <trireme/data/loader.hpp>\n#include <zlib.h>\n",
    "trireme/core.hpp": "#include <trireme/core/error.hpp>\n",
    "trireme/trireme.hpp": "#include <trireme/core.hpp>\n",
}
# header, the line that is added to it, what the complaint says
MUTANTS = [
    ("trireme/core/error.hpp", "#include <trireme/sys/fd.hpp>", "does not lie below"),
    ("trireme/sys/fd.hpp", "#include <trireme/threads/team.hpp>", "does not lie below"),
    ("trireme/data/loader.hpp", "#include <trireme/dist/ddp.hpp>", "does not lie below"),
    ("trireme/dist/ddp.hpp", "  #  include <trireme/data/loader.hpp>", "does not lie below"),
    ("trireme/data/loader.hpp", "#include <trireme/zlib/gzip.hpp>", "is a wing"),
    ("trireme/data/loader.hpp", "#include <trireme/shm/detail/ring.hpp>", "is its own"),
    ("trireme/threads/team.hpp", "#include <trireme/shm/ring.hpp>", "must reach nothing of 'shm'"),
    ("trireme/shm/ring.hpp", '#include "detail/ring.hpp"', "included as <trireme/...>"),
    ("trireme/shm/ring.hpp", "#include <trireme/shm/gone.hpp>", "no such header"),
    ("trireme/shm/ring.hpp", "#include <trireme/trireme.hpp>", "the umbrella is for users"),
    ("trireme/shm/ring.hpp", "#include <trireme/core.hpp>", "is for users"),
    ("trireme/shm/ring.hpp", "#include <iostream>", "compile time"),
    ("trireme/trireme.hpp", "#include <trireme/zlib/gzip.hpp>", "lists floors"),
]


def check(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, str(ROOT / "scripts" / "check_layers.py"), folder],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout


status, text = check(GOOD)
if status != 0:
    sys.exit(f"FAILED: complains about a good tree\n{text}")
for header, line, complaint in MUTANTS:
    status, text = check({**GOOD, header: GOOD[header] + line + "\n"})
    if status == 0 or complaint not in text:
        sys.exit(f"FAILED: {header} with {line!r} passes or is not told as {complaint!r}\n{text}")
print(f"ok: {len(MUTANTS)} wrong arrows are seen, and the good tree passes")
