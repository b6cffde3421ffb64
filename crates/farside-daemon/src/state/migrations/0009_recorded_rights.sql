-- What of a right was recorded for the way back of a mirror, and no person gave: 0 nothing, 1 that it is a way back, 2 the whole
-- right. It ends with the mirror. Rights from before are taken for a person's.
ALTER TABLE rights ADD COLUMN recorded INTEGER NOT NULL DEFAULT 0;
