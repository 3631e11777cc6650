#!/usr/bin/env python3
"""Counts lines of code by folder, without blank lines and comments: product and tests.

usage: scripts/lines.py [COMMIT]     default: the tracked files as they are

Tests are the files in folders named tests, files named tests.rs, *_tests.rs or test_*, unit tests in
other files, modules that only tests compile, and faults that are injected for tests. Suites of
third-party code and kernels for tests (tests/alloc, tests/crates) are counted apart. Drawings are
the SVG, HTML and PNG files below docs.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

LANGUAGES = {".rs": "//", ".cuh": "//", ".h": "//", ".cu": "//", ".cpp": "//", ".c": "//", ".mjs": "//", ".py": "#", ".sh": "#", ".toml": "#"}
TESTS = re.compile(r"(^|/)tests?/|(^|/)tests\.rs$|_tests?\.rs$|(^|/)test_|(^|/)faults/|fault_injection")
SUITES = re.compile(r"^tests/(alloc|crates)/")
TEST_MODULE = re.compile(r"^#\[cfg\((?:all\()?test\b.*\]\n(?:#\[.*\]\n)*(?:pub(?:\(\w+\))? )?mod (\w+);", re.M)
UNIT_TESTS = re.compile(r"^#\[cfg\((all\()?test\b")
SMALL = 60


def git(*arguments, **options):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, **options).stdout


def files(commit):
    """The name and the text of each tracked file."""
    if commit is None:
        for name in git("ls-files", "-z", text=True).split("\0"):
            if name and Path(name).is_file():
                yield name, Path(name).read_bytes()
        return
    names = git("ls-tree", "-r", "-z", "--name-only", commit, text=True).split("\0")[:-1]
    objects = git("cat-file", "--batch", input="".join(f"{commit}:{name}\n" for name in names).encode())
    for name in names:
        head, objects = objects.split(b"\n", 1)
        size = int(head.split()[-1])
        yield name, objects[:size]
        objects = objects[size + 1 :]


def code(lines, comment):
    """The lines that are neither blank nor comments. Rust has no block comments here."""
    return sum(1 for line in lines if line.strip() and not line.strip().startswith(comment))


def split(lines):
    """The lines of a Rust file: product, and unit tests inside braces, which end in column 1."""
    product, tests, rest = [], [], iter(lines)
    for line in rest:
        if not UNIT_TESTS.match(line):
            product.append(line)
            continue
        unit = [line, next(rest, "")]
        if unit[-1].rstrip().endswith("{"):
            for line in rest:
                unit.append(line)
                if line.startswith("}"):
                    break
        tests += unit
    return product, tests


def test_modules(sources):
    """The files and folders of modules that only tests compile."""
    for name, data in sources:
        path = Path(name)
        if path.suffix == ".rs":
            folder = path.parent if path.stem in ("lib", "main", "mod") else path.with_suffix("")
            for module in TEST_MODULE.findall(data.decode()):
                yield from (f"{folder}/{module}.rs", f"{folder}/{module}/")


def main():
    if sys.argv[2:] or any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit("usage: scripts/lines.py [COMMIT]")
    commit = sys.argv[1] if len(sys.argv) > 1 else None
    counts, rust, small, drawings = defaultdict(lambda: [0, 0, 0]), 0, 0, 0
    sources = list(files(commit))
    compiled_for_tests = tuple(test_modules(sources))
    for name, data in sources:
        path = Path(name)
        if name.startswith("docs/") and path.suffix in (".svg", ".html", ".png"):
            drawings += data.count(b"\n")
        suite = bool(SUITES.match(name))
        comment = LANGUAGES.get(path.suffix)
        if comment is None or path.name in ("Cargo.lock",):
            continue
        lines = data.decode().splitlines()
        if path.suffix == ".rs" and not name.startswith("tests/crates/"):
            rust += 1
            small += len(lines) < SMALL
        count = counts[name.split("/")[0] if "/" in name else "."]
        if suite:
            count[2] += code(lines, comment)
        elif TESTS.search(name) or name.startswith(compiled_for_tests):
            count[1] += code(lines, comment)
        else:
            product, tests = split(lines) if path.suffix == ".rs" else (lines, [])
            count[0] += code(product, comment)
            count[1] += code(tests, comment)
    print(f"{'folder':<12}{'product':>9}{'tests':>9}{'suites':>9}")
    for folder, count in sorted(counts.items()):
        print(f"{folder:<12}" + "".join(f"{number:>9,}" for number in count))
    print(f"{'all':<12}" + "".join(f"{sum(count[i] for count in counts.values()):>9,}" for i in range(3)))
    print(f"{rust:,} Rust files, {small:,} of them under {SMALL} lines; {drawings:,} lines of drawings")


if __name__ == "__main__":
    main()
