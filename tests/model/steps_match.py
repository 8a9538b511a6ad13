#!/usr/bin/env python3
"""Compares the step names of the code with the steps that the model takes.

    steps_match.py [STEPS_HPP [RING_PML]]

The code's names are the strings of `step_names` (and, to be sure, the enumerators of `step`); the model's are the tags
`step: NAME` in ring.pml, each of which must stand on the line of a statement. Exit status: 0 the same, 1 not.
"""
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent


def names_in_code(text):
    table = re.search(r"step_names\s*\{(.*?)\}", text, re.S)
    enumeration = re.search(r"enum\s+class\s+step\b[^{]*\{(.*?)\};", text, re.S)
    if not table or not enumeration:
        sys.exit("steps_match: no `step_names{...}` or no `enum class step` found")
    strings = re.findall(r'"(\w+)"', table.group(1))
    enumerators = re.findall(r"^\s*(\w+)\s*,", re.sub(r"//[^\n]*", "", enumeration.group(1)), re.M)
    return strings, enumerators


def names_in_model(text):
    tags = []
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(r"/\* step: (\w+) \*/", line):
            if not re.sub(r"/\*.*?\*/", "", line).strip():
                sys.exit(f"steps_match: ring.pml:{number}: the tag of {name} stands on a line without a statement")
            tags.append(name)
    return tags


def main():
    steps = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "../../include/trireme/shm/steps.hpp"
    model = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here / "ring.pml"
    strings, enumerators = names_in_code(steps.read_text())
    tags = names_in_model(model.read_text())

    complaints = []
    if strings != enumerators:
        complaints.append("step_names and the enumeration of step differ: " + ", ".join(sorted(set(strings) ^ set(enumerators))))
    complaints += [f"{name}: a step of the code, not in the model" for name in strings if name not in tags]
    complaints += [f"{name}: a step of the model, not in the code" for name in sorted(set(tags)) if name not in strings]
    if complaints:
        sys.exit("\n".join(["trireme: the model and the code name different steps", *("  " + c for c in complaints),
                            f"  where  {model} and {steps}"]))
    print(f"{len(strings)} steps, the same in code and model")


main()
