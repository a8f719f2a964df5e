#!/usr/bin/env python3
"""Write a C file that holds other files: embed.py OUT.c FILE... where FILE is PATH or NAME=PATH.

The output depends only on names and contents (sorted by name), so equal inputs give equal builds; see
server/embedded.h for what it declares.
"""
import sys


def c_array(data):
    numbers = [str(b) for b in data + b"\0"]
    lines = [",".join(numbers[i : i + 32]) for i in range(0, len(numbers), 32)]
    return ",\n".join(lines)


def main(out, arguments):
    files = {}
    for argument in arguments:
        name, _, path = argument.rpartition("=")
        name = name or path
        if name in files:
            sys.exit(f"embed.py: {name} is given twice")
        with open(path, "rb") as f:
            files[name] = f.read()

    parts = ["/* Written by tests/embed.py. */\n", '#include "server/embedded.h"\n\n']
    names = sorted(files)
    for i, name in enumerate(names):
        parts.append(f"static const unsigned char file_{i}[] = {{\n{c_array(files[name])}\n}};\n\n")
    parts.append("const struct embedded embedded_files[] = {\n")
    for i, name in enumerate(names):
        parts.append(f'\t{{"{name}", file_{i}, {len(files[name])}}},\n')
    parts.append("};\n")
    parts.append(f"const size_t embedded_count = {len(names)};\n")
    text = "".join(parts)
    with open(out, "w", encoding="ascii") as f:
        f.write(text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
