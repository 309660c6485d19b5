"""Runs the commands of docs/tutorial.md and of README.md, and holds what they print to what the pages show.

    cargo build --no-default-features --features cpu
    pip install numpy pillow pydicom
    python benches/tutorial.py target/debug/trainer

A line that the tutorial shows below a command must be in what it prints, times and sizes aside; of README.md the
commands of the table must be known, and `cargo run` lines are run with the program in place of cargo and with the
training cut to one epoch. Files are written into a folder that is removed. A difference ends it with 1.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def run(program, command, folder):
    arguments = [str(program), *shlex.split(command)[1:]]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "90"})
    print(f"{'ok ' if done.returncode == 0 else done.returncode} {command}", flush=True)
    return done.returncode, done.stdout + done.stderr


def steady(line):
    """The line without what differs from run to run, and with three digits of what differs between processors."""
    line = re.sub(r"\d+\.\d{6,}", lambda number: f"{float(number[0]):.3f}", line)
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)? (s|MiB|kB)\b|\d+m\d+s", "…", line)).strip()


def tutorial(program, folder):
    text = (ROOT / "docs/tutorial.md").read_text()
    faults = []
    for block in blocks(text, "text"):
        parts = re.split(r"^\$ ", block, flags=re.M)[1:]
        for part in parts:
            command, *shown = part.splitlines()
            code, told = run(program, command, folder)
            lines = {steady(line) for line in told.splitlines()}
            missing = [line for line in shown if steady(line) not in ("", "…") and steady(line) not in lines]
            faults += [f"{command}: not printed: {line}" for line in missing]
            faults += [f"{command}: ended with {code}\n{told}"] * (code != 0)
            if command.startswith("trainer data phantom"):
                script = [sys.executable, str(ROOT / "benches/hospital.py"), "drawn", "hospital"]
                subprocess.run(script, cwd=folder, check=True)
    return faults


def readme(program, folder):
    text = (ROOT / "README.md").read_text()
    faults = []
    for block in blocks(text, "sh"):
        for line in block.splitlines():
            if match := re.match(r"cargo run .*-- (.*)", line):
                command = f"trainer {match[1]} --overwrite --set train.epochs=1 --set run.output={folder}/checkpoints"
                code, told = run(program, f"{command} --set data.phantom.root={folder}/data --device cpu", ROOT)
                faults += [f"{line}: ended with {code}\n{told}"] * (code != 0)
    for name in set(re.findall(r"^\| `trainer ([a-z]+)", text, re.M)):
        code, told = run(program, f"trainer {name} --help", folder)
        faults += [f"README.md has `trainer {name}`: {told}"] * (code != 0)
    return faults


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        faults = tutorial(program, folder)
    with tempfile.TemporaryDirectory() as folder:
        faults += readme(program, folder)
    print("\n".join(faults))
    sys.exit(bool(faults))


main()
