"""What a compatibility program needs around its checks: names, results, and a line to the runner.

A check is an `async def` registered under a group and a name. It passes by returning. The same
checks run against the synchronous and the asynchronous client: `done` awaits what can be awaited,
`collect` reads either kind of iterator. Nothing here knows a database operation.
"""

import asyncio
import base64
import hashlib
import hmac
import inspect
import json
import os
import sys
import time
import traceback
import urllib.request
from email.utils import formatdate
from urllib.parse import quote

ENDPOINT = os.environ["HEADWATER_ENDPOINT"]
KEY = os.environ["HEADWATER_ACCOUNT_KEY"]
CHECK_SECONDS_MAX = 60

_checks = []


def check(group, name):
    """Registers a check. Names are shared with the other languages' programs."""

    def register(function):
        _checks.append((group, name, function))
        return function

    return register


async def done(value):
    """The value, whether it is here already or must be awaited."""
    return await value if inspect.isawaitable(value) else value


async def collect(iterable, at_most=None):
    """The elements of either kind of iterator."""
    found = []
    if hasattr(iterable, "__aiter__"):
        async for element in iterable:
            found.append(element)
            if at_most is not None and len(found) >= at_most:
                break
        return found
    for element in await done(iterable):
        found.append(element)
        if at_most is not None and len(found) >= at_most:
            break
    return found


async def fails(status, work, substatus=None):
    """Does the work and demands that the server refuses it with this status."""
    from azure.cosmos.exceptions import CosmosHttpResponseError

    try:
        value = work()
        await (collect(value) if hasattr(value, "__iter__") or hasattr(value, "__aiter__") else done(value))
    except CosmosHttpResponseError as error:
        assert error.status_code == status, f"expected {status}, got {error.status_code}: {error.message}"
        if substatus is not None:
            assert error.sub_status == substatus, f"expected sub-status {substatus}, got {error.sub_status}"
        return error
    raise AssertionError(f"expected {status}, but it succeeded")


def equal(found, expected, about=""):
    assert found == expected, f"{about}: found {found!r}, expected {expected!r}".removeprefix(": ")


def ask_runner(**request):
    """Asks the runner for something only it can do, and waits until it is done."""
    print(json.dumps(request), flush=True)
    answer = json.loads(sys.stdin.readline())
    assert answer.get("done"), f"the runner could not: {answer}"


def restart_server():
    ask_runner(control="restart")


def headwater_request(verb, what, database, container, body=None):
    """A signed request to Headwater's own paths, which no official client knows."""
    date = formatdate(usegmt=True)
    text = f"{verb.lower()}\ncolls\ndbs/{database}/colls/{container}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    token = quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")
    request = urllib.request.Request(
        f"{ENDPOINT}/_headwater/partitions/{quote(database)}/{quote(container)}{what}",
        method=verb,
        data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": token, "x-ms-date": date, "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def split(database, container, range_id):
    headwater_request("POST", "/split", database, container, {"range": range_id})


async def run(client_name, make_context):
    """Runs every check, one after the other; the exit code says whether all passed."""
    failed = 0
    only = os.environ.get("HEADWATER_ONLY", "")
    for group, name, function in _checks:
        if only and only not in f"{group}: {name}":
            continue
        started = time.monotonic()
        detail = ""
        try:
            async with make_context() as context:
                await asyncio.wait_for(function(context), CHECK_SECONDS_MAX)
        except Exception as error:  # Whatever goes wrong is the result of the check.
            detail = f"{type(error).__name__}: {error}".strip()[:600]
            if os.environ.get("HEADWATER_VERBOSE"):
                traceback.print_exc()
        failed += bool(detail)
        result = {"client": client_name, "group": group, "check": name, "ok": not detail, "detail": detail}
        print(json.dumps(result), flush=True)
        if os.environ.get("HEADWATER_VERBOSE"):
            print(f"{time.monotonic() - started:6.2f} s  {name}", file=sys.stderr)
    return 1 if failed else 0
