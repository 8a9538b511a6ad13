"""Our headers and the user's macros leave each other alone.

The words below may be macros of the user's before our headers come, and are still the user's afterwards; every macro
that our headers add begins with TRIREME_. (Template parameters of ours have names of more than one letter only by
habit: single letters such as N and B are not promised.)
"""

import sys

sys.dont_write_bytecode = True
from toolbox import all_headers, compiler, foreign_headers, include_lines, parser

WORDS = ["ERROR", "DEBUG", "interface", "small", "Status", "None", "Bool"]
CALLS = ["min", "max", "check", "CHECK", "LOG", "major", "minor"]
TWO = {"min", "max"}

# Any use of these as a name is an error.
POISON = "".join(f"#undef {w}\n#define {w} @the user has {w}@\n" for w in WORDS) + "".join(
    f"#undef {w}\n#define {w}({'a, b' if w in TWO else 'x'}) @the user has {w}@\n" for w in CALLS)
# What they look like in the wild.
WILD = """
#define ERROR 0
#define DEBUG 1
#define interface struct
#define small char
#define Status int
#define None 0L
#define Bool int
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define check(x) ((x) ? 0 : 1)
#define CHECK(x) check(x)
#define LOG(x) check(x)
#define major(x) ((x) >> 8)
#define minor(x) ((x) & 0xff)
"""
MIN_MAX = "static_assert(min(1, 2) == 1 && max(1, 2) == 2);"
AFTER = """
static_assert(ERROR == 0 && DEBUG == 1 && None == 0L && sizeof(small) == 1);
static_assert(check(true) == 0 && CHECK(false) == 1 && LOG(true) == 0);
static_assert(major(0x123) == 1 && minor(0x123) == 0x23);
interface users_own { Status status; Bool flag; };
"""


def macros(text):
    return {line.split()[1].split("(")[0]: line for line in text.splitlines() if line.startswith("#define ")}


def main():
    arguments = parser().parse_args()
    cxx = compiler(arguments)
    headers = all_headers(arguments.wing)
    foreign = foreign_headers(headers)
    base, ours = include_lines(foreign), include_lines(headers)

    cxx.must("no header uses a word of the user's", base + POISON + ours, "-fsyntax-only")
    text = macros(cxx.must("macros after the headers", base + POISON + ours, "-E", "-dM"))
    for word in WORDS + CALLS:
        if f"@the user has {word}@" not in text.get(word, ""):
            sys.exit(f"FAILED: after our headers {word} no longer has the user's meaning: {text.get(word)}")
    print(f"ok: {len(WORDS + CALLS)} macros of the user's kept their meaning")

    # As in a user's file, macros first. libstdc++ itself undefines min and max, so these two are asked for only when
    # the standard headers came before.
    cxx.must("compiles after macros seen in the wild", WILD + ours + AFTER, "-fsyntax-only")
    cxx.must("compiles between them", base + WILD + ours + AFTER + MIN_MAX, "-fsyntax-only")

    before = macros(cxx.must("macros of others", base, "-E", "-dM"))
    after = macros(cxx.must("macros of ours", base + ours, "-E", "-dM"))
    new = sorted(set(after) - set(before))
    wrong = [after[name] for name in new if not name.startswith("TRIREME_")]
    changed = [after[name] for name in before if name in after and after[name] != before[name]]
    if wrong or changed:
        print("\n".join(wrong + changed))
        sys.exit("FAILED: macros escape or change; ours begin with TRIREME_")
    if not new:
        sys.exit("FAILED: not even TRIREME_VERSION_MAJOR was found: the check is blind")
    print(f"ok: {len(new)} macros of ours, all begin with TRIREME_: {' '.join(new)}")


if __name__ == "__main__":
    main()
