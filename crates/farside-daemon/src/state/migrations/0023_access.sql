-- Who may use the API over HTTPS. A token is known by its hash alone; accounts, with their passwords, are a file of their own.
CREATE TABLE tokens (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE,
    role         TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER NOT NULL,
    last_used_at INTEGER
) STRICT;

-- What the administrators of a peer may do here, over the session with it; null: nothing.
ALTER TABLE peers ADD COLUMN site_role TEXT;

-- Changes that were asked for through the API. A row is written before the change begins; outcome and duration follow.
-- No number is given twice.
CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    who      TEXT NOT NULL,
    role     TEXT,
    origin   TEXT NOT NULL,
    method   TEXT NOT NULL,
    path     TEXT NOT NULL,
    request  TEXT,
    outcome  TEXT,
    message  TEXT,
    duration INTEGER
) STRICT;
CREATE INDEX audit_by_time ON audit (at);
