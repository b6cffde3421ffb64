-- Both directions of a mirror: what was broken off when, a resync or a change of roles under way, sources overtaken.

ALTER TABLE relationships ADD COLUMN broken_off_at INTEGER;
ALTER TABLE relationships ADD COLUMN resync_pending INTEGER NOT NULL DEFAULT 0;
-- A change of roles under way: 'turning' towards the relationship swap_with, or 'prepared' for the end of it
-- ('prepared-new': by a mirror that was made for this).
ALTER TABLE relationships ADD COLUMN swap TEXT CHECK (swap IN ('turning', 'prepared', 'prepared-new'));
ALTER TABLE relationships ADD COLUMN swap_with BLOB CHECK (length(swap_with) = 16);

-- That the destination was broken off, as it told: when this site heard of it, when it was, where hosts there went on.
ALTER TABLE source_relationships ADD COLUMN overtaken_heard_at INTEGER;
ALTER TABLE source_relationships ADD COLUMN overtaken_broken_off_at INTEGER;
ALTER TABLE source_relationships ADD COLUMN overtaken_snapshot BLOB CHECK (length(overtaken_snapshot) = 16);
ALTER TABLE source_relationships ADD COLUMN overtaken_root BLOB CHECK (length(overtaken_root) = 16);

-- The log of mirrors, at their destination: a line for whatever happened. It outlives the relationship.
CREATE TABLE log (
    sequence     INTEGER PRIMARY KEY AUTOINCREMENT,
    relationship BLOB NOT NULL,
    volume       TEXT NOT NULL,
    at           INTEGER NOT NULL,
    event        TEXT NOT NULL,
    detail       TEXT,
    kind         TEXT,
    transfer     BLOB
) STRICT;
CREATE INDEX log_by_volume ON log (volume, sequence);
