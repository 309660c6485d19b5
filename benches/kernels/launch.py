"""Compiles kernels with NVRTC and launches them on PyTorch's current stream, by ctypes alone, and times them.

`load(folder, wanted)` compiles (name, headers, macros) in threads; a kernel is called with a grid, a block, tensors and numbers.
"""

import ctypes
import glob
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor


def _first(patterns):
    for pattern in patterns:
        found = sorted(glob.glob(pattern))
        if found:
            return found[0]
    return None


# The kernels' texts; KERNELS names another folder of them.
FOLDER = os.environ.get("KERNELS", os.path.join(os.path.dirname(__file__), "../../src/ops/gpu/kernels"))
_sites = [p for p in sys.path if p.endswith("packages")] + [os.environ.get("CUDA_SITE", "")]
INCLUDE = _first(["/usr/local/cuda/include/cuda_bf16.h"] + [f"{s}/nvidia/cu13/include/cuda_bf16.h" for s in _sites])
NVRTC = _first(["/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so"]
               + [f"{s}/nvidia/cu13/lib/libnvrtc.so.13" for s in _sites])
nvrtc = ctypes.CDLL(NVRTC)


def compile_text(text, label):
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), label.encode(), 0, None, None) == 0
    options = [b"--gpu-architecture=sm_90a", b"-std=c++17", b"-I" + os.path.dirname(INCLUDE).encode()]
    code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    if code != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"{label}:\n{log.value.decode()[:3000]}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw


class Kernel:
    """`shared`: bytes of shared memory that a launch gives each block beside what the text declares."""

    def __init__(self, name, cubin, shared=0):
        self.name, self.cubin, self.shared, self.function = name, cubin, shared, None

    def __call__(self, grid, block, pointers, numbers):
        import torch

        cuda = ctypes.CDLL("libcuda.so.1")
        if self.function is None:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            code = cuda.cuModuleLoadData(ctypes.byref(module), self.cubin)
            assert code == 0, (self.name, code)
            assert cuda.cuModuleGetFunction(ctypes.byref(function), module, self.name.encode()) == 0
            self.function = function
            if self.shared:
                assert cuda.cuFuncSetAttribute(function, 8, self.shared) == 0, (self.name, self.shared)
        grid = (grid,) if isinstance(grid, int) else tuple(grid)
        grid = tuple(grid) + (1,) * (3 - len(grid))
        packed = b"".join(struct.pack("<f", n) if isinstance(n, float) else struct.pack("<I", n & 0xFFFFFFFF) for n in numbers)
        assert len(packed) % 8 == 0, self.name
        values = [ctypes.c_uint64(p if isinstance(p, int) else p.data_ptr()) for p in pointers]
        values.append(ctypes.create_string_buffer(packed, len(packed)))
        arguments = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = cuda.cuLaunchKernel(self.function, *grid, block, 1, 1, self.shared, stream, arguments, None)
        assert code == 0, (self.name, code, grid, block)


def load(folder, wanted, shared={}):
    """`wanted`: iterable of (name, headers, macros as a tuple of pairs) → dict by (name, macros). `shared`: bytes by name."""
    read = lambda name: open(os.path.join(folder, name), encoding="utf-8").read()

    def one(item):
        name, headers, macros = item
        text = "".join(f"#define {k} {v}\n" for k, v in macros)
        text += "\n".join(read(f"{h}.cuh") for h in headers) + "\n" + read(f"{name}.cu")
        return (name, macros), Kernel(name, compile_text(text, f"{name}-{dict(macros)}"), shared.get(name, 0))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(one, wanted))


def up(a, b):
    """a / b, rounded up."""
    return -(-a // b)


def microseconds(run, launches=10, graph=True):
    """Microseconds of run(i), the median of seven times `launches` of them: replays of a CUDA graph, or called one by one."""
    import torch

    def all_of_them():
        for i in range(launches):
            run(i)

    all_of_them(), torch.cuda.synchronize()
    replay = all_of_them
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            all_of_them()
        replay = captured.replay
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(), replay(), end.record(), torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / launches)
    return sorted(times)[3]
