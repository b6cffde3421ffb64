-- Times are nanoseconds since 1970-01-01T00:00:00Z. Ids are 16 bytes (UUID) or 32 (a peer: SHA-256 of its key).

CREATE TABLE pools (
    name     TEXT PRIMARY KEY NOT NULL,
    path     TEXT NOT NULL UNIQUE,
    added_at INTEGER NOT NULL
) STRICT;

CREATE TABLE peers (
    id       BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 32),
    name     TEXT NOT NULL UNIQUE,
    address  TEXT,
    added_at INTEGER NOT NULL
) STRICT;

-- What a peer may do with a volume here, which need not exist.
CREATE TABLE rights (
    peer    BLOB NOT NULL REFERENCES peers (id) ON DELETE CASCADE,
    volume  TEXT NOT NULL,
    reverse INTEGER NOT NULL,
    PRIMARY KEY (peer, volume)
) STRICT;

-- Mirrors whose replica is here.
CREATE TABLE relationships (
    id                BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    peer              BLOB NOT NULL CHECK (length(peer) = 32),
    source            TEXT NOT NULL,
    pool              TEXT NOT NULL,
    volume            TEXT NOT NULL,
    every_nanoseconds INTEGER,
    quiesced          INTEGER NOT NULL,
    UNIQUE (pool, volume)
) STRICT;

-- Mirrors whose original is here: who holds which base.
CREATE TABLE source_relationships (
    id          BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    peer        BLOB NOT NULL CHECK (length(peer) = 32),
    source      TEXT NOT NULL,
    destination TEXT NOT NULL,
    base        BLOB,
    since       INTEGER
) STRICT;

-- Transfers that have ended, at their destination. They outlive their relationship.
CREATE TABLE transfers (
    sequence     INTEGER PRIMARY KEY AUTOINCREMENT,
    relationship BLOB NOT NULL,
    volume       TEXT NOT NULL,
    ended_at     INTEGER NOT NULL,
    -- JSON, as `mirror history --json` shows it.
    record       TEXT NOT NULL
) STRICT;
CREATE INDEX transfers_by_relationship ON transfers (relationship, sequence);
CREATE INDEX transfers_by_volume ON transfers (volume, sequence);
