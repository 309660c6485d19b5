"""SafeTensors files of float32, written and read without the package: 8 bytes of length, a JSON header, raw bytes."""
import json
import struct

import torch


def write(path, tensors):
    header, parts, place = {}, [], 0
    for name, tensor in tensors.items():
        data = tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def read(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    assert all(entry["dtype"] == "F32" for entry in header.values()), "only float32 is read"
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        numbers = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        tensors[name] = numbers.clone().reshape(entry["shape"])
    return tensors
