"""Compiles every CUDA kernel of the project with NVRTC, without a GPU, and refuses what would be slow without a word.

    cargo test --no-default-features --features cpu --test kernels    # writes the texts to target/tmp/kernels
    python3 scripts/compile_kernels.py [--texts DIR] [--pack ARCHIVE] [ARCH…]

ARCH: sm_80 (A100), sm_89 (L4, RTX 40) and sm_90a (H100, H200) unless given. Kernels written for Hopper are compiled for sm_90a
alone. With --pack the machine code is written to an archive that a release can be built with (README, Devices), together with that of
Burn's kernels where burn_kernels.py has collected them. Refused: what does not compile, spills of registers to memory beyond
those in KNOWN, stacks beyond STACK, and products of warpgroups that the compiler had to serialise. NVRTC and the headers come from PyPI, into target/nvrtc, the first time.
"""

import argparse
import ctypes
import glob
import json
import os
import re
import subprocess
import sys
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SITE = os.path.join(ROOT, "target", "nvrtc")
CUDA = "13.0"
PACKAGES = ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-cccl==13.0.85"]

# Bytes that these spill at most on any architecture; to be mended.
KNOWN = {"stem_forward": 68, "stem_backward": 232}

# Bytes of stack for each thread that cards are opened with.
with open(os.path.join(ROOT, "src", "build", "device.rs"), encoding="utf-8") as opened:
    STACK, STACK_ON_HOPPER = (int(bytes) for bytes in re.findall(r"const STACK\w*: usize = (\d+);", opened.read()))


def installed():
    """NVRTC's library and the folder of CUDA's headers."""
    library = os.path.join(SITE, "nvidia", "cu13", "lib", "libnvrtc.so.13")
    if not os.path.exists(library):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", SITE, *PACKAGES], check=True)
    return library, os.path.join(SITE, "nvidia", "cu13", "include")


class Nvrtc:
    def __init__(self):
        library, self.headers = installed()
        for builtins in glob.glob(os.path.join(os.path.dirname(library), "libnvrtc-builtins.so*")):
            ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(library)

    def text(self, program, kind):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{kind}")(program, room)
        return room.raw

    def compile(self, text, arch):
        """Machine code (None where it does not compile) and what the compiler says."""
        program = ctypes.c_void_p()
        assert self.library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
        options = [f"--gpu-architecture={arch}", f"-I{self.headers}", f"-I{self.headers}/cccl", "--ptxas-options=-v"]
        encoded = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        code = self.library.nvrtcCompileProgram(program, len(options), encoded)
        log = self.text(program, "ProgramLog").rstrip(b"\0").decode()
        cubin = self.text(program, "CUBIN") if code == 0 else None
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return cubin, log


def faults(entry, arch, cubin, log):
    """Why the kernel `entry` is refused for `arch`."""
    if cubin is None:
        return [log.strip()[:2000]]
    spills = [int(bytes) for bytes in re.findall(r"(\d+) bytes spill stores", log)]
    spilled = [f"{bytes} bytes spilled" for bytes in spills if bytes > KNOWN.get(entry, 0)]
    frames = [int(bytes) for bytes in re.findall(r"(\d+) bytes stack frame", log)]
    most = STACK_ON_HOPPER if arch == "sm_90a" else STACK
    spilled += [f"a stack of {bytes} bytes, for which a launch may find no memory" for bytes in frames if bytes > most]
    return spilled + [line.strip() for line in log.splitlines() if "wgmma" in line and "serializ" in line]


def of_burn(folder, archs):
    """Burn's kernels for these architectures, where there are any."""
    path = os.path.join(folder, "index.json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [kernel for kernel in json.load(file) if kernel["arch"] in archs]


def told(kernel):
    """What CubeCL must know of one of Burn's kernels, in front of its machine code."""
    return json.dumps({key: kernel[key] for key in ("entry", "shared", "io")}, separators=(",", ":")).encode() + b"\n"


def pack(path, codes):
    """Writes the archive that src/ops/gpu/shipped.rs reads. The same machine code gives the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = CUDA.split(".")[0].encode()
        for name in sorted(codes):
            archive.writestr(zipfile.ZipInfo(name), zlib.compress(codes[name], 9))
    print(f"{path}: {os.path.getsize(path):,} bytes, for CUDA {CUDA.split('.')[0]} and newer")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archs", nargs="*", default=["sm_80", "sm_89", "sm_90a"])
    parser.add_argument("--texts", default=os.path.join(ROOT, "target", "tmp", "kernels"))
    parser.add_argument("--burn", default=os.path.join(ROOT, "target", "tmp", "burn-kernels"))
    parser.add_argument("--pack", metavar="ARCHIVE")
    parser.add_argument("--install", action="store_true", help="install NVRTC, and compile nothing")
    given = parser.parse_args()
    if given.install:
        installed()
        return
    with open(os.path.join(given.texts, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    nvrtc = Nvrtc()
    work = [(kernel, arch) for kernel in index for arch in given.archs if arch == "sm_90a" or not kernel["hopper"]]

    codes = {}

    def one(item):
        kernel, arch = item
        with open(os.path.join(given.texts, kernel["file"]), encoding="utf-8") as file:
            cubin, log = nvrtc.compile(file.read(), arch)
        if cubin is not None:
            codes[f"{arch}/{kernel['hash']}"] = cubin
        macros = " ".join(kernel["macros"].replace("#define", "").split())
        return [f"{arch} {kernel['entry']} ({macros}): {fault}" for fault in faults(kernel["entry"], arch, cubin, log)]

    def one_of_burn(kernel):
        with open(os.path.join(given.burn, kernel["file"]), encoding="utf-8") as file:
            cubin, log = nvrtc.compile(file.read(), kernel["arch"])
        if cubin is None:
            return [f"{kernel['arch']} {kernel['entry']} of Burn: {log.strip()[:2000]}"]
        codes[kernel["name"]] = told(kernel) + cubin
        return []

    burn = of_burn(given.burn, given.archs) if given.pack else []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [fault for each in pool.map(one, work) for fault in each]
        found += [fault for each in pool.map(one_of_burn, burn) for fault in each]
    print(f"{len(work)} and {len(burn)} of Burn compiled for {', '.join(given.archs)}, {len(found)} refused")
    for fault in found:
        print(fault)
    if given.pack and not found:
        pack(given.pack, codes)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
