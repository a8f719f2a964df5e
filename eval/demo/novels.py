"""Six novels for the demo: unpacks Debian's r-cran-janeaustenr into plain text, without R.

    python3 eval/demo/novels.py OUT [PACKAGE.deb]

Fetches the package with `apt-get download` unless it is given. R keeps lazy-loaded data in two files: `Rdata.rdx` (gzip) says
where in `Rdata.rdb` each object lies; an object there is 4 bytes of length, then zlib; inside both is R's XDR serialisation,
of which this reads the types that occur: vectors of strings, integers and lists.
"""

import glob
import gzip
import os
import struct
import subprocess
import sys
import tempfile
import zlib

TITLES = {
    "emma": "emma",
    "mansfieldpark": "mansfield-park",
    "northangerabbey": "northanger-abbey",
    "persuasion": "persuasion",
    "prideprejudice": "pride-and-prejudice",
    "sensesensibility": "sense-and-sensibility",
}


class Xdr:
    """Reads one object of R's serialisation format 3 (R Internals, section 1.8)."""

    NIL, REF, SYMBOL, PAIRLIST, STRING, LOGICAL, INTEGER, STRINGS, LIST = 254, 255, 1, 2, 9, 10, 13, 16, 19

    def __init__(self, data):
        self.data, self.at, self.symbols = data, 0, []
        if self.take(2) != b"X\n" or self.int() != 3:
            raise ValueError("not an R serialisation of version 3")
        self.take(8)  # versions of the writer and of the oldest reader
        self.take(self.int())  # the name of the encoding

    def take(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def int(self):
        return struct.unpack(">i", self.take(4))[0]

    def read(self):
        flags = self.int()
        kind, attributes, tagged = flags & 0xFF, flags & 0x200, flags & 0x400
        if kind == self.NIL:
            return None
        if kind == self.REF:
            return self.symbols[(flags >> 8) - 1]
        if kind == self.SYMBOL:
            self.symbols.append(self.read())
            return self.symbols[-1]
        if kind == self.STRING:
            n = self.int()
            return None if n < 0 else self.take(n).decode("utf-8")
        if kind == self.PAIRLIST:
            if attributes:
                self.read()
            pair = (self.read() if tagged else None, self.read())
            return [pair] + (self.read() or [])
        n = self.int()
        if kind in (self.LOGICAL, self.INTEGER):
            value = [self.int() for _ in range(n)]
        elif kind in (self.STRINGS, self.LIST):
            value = [self.read() for _ in range(n)]
        else:
            raise ValueError(f"R type {kind} is not expected here")
        names = dict(self.read()).get("names") if attributes else None
        return dict(zip(names, value)) if names else value


def novels(folder):
    index = Xdr(gzip.open(folder + "/Rdata.rdx").read()).read()
    with open(folder + "/Rdata.rdb", "rb") as f:
        everything = f.read()
    for name, (start, length) in index["variables"].items():
        lines = Xdr(zlib.decompress(everything[start + 4 : start + length])).read()
        yield name, "\n".join(lines) + "\n"


def main():
    out = sys.argv[1]
    with tempfile.TemporaryDirectory() as tmp:
        if len(sys.argv) > 2:
            package = os.path.abspath(sys.argv[2])
        else:
            os.chmod(tmp, 0o755)
            subprocess.run(["apt-get", "download", "-qq", "r-cran-janeaustenr"], cwd=tmp, check=True, stderr=subprocess.DEVNULL)
            (package,) = glob.glob(tmp + "/*.deb")
        subprocess.run(["dpkg-deb", "-x", package, tmp + "/x"], check=True)
        (folder,) = glob.glob(tmp + "/x/usr/lib/R/site-library/janeaustenr/data")
        os.makedirs(out, exist_ok=True)
        for name, text in novels(folder):
            with open(f"{out}/{TITLES[name]}.txt", "w", encoding="utf-8", newline="") as f:
                f.write(text)


if __name__ == "__main__":
    main()
