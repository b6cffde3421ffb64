"""Names that are there, for scripts/test-api: of random ones no two requests agree, and all that a daemon says of them is 404.

Half of the well-formed requests get the names of the site that the script has made, or of what earlier requests have made. What
the run needs to its end (the pool, the peer, the first volumes) is never confirmed, so it stays.
"""

import random

import schemathesis
from schemathesis.core.parameters import ParameterLocation

MADE = ["v1", "v2", "v3", "v4"]
NAMES = {
    "pool": ["tank"],
    "volume": ["db", "mail", "spare", *MADE],
    "snapshot": ["monday", "s1", "s2"],
    "peer": ["south"],
    "host": ["web1", "n1", "n2"],
}
SIZES = [0, 4096, 1 << 20, 8 << 20, 8 << 20]


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None:
        return

    def is_negative(location):
        component = case.meta.components.get(location)
        return component is not None and component.mode.is_negative

    # The same request gets the same names, or a failure could not be made again.
    dice = random.Random(repr((case.path, case.method, case.path_parameters, case.query, case.body)))
    if case.path_parameters and not is_negative(ParameterLocation.PATH) and dice.random() < 0.5:
        for name in NAMES.keys() & case.path_parameters.keys():
            case.path_parameters[name] = dice.choice(NAMES[name])
        if case.path_parameters.get("host") == "web1" and case.method == "DELETE":
            case.path_parameters["host"] = "n1"
    if case.headers and "x-farside-confirm" in case.headers and not is_negative(ParameterLocation.HEADER):
        thing = thing_of(case.path_parameters)
        if thing is not None:
            case.headers["x-farside-confirm"] = thing
    if isinstance(case.body, dict) and not is_negative(ParameterLocation.BODY) and dice.random() < 0.6:
        fill(case.body, case.path, dice)


def thing_of(names):
    """What the header has to say of this path; none of what has to stay."""
    if names.get("volume") not in MADE or names.get("pool") != "tank":
        return None
    thing = f"tank/{names['volume']}"
    if "snapshot" in names:
        thing += f"@{names['snapshot']}"
    if "peer" in names:
        thing += f" {names['peer']}"
    return thing if thing.isascii() else None


def fill(body, path, dice):
    for key, value in body.items():
        if key == "snapshots" and isinstance(value, list):
            body[key] = [f"tank/{dice.choice(NAMES['volume'])}@{dice.choice(['s1', 's2'])}"]
        elif key == "volumes" and isinstance(value, list):
            body[key] = [f"tank/{dice.choice(NAMES['volume'])}"]
        elif key in ("limits", "others", "link") and value and dice.random() < 0.7:
            body[key] = type(value)()
        elif key in ("every_seconds", "rpo_seconds", "schedule", "time_zone", "retention", "from", "quota_bytes", "reserve_bytes"):
            # Of several that exclude one another most say nothing.
            if value is not None and dice.random() < 0.7:
                body[key] = None
        elif key.endswith("_bytes") and isinstance(value, int):
            body[key] = dice.choice(SIZES)
        elif not isinstance(value, str):
            continue
        elif key == "name" and path.endswith("/rename"):
            body[key] = dice.choice(MADE)
        elif key in ("name", "destination"):
            in_pool = "volumes" in path or "mirrors" in path
            body[key] = f"tank/{dice.choice(MADE)}" if in_pool else dice.choice(["n1", "n2"])
        elif key == "volume":
            body[key] = f"tank/{dice.choice(NAMES['volume'])}"
        elif key == "source":
            body[key] = "south:vault/mail"
        elif key in ("peer", "snapshot", "at"):
            body[key] = "south" if key == "peer" else dice.choice(NAMES["snapshot"])
