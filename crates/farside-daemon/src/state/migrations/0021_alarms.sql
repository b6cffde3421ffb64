-- Alarms that are raised, and those that were cleared in the last days. One that is lost is raised again if its reason is still
-- there.
CREATE TABLE alarms (
    id              INTEGER PRIMARY KEY NOT NULL,
    kind            TEXT NOT NULL,
    subject         TEXT NOT NULL,
    severity        TEXT NOT NULL,
    raised_at       INTEGER NOT NULL,
    cleared_at      INTEGER,
    acknowledged_at INTEGER,
    message         TEXT NOT NULL,
    hint            TEXT NOT NULL
) STRICT;
CREATE INDEX alarms_by_end ON alarms (cleared_at);

-- What is still to be posted to the webhook, in this order: a JSON document each.
CREATE TABLE alarm_notices (
    sequence  INTEGER PRIMARY KEY AUTOINCREMENT,
    queued_at INTEGER NOT NULL,
    document  TEXT NOT NULL
) STRICT;
