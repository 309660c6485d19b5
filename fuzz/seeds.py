"""Writes what the fuzz targets begin with, fuzz/corpus/<target>/, from the fixtures of the tests.

    python3 fuzz/seeds.py
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
fixtures = root / "tests" / "fixtures"
corpus = root / "fuzz" / "corpus"
counts = {}


def seed(target, data):
    folder = corpus / target
    folder.mkdir(parents=True, exist_ok=True)
    counts[target] = counts.get(target, 0) + 1
    (folder / f"seed-{counts[target]:03}").write_bytes(data)


def image(text):
    data = bytes.fromhex(text)
    if data.startswith(b"\x89PNG"):
        seed("png", data)
    elif data.startswith(b"\xff\xd8\xff"):
        seed("jpeg", data)
    elif data[:2] in (b"II", b"MM"):
        seed("tiff", data)
    else:
        # The fixtures leave out the preamble, which is empty.
        seed("dicom", bytes(128) + data if data.startswith(b"DICM") else data)


decode = json.loads((fixtures / "data_decode.json").read_text())
for case in decode["cases"]:
    image(case["file"])
for text in decode["refused"].values():
    image(text)
for case in json.loads((fixtures / "data_colours.json").read_text()):
    image(case["file"])
for case in json.loads((fixtures / "dicom.json").read_text()):
    image(case["file"])
    if case["feature"]:
        # The stream alone, behind rows, columns and what kind the pixels are.
        item = b"\xfe\xff\x00\xe0"
        data = bytes.fromhex(case["file"])
        stream = data[data.index(item, data.index(item) + 4) + 8:-8]
        kind = case["depth"] - 1 | (16 if min(case["stored"]) < 0 else 0)
        target = "jpeg2000" if "2000" in case["feature"] else "jpeg_ls"
        seed(target, bytes([case["height"], case["width"], kind]) + stream)
for path in sorted((fixtures / "arrays").glob("*.np[yz]")):
    seed(path.suffix[1:], path.read_bytes())
for path in sorted((fixtures / "tables").iterdir()):
    if path.suffix == ".parquet":
        seed("parquet", path.read_bytes())
    elif path.suffix in (".csv", ".tsv", ".gz"):
        seed("csv", path.read_bytes())
for path in sorted((fixtures / "layouts").rglob("*.csv")):
    if path.stat().st_size < 4096:
        seed("csv", path.read_bytes())
for path in sorted(fixtures.glob("*.safetensors")):
    if path.stat().st_size < 4096:
        seed("safetensors", path.read_bytes())
for path in sorted(fixtures.glob("weights*.pth")):
    seed("pth", path.read_bytes())
for path in sorted((root / "configs").glob("*.toml")):
    seed("config", path.read_bytes())
    seed("config", path.read_bytes() + b"\0train.epochs=3\0run.name=other\0data.image.size=[64,32]")

# A run, where the program is named: python3 fuzz/seeds.py target/debug/trainer
if len(sys.argv) > 1:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        config = (root / "configs" / "quickstart.toml").as_posix()
        sets = ["train.epochs=1", f"run.output={folder}", "run.name=seed", "data.image.size=[32,32]",
                f"data.phantom.root={folder}/data", "data.phantom.patients=12", "run.pictures=0"]
        command = [sys.argv[1], "run", config]
        subprocess.run(command + [word for one in sets for word in ("--set", one)], check=True)
        run = Path(folder) / "seed"
        seed("manifest", (run / "last" / "manifest.json").read_bytes())
        files = [run / "config.toml", run / "metrics.jsonl"]
        files += [run / "best" / name for name in ("validation.csv", "fitted.json", "state.json")]
        seed("run_folder", b"\0".join(path.read_bytes() for path in files))
print(counts)
