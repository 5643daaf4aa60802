"""A hostile agent: leaves what is no plain file, and floods the way out.

It is given to the programs of a task as a file; nothing of Rota is imported.
Usage: hostile_left.py upload or flood, for either uses up what an attempt may send.
"""

import json
import os
import socket
import sys
import tarfile
import zipfile
from urllib.parse import urlsplit

LEFT = os.environ["ROTA_ARTIFACTS"] + "/"
GATE, TOKEN = urlsplit(os.environ["ANTHROPIC_BASE_URL"]), os.environ["ANTHROPIC_API_KEY"]
SEEN = {}


def tried(act):
    """Return whether something that harms nobody by itself could be made."""
    try:
        act()
    except OSError:
        return False
    return True


def plain(name, text="x"):
    with open(LEFT + name, "w") as file:
        file.write(text)


def make_zip():
    with zipfile.ZipFile(LEFT + "slip.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("../../../escape", "x")
        made.writestr("bomb", b"\0" * (8 << 20))


def make_tar():
    with tarfile.open(LEFT + "slip.tar", "w") as made:
        entry = tarfile.TarInfo("/tmp/escape")
        made.addfile(entry)


# A12: what a run leaves; what could be made and is no plain file must be left out
plain("well")
odd = {
    "symbolic": lambda: os.symlink("/etc/passwd", LEFT + "link"),
    "folder": lambda: os.symlink("/etc", LEFT + "etc"),
    "loop": lambda: os.symlink(".", LEFT + "loop"),
    "hard": lambda: os.link(LEFT + "well", LEFT + "second"),
    "pipe": lambda: os.mkfifo(LEFT + "pipe"),
    "device": lambda: os.mknod(LEFT + "zero", 0o20666, os.makedev(1, 5)),
    "newline": lambda: plain("new\nline"),
    "reversed": lambda: plain("\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe"),
    "bytes": lambda: os.close(os.open(os.fsencode(LEFT) + b"\xff", os.O_CREAT | os.O_WRONLY)),
}
SEEN["odd"] = {name: tried(make) for name, make in odd.items()}
plain("setuid")
SEEN["setuid"] = tried(lambda: os.chmod(LEFT + "setuid", 0o4777))
make_zip()
make_tar()
deep = LEFT + "deep"
for _ in range(40):
    os.mkdir(deep)
    deep += "/d"
os.mkdir(LEFT + "many")
for number in range(3_000):
    plain(f"many/{number}")


def gate(head, body=b"", parts=1):
    """Say a request to the gateway; return the status of its answer."""
    words = head.replace(b"TOKEN", TOKEN.encode()).replace(b"\n", b"\r\n") + b"\r\n\r\n"
    told = b""
    with socket.create_connection((GATE.hostname, GATE.port), timeout=30) as line:
        try:
            line.sendall(words + body)
            for _ in range(parts - 1):
                line.sendall(body)
        except OSError:
            pass
        try:
            while b"\r\n" not in told:
                part = line.recv(4096)
                if not part:
                    break
                told += part
        except OSError:
            pass
    return int(told.split()[1]) if told else 0


HEAD = b"POST " + GATE.path.encode() + b"/v1/messages HTTP/1.1\nHost: localhost\nx-api-key: TOKEN\n"
# C7: who is slow holds nobody up, and a huge upload is cut, however it is sent
slow = [socket.create_connection((GATE.hostname, GATE.port), timeout=30) for _ in range(8)]
for line in slow:
    line.sendall(b"POST /")
SEEN["beside"] = gate(HEAD + b"Content-Length: 2", b"{}")
if sys.argv[1] == "upload":
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    SEEN["huge"] = gate(HEAD + b"Content-Length: 10737418240")
    SEEN["endless"] = gate(HEAD + b"Transfer-Encoding: chunked", chunk, 1_000)
else:
    SEEN["flood"] = [gate(HEAD + b"Content-Length: 2", b"{}") for _ in range(60)]
for line in slow:
    line.close()
print(json.dumps(SEEN))
