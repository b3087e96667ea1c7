# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes ssh's arguments and runs the command on "another host".

As with ssh, this process only passes bytes on: when it dies the command's input ends, and the
command has an environment of its own. What the host is depends on STAND_IN_NAMESPACES: if set, host
10.77.0.(i+1) is the network namespace of this name and i; else it is this machine with a
FARANDOLE_HOST_ID of its own. Some names stand for a host where something is wrong.
"""

import json
import os
import selectors
import subprocess
import sys
import time

WITH_VALUE = ("-o", "-p", "-i")


def parse(arguments: list[str]) -> tuple[str, str]:
    words = iter(arguments)
    for word in words:
        if word in WITH_VALUE:
            next(words)
        elif not word.startswith("-"):
            return word, " ".join(words)
    sys.exit("no host")


def command_on(host: str, command: str) -> list[str]:
    if host.startswith("unreachable"):
        print(f"ssh: connect to host {host} port 22: Connection refused", file=sys.stderr)
        sys.exit(255)
    if host == "silent":
        time.sleep(1000)
    if host == "nopython":
        command = command.replace(sys.executable, "/no/such/python")
    elif host == "nofarandole":
        command = f"{sys.executable} -S -m farandole.cli agent"
    elif host == "otherversion":
        hello = json.dumps({"kind": "hello", "bytes": 0, "version": "9.8.7"})
        command = f"printf '\\nfarandole agent speaks\\n%s\\n' '{hello}'; cat"
    elif host == "talkative":
        command = f"echo 'Welcome to'; echo; echo 'your host'; {command}"
    shell = ["sh", "-c", command]
    if names := os.environ.get("STAND_IN_NAMESPACES"):
        index = int(host.rpartition(".")[2]) - 1
        return ["ip", "netns", "exec", f"{names}{index}", *shell]
    return shell


def main() -> int:
    host, command = parse(sys.argv[1:])
    environment = {k: os.environ[k] for k in ("HOME", "FARANDOLE_TEST_MARK") if k in os.environ}
    environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "OF_HOST": host}
    if "STAND_IN_NAMESPACES" not in os.environ:
        environment["FARANDOLE_HOST_ID"] = host
    there = subprocess.Popen(
        command_on(host, command),
        env=environment,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    assert there.stdin is not None
    assert there.stdout is not None
    assert there.stderr is not None
    ways = {0: there.stdin.fileno(), there.stdout.fileno(): 1, there.stderr.fileno(): 2}
    selector = selectors.DefaultSelector()
    for source in ways:
        selector.register(source, selectors.EVENT_READ)
    while len(selector.get_map()) > (0 in selector.get_map()):
        for key, _ in selector.select():
            data = os.read(key.fd, 65536)
            if not data:
                selector.unregister(key.fd)
                if key.fd == 0:
                    there.stdin.close()
            try:
                while data:
                    data = data[os.write(ways[key.fd], data) :]
            except BrokenPipeError:
                return 255
    return there.wait()


sys.exit(main())
