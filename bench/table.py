"""Turns the JSON lines of scripts/bench into a table: ours, the best peer, the bound, and what was aimed at.

usage: table.py FILE [--markdown | --into DOCUMENT]
  --into      replaces the tables of the areas in FILE between the document's lines `<!-- table AREA -->` and
              `<!-- end -->`

Ratios are of medians; where a program ran several times, of the median of its medians.
  faster      how many times as fast as the best peer: below 1 we lose
  of bound    our rate over the bound's (at most 1 or so), or our time over the bound's (at least 1 or so)
"""
import json
import re
import statistics
import sys

AREAS = ["dataloader", "threads", "allreduce", "ddp", "ipc", "compile"]
# Rows that say what the bare work or the machine costs: never a peer.
BOUNDS = re.compile(r"limit|memcpy|spsc-|cacheline|futex|kernel|empty|std-(thread-atomic|future|ranges|iostream)")
# They run the empty region on the caller alone: no fork, no join.
INLINE = {("threads", "forkjoin/hot"): ("onetbb", "dispenso"), ("threads", "forkjoin/cold"): ("onetbb", "dispenso")}
# The peer that offers the same, in order of preference.
COMPILE_RIVALS = {
    "trireme": ["taskflow", "boost-asio", "torch"],
    "trireme-single": ["taskflow", "boost-asio", "torch"],
    "trireme-threads": ["rvaser-thread_pool", "bs-thread_pool", "tbb-parallel_for"],
    "trireme-shm": ["boost-managed_shared_memory"],
    "trireme-dist": ["mpi", "gloo-allreduce"],
    "trireme-data": ["torch"],
}

# (area, our name, case, what is compared, relation, value); names and cases are patterns. Compared is the median, the
# bound, the best peer, ddp over no_sync, or a peer by name: the fastest that begins so.
TARGETS = [
    ("dataloader", "trireme.*", r".*/next", "median", "<=", 1.0),
    ("dataloader", "trireme.*", r".*/next", "libtorch", ">=", 30),
    ("dataloader", "trireme.*", r".*/next", "torch-py", ">=", 700),
    ("dataloader", "trireme", r"tiny/w[12]", "bound", ">=", 0.5),
    ("dataloader", "trireme", r"tiny/w[12]", "torch-py", ">=", 150),
    ("dataloader", "trireme", r"tiny/w[12]", "libtorch-cpp-batched", ">=", 1.5),
    ("dataloader", "trireme", r"tiny/w[12]", "libtorch-cpp=", ">=", 8),
    ("dataloader", "trireme", r"image/w[12]", "bound", ">=", 0.75),
    ("dataloader", "trireme", r"image/w[12]", "libtorch", ">=", 3),
    ("dataloader", "trireme", r"work/w[12]", "bound", ">=", 0.97),
    ("dataloader", "trireme", r"tokens-u16/w1", "bound", ">=", 0.4),
    ("dataloader", "trireme", r"tokens-u16/w1", "libtorch", ">=", 5),
    ("dataloader", "trireme", r"startup/first/w2", "median", "<=", 8),
    ("dataloader", "trireme-threads", r"startup/first/w2", "libtorch", ">=", 1),
    ("dataloader", "trireme.*", r"startup/restart-persistent/w[12]", "median", "<=", 0.02),
    ("threads", "trireme", r"forkjoin/.*", "bound", "<=", 1.3),
    ("threads", "trireme", r"split.*", "bound", "<=", 1.05),
    ("threads", "trireme", r"(triangle|fine|nested|reduce)_.*", "best", ">=", 1.0),
    ("threads", "trireme", r"tasks_20k_x_1us", "median", "<=", 12000),
    ("threads", "trireme", r"submit_get", "best", ">=", 2),
    ("allreduce", "trireme", r"(1|32)KiB/p2", "bound", "<=", 1.3),
    ("allreduce", "trireme", r"(1|25|256)MiB/p2", "bound", "<=", 1.15),
    ("allreduce", "trireme", r"25MiB/p2", "openmpi", ">=", 2.5),
    ("allreduce", "trireme", r"25MiB/p2", "gloo", ">=", 12),
    ("ddp", "trireme-ddp", r"small/step", "no_sync", "<=", 1.10),
    ("ddp", "trireme-ddp", r"wide/step", "no_sync", "<=", 1.08),
    ("ipc", "trireme-in-place", r"pingpong/.*", "median", "<=", 1.0),
    ("compile", "trireme|trireme-single", r"include", "median", "<=", 2.0),
    ("compile", "trireme-(core|sys|shm|threads|data|dist|observe)", r"include", "median", "<=", 1.3),
]


def number(x):
    if x >= 1000:
        return f"{x:,.0f}".replace(",", " ")
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"


def ours(peer):
    return peer == "trireme" or peer.startswith("trireme-")


class Case:
    """All rows of one case of one area."""

    def __init__(self, area, name):
        self.area, self.name = area, name
        self.unit, self.medians = "", {}

    def add(self, row):
        self.unit = row["unit"]
        self.medians.setdefault(row["peer"], []).append(row["median"])

    def median(self, peer):
        return statistics.median(self.medians[peer])

    @property
    def more_is_better(self):
        return self.unit.endswith("/s") or self.unit == "%"

    def times_as_fast(self, mine, other):
        a, b = self.median(mine), self.median(other)
        if a <= 0 or b <= 0:
            return None
        return a / b if self.more_is_better else b / a

    def best(self, candidates):
        found = [p for p in candidates if p in self.medians]
        return (max if self.more_is_better else min)(found, key=self.median) if found else None


def rivals(case, mine):
    """The peers that `mine` is compared with."""
    peers = [p for p in case.medians if not ours(p) and not BOUNDS.match(p)]
    if case.area == "compile":
        listed = [p for p in COMPILE_RIVALS.get(mine, []) if p in peers]
        return listed[:1]
    if case.area == "ddp":
        mode = mine.removeprefix("trireme-")
        return [p for p in peers if p.removesuffix("-keepmem") == "torch-" + mode]
    if case.area == "ipc":
        return [p for p in peers if (p == "iceoryx-loan") == (mine == "trireme-in-place")]
    return [p for p in peers if p not in INLINE.get((case.area, case.name), ())]


def bound_of(cases, case, mine):
    """(ratio, name) of the bound, or None."""
    name, where = "", case.name
    if case.area == "dataloader" and re.search(r"/w\d$", case.name) and not case.name.startswith("startup"):
        name, where = "limit", case.name.replace("/w0", "/w1")
    elif case.area == "threads":
        name = "limit-spin"
    elif case.area == "allreduce":
        # Two placements of the vectors; which one suits a CPU better is found by trying.
        name = case.best(["limit-zerocopy", "limit-zerocopy-odd"]) or ""
    elif case.area == "ipc":
        name = "spsc-futex" if mine == "trireme-futex" else "spsc-spin"
        if mine == "trireme-in-place":
            where = case.name.split("/")[0] + "/64B"
            if case.unit == "GB/s":
                return None
    elif case.area == "compile":
        name = "std-thread-atomic-vector"
    there = cases.get((case.area, where))
    if there is None or name not in there.medians:
        return None
    shown = name + ("" if where == case.name else f" {where}")
    return case.median(mine) / there.median(name), shown


def over_no_sync(case, mine):
    base = mine.replace("ddp", "no_sync", 1) if mine.startswith("torch-") else "trireme-no_sync"
    return case.median(mine) / case.median(base) if base in case.medians else None


def aims(cases, case, mine):
    """What was aimed at for this row, each with whether it was met."""
    said = []
    for area, who, which, what, relation, value in TARGETS:
        if area != case.area or not re.fullmatch(who, mine) or not re.fullmatch(which, case.name):
            continue
        sign = "≥" if relation == ">=" else "≤"
        if what == "median":
            have, text = case.median(mine), f"{sign} {value:g} {case.unit}"
        elif what == "bound":
            bound = bound_of(cases, case, mine)
            have = bound[0] if bound else None
            text = f"{sign} {value:g} of the bound"
        elif what == "no_sync":
            have, text = over_no_sync(case, mine), f"{sign} {value:g} × no_sync"
        else:
            exact = what.endswith("=")
            asked = what.rstrip("=")
            pool = [p for p in rivals(case, mine) if asked == "best" or (p == asked if exact else p.startswith(asked))]
            other = case.best(pool)
            have = case.times_as_fast(mine, other) if other else None
            text = f"{sign} {value:g} × {'the best' if asked == 'best' else asked}"
        if have is None:
            said.append(text)
        else:
            met = have >= value if relation == ">=" else have <= value
            said.append(text + (" ✓" if met else f" ✗ ({number(have)})"))
    return "; ".join(said)


def read(path):
    cases, machine = {}, {}
    with open(path) as lines:
        for line in lines:
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            if row["bench"] == "machine":
                machine = row
                continue
            key = (row["bench"], row["case"])
            cases.setdefault(key, Case(*key)).add(row)
    return cases, machine


HEAD = ["case", "ours", "median", "unit", "best peer", "its median", "faster", "bound", "of bound", "aimed at"]


def table(cases, area):
    rows = []
    for case in cases.values():
        if case.area != area:
            continue
        for mine in sorted(filter(ours, case.medians)):
            other = case.best(rivals(case, mine))
            faster = case.times_as_fast(mine, other) if other and case.unit != "%" else None
            bound = bound_of(cases, case, mine)
            rows.append([
                case.name, mine, number(case.median(mine)), case.unit,
                other or "–", number(case.median(other)) if other else "–", number(faster) + " ×" if faster else "–",
                bound[1] if bound else "–", number(bound[0]) if bound else "–", aims(cases, case, mine) or "–",
            ])
    rows.sort(key=lambda r: (natural(r[0]), r[1]))
    return rows


def natural(text):
    return [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", text)]


def as_text(rows):
    widths = [max(map(len, column)) for column in zip(HEAD, *rows)]
    for r in [HEAD, *rows]:
        cells = [c.rjust(w) if i in (2, 5, 6, 8) else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths))]
        yield "  ".join(cells).rstrip()


def as_markdown(rows):
    yield "| " + " | ".join(HEAD) + " |"
    yield "|---|---|--:|---|---|--:|--:|---|--:|---|"
    for r in rows:
        yield "| " + " | ".join(f"`{c}`" if i in (0, 1) else c for i, c in enumerate(r)) + " |"


def described(machine):
    return "{cpu}, {cpus} CPUs, {cxx}, Linux {kernel}, {date}".format(**machine) if machine else "no machine given"


def put_into(document, tables, machine):
    """Replaces what lies between the marks of each area that was measured."""
    with open(document) as f:
        text = f.read()
    for area, rows in tables.items():
        block = "\n".join([f"<!-- table {area} -->", f"{described(machine)}.", "", *as_markdown(rows), "<!-- end -->"])
        text, n = re.subn(rf"<!-- table {area} -->.*?<!-- end -->", lambda _: block, text, flags=re.S)
        if n != 1:
            sys.exit(f"{document}: {n} places for the table of {area}, expected one")
    with open(document, "w") as f:
        f.write(text)


def main():
    arguments = sys.argv[1:]
    document = None
    if "--into" in arguments[:-1]:
        at = arguments.index("--into")
        document = arguments[at + 1]
        del arguments[at:at + 2]
    files = [a for a in arguments if a != "--markdown"]
    if len(files) != 1:
        sys.exit(__doc__)
    cases, machine = read(files[0])
    tables = {area: rows for area in AREAS if (rows := table(cases, area))}
    if document is not None:
        return put_into(document, tables, machine)
    markdown = "--markdown" in arguments
    print(described(machine))
    for area, rows in tables.items():
        alone = all(r[4] == "–" for r in rows)
        print(f"\n{'## ' if markdown else ''}{area}" + (" (no peer measured)" if alone else "") + "\n")
        print("\n".join((as_markdown if markdown else as_text)(rows)))


main()
