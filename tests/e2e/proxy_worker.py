#!/usr/bin/env python3
"""A real worker with one bad habit: proxy_worker.py HABIT[=VALUE] -- COMMAND...

Passes the lines of the wire through, both ways, but
  die_on=UNIT      dies when it is told to run that unit
  die_planning     dies when it is told to plan
  garbage=FLAG     answers the first run with a line that is not JSON, unless the file FLAG says that it has done so before
  fail_run=FLAG    answers the first run with a failure of the device, likewise
  deaf             does not pass on what it is told to cancel
  as=SIGNATURE     says hello with another signature for f32
  recant           says of the first unit of each batch that it failed, after its result
  invent=FLAG      sends a result for a unit that the job does not have, before its first result, likewise
  stray            says after each run that it was cancelled, and sends events for jobs that nobody knows
"""
import json
import os
import subprocess
import sys
import threading

habit, _, value = sys.argv[1].partition("=")
worker = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
lock = threading.Lock()


def say(event):
    with lock:
        sys.stdout.buffer.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        sys.stdout.buffer.flush()


def die():
    worker.kill()
    os._exit(9)


def first_time():
    if os.path.exists(value):
        return False
    open(value, "w").close()
    return True


def from_server():
    for line in sys.stdin.buffer:
        command = json.loads(line)
        is_run = command["cmd"] == "run"
        if habit == "die_on" and is_run and any(a <= int(value) < b for a, b in command["units"]):
            die()
        if habit == "die_planning" and command["cmd"] == "plan":
            die()
        if habit == "garbage" and is_run and first_time():
            say(b'{"event":"units", oh no\n')
            continue
        if habit == "fail_run" and is_run and first_time():
            say({"event": "failed", "job": command["job"], "code": "device", "message": "the device fell off the bus"})
            continue
        if habit == "deaf" and command["cmd"] == "cancel":
            continue
        worker.stdin.write(line)
    os._exit(0)


threading.Thread(target=from_server, daemon=True).start()
for event in worker.stdout:
    if habit == "as" and b'"hello"' in event:
        hello = json.loads(event)
        hello["signatures"]["f32"] = value
        event = json.dumps(hello).encode() + b"\n"
    if habit == "stray" and b'"idle"' in event:
        ticket = json.loads(event)["job"]
        say({"event": "units", "job": ticket + 1000, "units": [[0, {"nll": 1}]], "tokens": 1, "seconds": 1})
        say({"event": "idle", "job": ticket + 1000})
        say({"event": "cancelled", "job": 0})
    if habit == "invent" and b'"event":"units"' in event and first_time():
        say({"event": "units", "job": json.loads(event)["job"], "units": [[99999, {"nll": 1}]], "tokens": 1, "seconds": 1})
    say(event)
    if habit == "recant" and b'"event":"units"' in event:
        batch = json.loads(event)
        say({"event": "failed", "job": batch["job"], "units": [batch["units"][0][0]], "code": "numeric", "message": "no"})
die()
