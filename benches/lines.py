"""Counts the lines of src/ without tests, at one or several commits of this repository.

usage: python benches/lines.py [COMMIT ...]        (default: HEAD)

Left out are modules under #[cfg(test)], in the file or in one of their own. `lines` are all that stay, `code` those
that are neither blank nor a comment. CUDA C++ under src/ has columns of its own.
"""
import collections
import io
import re
import subprocess
import sys
import tarfile

FOUR = ("model", "memory", "plan", "ops")
TEST_MODULE = re.compile(r"^( *)#\[cfg\((?:all\()?test\b.*\)\]\n(?:\1#\[.*\]\n)*\1(?:pub(?:\(\w+\))? )?mod (\w+)( \{.*|;)\n", re.M)


def files_of(commit):
    archive = subprocess.run(["git", "archive", commit, "src"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {item.name: tar.extractfile(item).read().decode() for item in tar if item.name.endswith((".rs", ".cu", ".cuh"))}


def without_tests(path, text):
    """The file without its test modules, and what the names of the files begin with that have the others."""
    folder = re.sub(r"(/mod|/lib|/main)?\.rs$", "", path)
    elsewhere = []
    while found := TEST_MODULE.search(text):
        end = found.end()
        if found[3] == ";":
            elsewhere += [f"{folder}/{found[2]}.rs", f"{folder}/{found[2]}/"]
        elif not found[3].rstrip().endswith("}"):
            end = re.compile(rf"^{found[1]}\}}\n", re.M).search(text, end).end()
        text = text[: found.start()] + text[end:]
    return text, elsewhere


def count(commit):
    files, tests = {}, []
    for path, text in files_of(commit).items():
        if re.match(r"\s*#!\[cfg\(test\)\]", text):
            continue
        files[path], elsewhere = without_tests(path, text) if path.endswith(".rs") else (text, [])
        tests += elsewhere
    sums = collections.Counter()
    for path, text in files.items():
        if path.startswith(tuple(tests)):
            continue
        lines = [line.strip() for line in text.splitlines()]
        language = "Rust" if path.endswith(".rs") else "CUDA"
        code = sum(bool(line) and not line.startswith("//") for line in lines)
        for group in {"all of src/", "+".join(FOUR) if path.split("/")[1] in FOUR else ""} - {""}:
            sums[group, language, "lines"] += len(lines)
            sums[group, language, "code"] += code
    return sums


def main():
    print("| commit | | Rust, lines | Rust, code | CUDA, lines | CUDA, code |\n|---|---|--:|--:|--:|--:|")
    for commit in sys.argv[1:] or ["HEAD"]:
        sums = count(commit)
        for group in ("+".join(FOUR), "all of src/"):
            figures = [f"{sums[group, language, kind]:,}" for language in ("Rust", "CUDA") for kind in ("lines", "code")]
            print("| " + " | ".join([commit, group, *figures]) + " |")


if __name__ == "__main__":
    main()
