-- Changes of direction are counted, so that a late word of an earlier one has no effect.
ALTER TABLE relationships ADD COLUMN turn INTEGER NOT NULL DEFAULT 1;
