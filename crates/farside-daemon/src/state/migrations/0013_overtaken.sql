-- What of being overtaken outlives whoever said it: that hosts are fenced although the right that asked for it may be gone, that the
-- mirror was deleted there, and who went on beyond the destination ('PEER:POOL/VOL').
ALTER TABLE source_relationships ADD COLUMN overtaken_fenced INTEGER NOT NULL DEFAULT 0;
ALTER TABLE source_relationships ADD COLUMN overtaken_ended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE source_relationships ADD COLUMN overtaken_beyond TEXT;
-- Where the source of a replica stands, as it said last: a message of the mirror protocol.
ALTER TABLE relationships ADD COLUMN origin BLOB;
-- Of a mirror that was broken off: whether its source has answered what it was told of that. Of breaks of before nobody knows.
ALTER TABLE relationships ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
UPDATE relationships SET told = 1 WHERE broken_off_at IS NOT NULL;

-- Mirrors that were deleted here, and of which their sources have not heard: what they are to be told, a request of the mirror
-- protocol without a version. They go when they were told.
CREATE TABLE endings (
    relationship BLOB NOT NULL PRIMARY KEY CHECK (length(relationship) = 16),
    peer         BLOB NOT NULL CHECK (length(peer) = 32),
    at           INTEGER NOT NULL,
    request      BLOB NOT NULL
) STRICT;
