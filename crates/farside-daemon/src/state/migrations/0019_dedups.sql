-- Deduplication of volumes: whether it is wanted, where it is and what it saves, as a document. One that is lost costs a pass, and
-- the volume is not deduplicated any more until somebody says so again.
CREATE TABLE dedups (
    pool TEXT NOT NULL,
    volume TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (pool, volume)
) STRICT;
