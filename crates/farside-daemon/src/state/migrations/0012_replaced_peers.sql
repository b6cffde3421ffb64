-- Keys that another has taken the place of: a pool that was closed at that moment names the old one still.
CREATE TABLE replaced_peers (
    old         BLOB PRIMARY KEY NOT NULL CHECK (length(old) = 32),
    new         BLOB NOT NULL CHECK (length(new) = 32),
    replaced_at INTEGER NOT NULL
) STRICT;
