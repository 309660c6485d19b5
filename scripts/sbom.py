#!/usr/bin/env python3
"""Writes what the program is made of as a CycloneDX 1.5 document, for a release.

    python3 scripts/sbom.py > trainer.cdx.json

It lists the crates that are linked or run while the program is built, with all features, from `cargo metadata` and
`Cargo.lock`; needs nothing beyond Python and cargo. The same lock file gives the same document.
"""

import json
import subprocess
import tomllib
from pathlib import Path

root = Path(__file__).resolve().parent.parent


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
metadata = json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
program = next(package for package in packages.values() if package["name"] == "trainer")
lock = tomllib.loads((root / "Cargo.lock").read_text())["package"]
checksums = {(one["name"], one["version"]): one.get("checksum") for one in lock}


def needed(node):
    """Those that it links or is built with; what only its tests use is left out."""
    kinds = lambda one: [kind["kind"] for kind in one["dep_kinds"]]
    return [one["pkg"] for one in nodes[node]["deps"] if any(kind != "dev" for kind in kinds(one))]


found, waiting = set(), [program["id"]]
while waiting:
    node = waiting.pop()
    if node not in found:
        found.add(node)
        waiting.extend(needed(node))


def component(package):
    told = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if package["license"]:
        # An older way to write `OR`.
        told["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums[package["name"], package["version"]]
    if checksum:
        told["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return told


libraries = sorted((packages[node] for node in found - {program["id"]}), key=purl)
print(json.dumps({
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(program) | {"type": "application"}},
    "components": [component(package) for package in libraries],
    "dependencies": [
        {"ref": purl(packages[node]), "dependsOn": sorted(purl(packages[one]) for one in needed(node))}
        for node in sorted(found, key=lambda node: purl(packages[node]))
    ],
}, indent=1))
