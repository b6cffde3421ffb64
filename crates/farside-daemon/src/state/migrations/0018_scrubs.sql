-- The scrub of each pool that runs, or that ran last: a document with where it is and what it has found. One that is lost costs
-- a scrub.
CREATE TABLE scrubs (
    pool TEXT PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;
