"""A hostile program: attacks its own mailbox in every way it can, and tells what it saw.

It is given to the programs of a task as a file; nothing of Rota is imported.
"""

import json
import os
import socket
import sys
import time

BOX = os.environ["ROTA_MAILBOX"]
OUT, REPLIES = BOX + "/out/", BOX + "/in/replies/"
SECRET = sys.argv[1]
SEEN = {}


def put(name, data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    with open(OUT + name + ".tmp", "wb") as file:
        file.write(data)
    os.rename(OUT + name + ".tmp", OUT + name + ".json")


def reply(name, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(REPLIES + name + ".json") as file:
                return json.load(file)
        except FileNotFoundError:
            time.sleep(0.005)
    raise SystemExit("no reply to " + name)


def code(name):
    return reply(name).get("error", {}).get("code", "ok")


def ask(name, verb, /, **fields):
    put(name, {"request_id": name, "type": verb, **fields})
    return reply(name)


def fails(act):
    try:
        act()
    except OSError:
        return True
    return False


# first what is meant to work
SEEN["snapshots"] = sorted(name for name in os.listdir(BOX + "/in") if name.endswith(".json"))
SEEN["tasks"] = [task["name"] for task in ask("tasks", "list_tasks")["tasks"]]
SEEN["unknown"] = ask("dance", "dance")["error"]["code"]
SEEN["names"] = [name for name in sorted(os.environ) if name.startswith("ROTA_")]

# A1, A2: links out of the mailbox; A3: what is no file
for number, target in enumerate([SECRET, "/proc/self/environ", "/dev/zero"]):
    os.symlink(target, OUT + f"link{number}.json")
with open("own", "w") as file:
    file.write('{"request_id": "own", "type": "list_tasks"}')
SEEN["hard"] = fails(lambda: os.link("own", OUT + "hard.json"))
os.mkfifo(OUT + "fifo.json")
os.mkdir(OUT + "folder.json")
os.makedirs(OUT + "full.json/deep")
listening = socket.socket(socket.AF_UNIX)
os.chdir(OUT)
listening.bind("socket.json")
# A4: a sparse file of a tebibyte
with open(OUT + "huge.tmp", "wb") as file:
    os.truncate(file.fileno(), 1 << 40)
os.rename("huge.tmp", "huge.json")
# A6: half of a command, and one that is never renamed
put("half", b'{"request_id": "half", "ty')
open(OUT + "never.tmp", "w").close()
# A7: names
odd = [
    b"new\nline.json",
    b"\xff\xfe.json",
    "\N{RIGHT-TO-LEFT OVERRIDE}x.json".encode(),
    b"x" * 250 + b".json",
]
for name in odd:
    os.close(os.open(os.fsencode(OUT) + name, os.O_CREAT | os.O_WRONLY))
# A8: bombs
put("deep", b"[" * 100_000)
put("wide", b'{"a":[' + b"1," * 500_000 + b"1]}")
put("twice", b'{"request_id": "twice", "request_id": "x", "type": "list_tasks"}')
put("digits", b'{"a": ' + b"9" * 4_000 + b"}")
put("nan", b'{"a": NaN}')
put("half-pair", b'{"a": "\\ud800"}')
put("path", b'{"request_id": "../../escape", "type": "list_tasks"}')
wanted = ["link0", "link1", "link2", "fifo", "folder", "full", "socket", "huge", "half",
          "deep", "wide", "twice", "digits", "nan", "half-pair", "path"]  # fmt: skip
if not SEEN["hard"]:
    wanted.append("hard")
SEEN["refused"] = {name: code(name) for name in wanted}
end = time.monotonic() + 10.0
while len(os.listdir(OUT)) > 2 and time.monotonic() < end:
    time.sleep(0.01)
SEEN["left"] = sorted(os.listdir(OUT))

# A9: whatever a command claims, it counts for this run alone
SEEN["claims"] = ask("claims", "list_tasks", run_id=1, space="ada")["ok"]
# A11: the inode stays in our hands
held = os.open(OUT + "late.tmp", os.O_CREAT | os.O_RDWR)
os.write(held, b'{"request_id": "late", "type": "list_tasks"}')
os.rename(OUT + "late.tmp", OUT + "late.json")
os.pwrite(held, b'{"request_id": "gone"', 0)
while not {"late.json", "gone.json"} & set(os.listdir(REPLIES)):
    time.sleep(0.005)
SEEN["late"] = sorted({"late.json", "gone.json"} & set(os.listdir(REPLIES)))

# A10: what was asked before is asked again, word for word and under another name
once = {"request_id": "once", "type": "send_message", "text": "hello", "to": "log:"}
put("once", once)
SEEN["sent"] = reply("once")["ok"]
os.unlink(REPLIES + "once.json") if os.access(REPLIES, os.W_OK) else None
put("replay", once)
while "replay.json" in os.listdir(OUT):
    time.sleep(0.005)
SEEN["replayed"] = reply("once")["done_at"]
SEEN["again"] = ask("again", "send_message", text="hello", to="log:")["again"]

# A5, A13: the folders themselves
SEEN["in"] = fails(lambda: os.close(os.open(REPLIES + "forged.json", os.O_CREAT | os.O_WRONLY)))
SEEN["mkdir"] = fails(lambda: os.mkdir(BOX + "/in/mine"))
SEEN["moved"] = fails(lambda: os.rename(BOX + "/out", BOX + "/elsewhere"))
SEEN["others"] = sorted(os.listdir(os.path.dirname(os.path.dirname(BOX))))
SEEN["own"] = os.path.basename(os.path.dirname(BOX))
print(json.dumps(SEEN))
