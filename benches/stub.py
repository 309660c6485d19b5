"""How programs are run on the driver of benches/stub_cuda.c, which says how it is built and what it takes from its environment."""

import os

# What a process holds of an H100 beside its allocator.
CONTEXT = 286 << 20


def environment(stub, home, **more):
    """That of a process on the driver in the folder `stub`, with `home` as its home and `more` of the driver's variables."""
    own = {"HOME": home, "LD_LIBRARY_PATH": os.path.abspath(stub), "CUDA_PATH": "/usr"}
    return {**os.environ, **own, **{name: str(value) for name, value in more.items()}}
