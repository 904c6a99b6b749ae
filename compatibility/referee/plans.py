"""Compares our query plans with the service's own, which the .NET SDK's repository keeps as baselines.

    python3 compatibility/referee/plans.py CHECKOUT    # of Azure/azure-cosmos-dotnet-v3; --all prints every difference

Compares all fields but the ranges, and texts without brackets and white space. Plans of hybrid search are left out. Ends
with 1 below MINIMUM. The baselines stay in their repository; nothing of them is kept here.
"""

import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

BASELINES = "Microsoft.Azure.Cosmos/tests/Microsoft.Azure.Cosmos.Tests/BaselineTest/TestBaseline"
MINIMUM = 350


def texts(parent, name):
    """The texts of the children of one element; empty where it is missing."""
    element = parent.find(name)
    return [] if element is None else [child.text or "" for child in element]


def number(info, name):
    text = info.findtext(name)
    return int(text) if text else None


def expression(text):
    """A text without brackets and white space, which a client does not look at: `r["a"]` is `r.a`."""
    return re.sub(r"[\s()]", "", re.sub(r'\["(\w+)"\]', r".\1", text))


HYBRID = object()


def expected(output):
    """The service's plan; None where it refuses the query."""
    plan = output.find("PartitionedQueryExecutionInfoInternal")
    if plan is None:
        # The SDK refuses some plans of the service, which its error shows.
        error = output.findtext("Exception")
        start = error.find('{"queryInfo"')
        return None if start < 0 else ours(json.JSONDecoder().raw_decode(error, start)[0])
    info = plan.find("QueryInfo")
    if info is None:
        return HYBRID
    aliases = info.find("GroupByAliasToAggregateType")
    aggregates = {
        entry.findtext("Alias"): entry.findtext("AggregateOperator").replace("null", "")
        for entry in ([] if aliases is None else aliases)
    }
    return {
        "distinct": info.findtext("DistinctType"),
        "top": number(info, "Top"),
        "offset": number(info, "Offset"),
        "limit": number(info, "Limit"),
        "groupBy": [expression(text) for text in texts(info, "GroupByExpressions")],
        "orderBy": texts(info, "OrderBy"),
        "orderByExpressions": [expression(text) for text in texts(info, "OrderByExpressions")],
        "aggregates": texts(info, "Aggregates"),
        "aggregatesByAlias": aggregates,
        "aliases": texts(info, "GroupByAliases"),
        "hasSelectValue": info.findtext("HasSelectValue") == "True",
        "rewritten": expression(plan.findtext("RewrittenQuery") or ""),
    }


def ours(answer):
    """Our plan in the same form; None where we refuse the query."""
    if "error" in answer:
        return None
    info = answer["queryInfo"]
    return {
        "distinct": info["distinctType"],
        "top": info.get("top"),
        "offset": info.get("offset"),
        "limit": info.get("limit"),
        "groupBy": [expression(text) for text in info["groupByExpressions"]],
        "orderBy": info["orderBy"],
        "orderByExpressions": [expression(text) for text in info["orderByExpressions"]],
        "aggregates": info["aggregates"],
        "aggregatesByAlias": {
            alias: aggregate or "" for alias, aggregate in info["groupByAliasToAggregateType"].items()
        },
        "aliases": info["groupByAliases"],
        "hasSelectValue": bool(info["hasSelectValue"]),
        "rewritten": expression(info["rewrittenQuery"]),
    }


def baselines(checkout):
    files = sorted((pathlib.Path(checkout) / BASELINES).glob("QueryPlanBaselineTests.*.xml"))
    if not files:
        sys.exit(f"no baselines in {checkout}: name a checkout of Azure/azure-cosmos-dotnet-v3")
    for file in files:
        for result in ElementTree.parse(file).getroot():
            asked = result.find("Input")
            # A container without a key plans as one whose key the query does not name.
            paths = texts(asked, "PartitionKeys") or ["/never"]
            parameters = json.loads(asked.findtext("QueryParameters") or "[]")
            request = {"query": asked.findtext("Query"), "paths": paths, "parameters": parameters}
            yield request, expected(result.find("Output"))


def plans(cases):
    lines = "".join(json.dumps(request) + "\n" for request, _ in cases)
    command = ["cargo", "run", "--quiet", "--package", "headwater-query", "--example", "plan"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--all"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    cases = [case for case in baselines(arguments[0]) if case[1] is not HYBRID]
    alike = 0
    for (request, wanted), answer in zip(cases, plans(cases), strict=True):
        got = ours(answer)
        if got == wanted:
            alike += 1
            continue
        if "--all" in sys.argv:
            print(json.dumps(request | {"query": " ".join(request["query"].split())}))
            if got is None or wanted is None:
                print("  ", "refused by us: " + answer["error"] if got is None else "refused by the service")
                continue
            for field in wanted:
                if wanted[field] != got[field]:
                    print("  ", field, json.dumps(wanted[field]), "not", json.dumps(got[field]))
    print(f"{alike} of {len(cases)} plans are alike, at least {MINIMUM} must be")
    sys.exit(alike < MINIMUM)


if __name__ == "__main__":
    main()
