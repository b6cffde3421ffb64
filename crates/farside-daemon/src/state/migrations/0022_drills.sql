-- Volumes of drills that go when their client does not renew them.
CREATE TABLE drills (
    pool TEXT NOT NULL,
    volume TEXT NOT NULL,
    PRIMARY KEY (pool, volume)
) STRICT;
