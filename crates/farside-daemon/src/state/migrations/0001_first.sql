-- Times are nanoseconds since 1970-01-01T00:00:00Z.

CREATE TABLE pools (
    name     TEXT PRIMARY KEY NOT NULL,
    path     TEXT NOT NULL UNIQUE,
    added_at INTEGER NOT NULL
) STRICT;
