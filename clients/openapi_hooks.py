"""What the description of `tidelock serve` cannot say, for schemathesis, which tries all calls that are described."""

import schemathesis

#: A stream ends when its client does not confirm for a ttl, and nobody waits for what an earlier call left behind.
SOON = {"ttl": 0.05, "wait": 0}
KEYS = {
    "Lock": ("ttl", "wait"),
    "LockAll": ("ttl", "wait"),
    "Ticket": ("ttl", "wait"),
    "Campaign": ("ttl",),
    "Once": ("ttl",),
}


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    operation = case.operation.definition.raw.get("operationId")
    name = (case.path_parameters or {}).get("name")
    # A name that is escaped may stand for one that is refused, and is meant to be.
    if operation == "Campaign" and isinstance(name, str) and 0 < len(name) < 100 and "%" not in name:
        # A candidate waits for as long as it takes, also behind a ticket.
        case.path_parameters["name"] = "election-" + name
    if not isinstance(body, dict):
        return
    for key in KEYS.get(operation, ()):
        body[key] = SOON[key]
    # A schema cannot compare two numbers, nor know when a slot begins.
    share = body.get("share")
    if isinstance(share, dict) and all(isinstance(share.get(key), (int, float)) for key in ("permits", "of")):
        share["permits"] = min(share["permits"], share["of"])
    if operation == "Once":
        body.pop("slot", None)
