"""A hostile agent: has one action approved, and wants another one to be meant.

It is given to the programs of a task as a file; nothing of Rota is imported.
"""

import json
import os
import time

BOX = os.environ["ROTA_MAILBOX"]
ACTION = {"argv": ["deploy", "test"], "env": {"STAGE": "test"}, "cwd": "/work"}
OTHERS = [
    {**ACTION, "argv": ["deploy", "prod"]},
    {**ACTION, "env": {"STAGE": "prod"}},
    {**ACTION, "cwd": "/"},
]


def ask(name, action):
    said = {"request_id": name, "type": "ask_user", "question": "Deploy?", "action": action}
    with open(f"{BOX}/out/{name}.tmp", "w") as file:
        json.dump(said, file)
    os.rename(f"{BOX}/out/{name}.tmp", f"{BOX}/out/{name}.json")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            with open(f"{BOX}/in/replies/{name}.json") as reply:
                return json.load(reply)
        except FileNotFoundError:
            time.sleep(0.005)
    raise SystemExit("no reply to " + name)


if os.environ["ROTA_ATTEMPT"] == "1":
    first = ask("q", ACTION)
    # E2: the same question once more, with other words, another surrounding, another folder
    others = [ask(f"q{number}", other)["ok"] for number, other in enumerate(OTHERS)]
    again = ask("q", OTHERS[0])
    print(json.dumps({"first": first["ok"], "others": others, "again": again["ok"]}))
else:
    print(json.dumps({"answers": json.loads(os.environ["ROTA_ANSWERS"])}))
